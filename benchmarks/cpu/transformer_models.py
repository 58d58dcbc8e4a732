"""Transformers with random weights, from the configurations of `transformers`, nothing downloaded:
`transformer_models.py:NAME` is a model of the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers

Tensor = torch.Tensor
Made = tuple[torch.nn.Module, tuple[Tensor, ...]]
TOKENS = 128


class Call(torch.nn.Module):
    """A module that is called by position, and the tensors of what it returns."""

    def __init__(self, module: torch.nn.Module, call: Callable[..., Any]):
        super().__init__()
        self.module, self.call = module, call

    def forward(self, *inputs: Tensor) -> Any:
        return self.call(self.module, *inputs)


def bert_base() -> Made:
    def call(module: Any, ids: Tensor, mask: Tensor) -> Any:
        found = module(input_ids=ids, attention_mask=mask)
        return found.last_hidden_state, found.pooler_output

    torch.manual_seed(0)
    return Call(transformers.BertModel(transformers.BertConfig()), call), _text()


def vit_b16() -> Made:
    torch.manual_seed(0)
    config = transformers.ViTConfig(num_labels=1000)
    return (Call(transformers.ViTForImageClassification(config), lambda m, x: m(x).logits),
            (torch.randn(1, 3, 224, 224),))


def gpt2_prefill() -> Made:
    def call(module: Any, ids: Tensor, mask: Tensor) -> Any:
        return module(input_ids=ids, attention_mask=mask, use_cache=False).logits

    torch.manual_seed(0)
    return Call(transformers.GPT2LMHeadModel(transformers.GPT2Config()), call), _text()


def _text() -> tuple[Tensor, ...]:
    return torch.randint(0, 30522, (1, TOKENS)), torch.ones(1, TOKENS, dtype=torch.int64)
