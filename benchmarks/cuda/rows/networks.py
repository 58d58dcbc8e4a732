"""Whole models with random weights, from the configurations of `transformers`, nothing downloaded.

Each is a module that takes tensors by position and returns one, its inputs, and their sizes. With
`smoke` it has few, narrow layers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from rows import Missing

Tensor = torch.Tensor


@dataclass(frozen=True)
class Network:
    """A module in f32 on the CPU, and what it is called with; floats become f16 with it.

    `stateful`: whether calls change the module's buffers, which `torch.export` does not take.
    """

    module: torch.nn.Module
    inputs: tuple[Tensor, ...]
    stateful: bool = False


class Call(torch.nn.Module):
    """A module that is called by position, and one tensor of what it returns."""

    def __init__(self, module: Any, call: Callable[..., Tensor]):
        super().__init__()
        self.module, self.call = module, call

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.call(self.module, *inputs)


def library() -> Any:
    """transformers, which must be installed. Raises Missing."""
    try:
        import transformers
    except ImportError as error:
        raise Missing(f"transformers is not there: {error}") from None
    return transformers


# ---------------------------------------------------------------------- models
def bert(batch: int, smoke: bool) -> Network:
    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
             "intermediate_size": 64, "vocab_size": 100}
    config = library().BertConfig(**small if smoke else {})
    module = library().BertModel(config, add_pooling_layer=False)
    ids = torch.randint(0, config.vocab_size, (batch, 16 if smoke else 128))
    return Network(Call(module, lambda m, i: m(input_ids=i).last_hidden_state), (ids,))


def vit(batch: int, smoke: bool) -> Network:
    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
             "intermediate_size": 64, "image_size": 32}
    config = library().ViTConfig(num_labels=1000, **small if smoke else {})
    module = library().ViTForImageClassification(config)
    return Network(Call(module, _pixels), (_images(batch, smoke),))


def resnet(batch: int, smoke: bool) -> Network:
    small = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}
    module = library().ResNetForImageClassification(
        library().ResNetConfig(num_labels=1000, **small if smoke else {}))
    return Network(Call(module, _pixels), (_images(batch, smoke),))


def gpt2(tokens: int, smoke: bool) -> Network:
    module = _gpt2(smoke)
    ids = torch.randint(0, module.config.vocab_size, (1, 16 if smoke else tokens))
    return Network(Call(module, lambda m, i: m(input_ids=i, use_cache=False).logits), (ids,))


def gpt2_decode(tokens: int, smoke: bool) -> Network:
    """One token behind `tokens` others, whose keys and values are in a static cache."""
    module = _gpt2(smoke)
    tokens = 15 if smoke else tokens
    step = DecodeStep(module, 2 * tokens + 2, tokens)
    return Network(step, (torch.randint(0, module.config.vocab_size, (1, 1)),
                          torch.full((1, 1), tokens)), stateful=True)


class DecodeStep(torch.nn.Module):
    """The same step at each call: what the cache says of its length is set back."""

    def __init__(self, module: Any, most: int, tokens: int, batch: int = 1):
        super().__init__()
        self.module, self.most, self.tokens, self.batch = module, most, tokens, batch
        self.cache: Any = None

    def prepare(self) -> None:
        """Fill a new cache, where and in which type the module is by now."""
        self.cache = library().StaticCache(config=self.module.config, max_cache_len=self.most)
        ids = torch.arange(self.tokens, device=self.module.device)[None] % 97
        self.module(input_ids=ids.repeat(self.batch, 1), past_key_values=self.cache, use_cache=True)

    def forward(self, ids: Tensor, position: Tensor) -> Tensor:
        found = self.module(input_ids=ids, past_key_values=self.cache, position_ids=position,
                            use_cache=True).logits
        for layer in self.cache.layers:
            layer.cumulative_length.sub_(1)
        return found


def _gpt2(smoke: bool) -> Any:
    small = {"n_embd": 32, "n_layer": 2, "n_head": 2, "vocab_size": 100, "n_positions": 64}
    return library().GPT2LMHeadModel(library().GPT2Config(**small if smoke else {}))


def _images(batch: int, smoke: bool) -> Tensor:
    return torch.randn(batch, 3, *(32 if smoke else 224,) * 2)


def _pixels(module: Any, images: Tensor) -> Tensor:
    return module(pixel_values=images).logits
