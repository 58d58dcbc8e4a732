"""Quantized models: those of the zoo, and single products in every form."""

from __future__ import annotations

from functools import partial

from rows import Figures, Goal, Measure, Setting
from rows.contests import duel
from rows.models import model_rows
from rows.quantized_graphs import GRAPHS

TITLE = "int8: onnxruntime's time / ours"
GOAL = Goal(1.2, 2.0)
MEAN = True
MODELS = ("moonshine_tiny_encoder", "moonshine_tiny_decoder", "smart_turn_v3", "isnet_small_int8")
PEERS = ("onnxruntime",)


def rows(setting: Setting) -> dict[str, Measure]:
    single: dict[str, Measure] = {name: partial(measure, name) for name in GRAPHS}
    return single | model_rows(MODELS, setting, PEERS)


def measure(name: str, setting: Setting) -> Figures:
    path, inputs = GRAPHS[name](setting.folder / "model.onnx")
    return duel(path, inputs, setting, dict.fromkeys(PEERS))
