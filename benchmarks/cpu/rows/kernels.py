"""Single kernels whose fusion is the compiler's to find, against the best of all peers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from rows import Figures, Goal, Measure, Setting, graphs
from rows.contests import Array, duel, random

TITLE = "f32 kernels: the best peer's time / ours"
GOAL = Goal(1.0, 1.2)
MEAN = False
TWINS = Path(__file__).parents[1] / "twins.py"
KERNELS: dict[str, tuple[str, Callable[..., Path], tuple[str, ...], tuple[int, ...]]] = {
    "unfused attention b1 h8 s1024 d64": ("attention", graphs.attention, ("q", "k", "v"),
                                          (1, 8, 1024, 64)),
    "softmax 4096x1024": ("softmax", graphs.softmax, ("x",), (4096, 1024)),
    "layer norm 4096x1024": ("layer_norm", graphs.layer_norm, ("x",), (4096, 1024)),
    "GELU chain 4096x1024": ("gelu", graphs.gelu, ("x",), (4096, 1024)),
}
"""Row -> the twin's name, what makes the graph, its inputs, their shape."""


def rows(setting: Setting) -> dict[str, Measure]:
    return {name: partial(measure, name) for name in KERNELS}


def measure(name: str, setting: Setting) -> Figures:
    twin, make, names, shape = KERNELS[name]
    inputs: dict[str, Array] = {n: random(*shape, seed=k) for k, n in enumerate(names)}
    path = make(setting.folder / f"{twin}.onnx", *inputs.values())
    torch = f"{TWINS}:{twin}"
    return duel(path, inputs, setting, {
        "onnxruntime": None, "openvino": None, "torch": torch, "inductor": torch})
