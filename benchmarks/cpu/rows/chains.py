"""Chains that move numbers and hardly compute: the share of the memory's speed.

The copy is NumPy's, of half as many bytes as the model reads and writes, so that it moves as many;
into memory that is there already. So are our outputs, once an earlier result has been dropped; they
are written past the caches, which a copy of these sizes may not do: a share can be more than 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rows import Figures, Goal, Measure, Setting, graphs, milliseconds
from rows.contests import OURS, Array, Race, random

TITLE = "fused chains: share of the measured bandwidth of a copy"
GOAL = Goal(0.8, 0.95)
MEAN = False
PEERS = ("onnxruntime", "openvino")
COPY = "copy"
GRAPHS: dict[str, tuple[Callable[..., Path], int]] = {
    "relu(a x + b) - x/2": (graphs.chain, 1), "silu(x) r": (graphs.silu_gate, 2),
    "softmax": (graphs.softmax, 1), "layer norm": (graphs.layer_norm, 1),
    "layer norm of x + r": (graphs.residual_layer_norm, 2), "RMS norm": (graphs.rms_norm, 1),
}
"""Row -> what makes the graph, and how many inputs it has."""
LENGTHS = {"16 MB": 4096, "64 MB": 16384}
"""Of one input: rows of 1024 f32."""


def rows(setting: Setting) -> dict[str, Measure]:
    return {f"{name}, {size}": partial(measure, name, length)
            for size, length in LENGTHS.items() for name in GRAPHS}


def measure(name: str, length: int, setting: Setting) -> Figures:
    make, count = GRAPHS[name]
    inputs = {n: random(length, graphs.WIDTH, seed=k) for k, n in enumerate("xr"[:count])}
    race = Race(make(setting.folder / "chain.onnx", *inputs.values()), inputs, setting)
    for peer in PEERS:
        race.add_peer(peer)
    moved = (count + 1) * inputs["x"].nbytes
    race.add(COPY, copy_of(moved))
    times = race.times()
    copying = times.pop(COPY)
    texts = {n: f"{milliseconds(ms)} ({copying / ms:.0%})" for n, ms in times.items()}
    ours = texts.pop(OURS)
    return Figures(ours, texts, copying / times[OURS], (
        *race.notes(list(texts)), f"copy {moved / copying / 1e6:.1f} GB/s"))


def copy_of(moved: int) -> Callable[[], Sequence[Any]]:
    """A call that reads and writes so many bytes in all."""
    source: Array = np.ones(moved // 8, np.float32)
    target: Array = np.zeros_like(source)

    def run() -> Sequence[Any]:
        np.copyto(target, source)
        return ()

    return run
