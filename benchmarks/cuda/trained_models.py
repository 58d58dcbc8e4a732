"""Models that people train, at published sizes, each with its loss; random weights.

A module takes its inputs and returns the loss. With `smoke` it has few, narrow layers, so that a
script can be tried on the CPU. Dropout is that of each model's usual configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from collection import DECODER, NARROW, Diffusion, built
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Trained:
    """A module that returns its loss, and the inputs of a step."""

    module: nn.Module
    inputs: Sequence[Tensor]
    channels_last: bool = False


Make = Callable[[bool], Trained]


class Loss(nn.Module):
    """The loss that a model of `transformers` returns for inputs of these names."""

    def __init__(self, model: nn.Module, names: Sequence[str]):
        super().__init__()
        self.model, self.names = model, tuple(names)

    def forward(self, *inputs: Tensor) -> Tensor:
        given = dict(zip(self.names, inputs, strict=True))
        return self.model(**given, return_dict=False)[0]


def words(name: str, batch: int, tokens: int, smoke: bool, **sizes: Any) -> Trained:
    """A language model with the loss of every token."""
    small = NARROW if name.startswith(("Bert", "GPT2")) else DECODER
    if name.startswith("GPT2"):
        small = {"n_embd": 64, "n_layer": 2, "n_head": 2, "vocab_size": 128, "n_positions": 64}
    more = {} if name.startswith("Bert") else {"use_cache": False}
    model = built(name, smoke, {**sizes, **more}, small)
    if model.loss_type is None:  # whose warning would break every contestant's graph in two
        model.loss_type = "ForCausalLM"
    ids = torch.randint(3, model.config.vocab_size, (batch, 16 if smoke else tokens))
    return Trained(Loss(model, ("input_ids", "labels")), (ids, ids))


def translation(batch: int, tokens: int, smoke: bool) -> Trained:
    """T5-small, from a sentence to one of equal length."""
    small = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2,
             "vocab_size": 128}
    sizes = {"decoder_start_token_id": 0, "use_cache": False}
    model = built("T5ForConditionalGeneration", smoke, sizes, small)
    ids = torch.randint(3, model.config.vocab_size, (batch, 16 if smoke else tokens))
    return Trained(Loss(model, ("input_ids", "labels")), (ids, ids))


def picture(name: str, batch: int, small: dict[str, Any], smoke: bool, last: bool = False,
            **sizes: Any) -> Trained:
    """A classifier of images of 224 x 224."""
    model = built(name, smoke, {**sizes, "num_labels": 1000}, {**small, "num_labels": 10})
    pixels = torch.randn(batch, 3, *(64 if smoke else 224,) * 2)
    labels = torch.randint(10, (batch,))
    return Trained(Loss(model, ("pixel_values", "labels")), (pixels, labels), last)


class Denoised(nn.Module):
    """The squared error of a diffusion U-Net's estimate of the noise."""

    def __init__(self, width: int, groups: int):
        super().__init__()
        self.model = Diffusion(width, groups)

    def forward(self, x: Tensor, noise: Tensor) -> Tensor:
        return F.mse_loss(self.model(x + noise), noise)


def diffusion(smoke: bool) -> Trained:
    x = torch.randn(2 if smoke else 16, 4, *(16 if smoke else 64,) * 2)
    return Trained(Denoised(*(8, 2) if smoke else (192, 32)), (x, torch.randn_like(x)), True)


class Recommender(nn.Module):
    """DLRM: tables of categories, products of all pairs of rows, and two perceptrons."""

    def __init__(self, tables: int, rows: int, width: int):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(),
                                    nn.Linear(256, width), nn.ReLU())
        pairs = tables * (tables + 1) // 2
        self.top = nn.Sequential(nn.Linear(width + pairs, 1024), nn.ReLU(), nn.Linear(1024, 512),
                                 nn.ReLU(), nn.Linear(512, 1))
        self.register_buffer("pairs", torch.triu_indices(tables + 1, tables + 1, 1))

    def forward(self, x: Tensor, ids: Tensor, wanted: Tensor) -> Tensor:
        dense = self.bottom(x)
        rows = [t(ids[:, k]).to(dense.dtype) for k, t in enumerate(self.tables)]
        stacked = torch.stack([dense, *rows], 1)
        products = torch.bmm(stacked, stacked.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        made = self.top(torch.cat([dense, products], 1)).squeeze(1)
        return F.binary_cross_entropy_with_logits(made.float(), wanted)


def recommender(smoke: bool) -> Trained:
    tables, rows, width, batch = (3, 50, 8, 16) if smoke else (26, 20_000, 64, 2048)
    inputs = (torch.randn(batch, 13), torch.randint(rows, (batch, tables)), torch.rand(batch))
    return Trained(Recommender(tables, rows, width), inputs)


LLAMA = {"vocab_size": 32000, "hidden_size": 1024, "intermediate_size": 2816,
         "num_hidden_layers": 20, "num_attention_heads": 16, "num_key_value_heads": 8}
MIXTRAL = {**LLAMA, "num_hidden_layers": 4, "num_local_experts": 8, "num_experts_per_tok": 2}
VIT = {**NARROW, "image_size": 64, "patch_size": 16}
RESNET = {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1]}
CONVNEXT = {"hidden_sizes": [16, 32, 32, 32], "depths": [1, 1, 1, 1]}

MODELS: dict[str, Make] = {
    "BERT-base b32 s128": partial(words, "BertForMaskedLM", 32, 128),
    "GPT-2 b8 s1024": partial(words, "GPT2LMHeadModel", 8, 1024),
    "Llama-shaped 300M b4 s2048": partial(words, "LlamaForCausalLM", 4, 2048, **LLAMA),
    "ResNet-50 b128 channels last": partial(
        picture, "ResNetForImageClassification", 128, RESNET, last=True),
    "ViT-B b64": partial(picture, "ViTForImageClassification", 64, VIT),
    "T5-small b32 s256": partial(translation, 32, 256),
    "ConvNeXt-T b64 channels last": partial(
        picture, "ConvNextForImageClassification", 64, CONVNEXT, last=True),
    "Diffusion U-Net b16 channels last": diffusion,
    "DLRM b2048": recommender,
    "Mixtral-shaped small b4 s512": partial(words, "MixtralForCausalLM", 4, 512, **MIXTRAL),
}
