"""Transformers as PyTorch has them, against TorchInductor with frozen weights."""

from __future__ import annotations

import importlib.util
from functools import partial
from pathlib import Path

import numpy as np

from rows import Figures, Goal, Measure, Missing, Setting
from rows.contests import Inputs, duel, random

TITLE = "f32 transformers as torch modules: TorchInductor's time / ours"
GOAL = Goal(0.95, 1.05)
MEAN = False
MODELS = Path(__file__).parents[1] / "transformer_models.py"
VOCABULARY = {"bert_base": 30522, "gpt2_prefill": 50257}
TOKENS = 128


def rows(setting: Setting) -> dict[str, Measure]:
    return {name: partial(measure, name) for name in ("bert_base", "vit_b16", "gpt2_prefill")}


def measure(name: str, setting: Setting) -> Figures:
    for package in ("torch", "transformers"):
        if importlib.util.find_spec(package) is None:
            raise Missing(f"{package} is not installed")
    return duel(f"{MODELS}:{name}", inputs_of(name), setting, {"inductor": None, "torch": None})


def inputs_of(name: str) -> Inputs:
    """In the order in which the module takes them."""
    if name not in VOCABULARY:
        return {"pixel_values": random(1, 3, 224, 224)}
    tokens = np.random.default_rng(0).integers(0, VOCABULARY[name], (1, TOKENS))
    return {"input_ids": tokens, "attention_mask": np.ones((1, TOKENS), np.int64)}
