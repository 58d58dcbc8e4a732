"""Products of bf16 operands, against oneDNN as PyTorch calls it."""

from __future__ import annotations

from functools import partial

import ml_dtypes
from onnx import TensorProto

from rows import Figures, Goal, Measure, Setting
from rows.contests import Array, duel, random
from rows.gemm import SHAPES, TWINS, name_of
from rows.graphs import node, save
from targets.cpu.machine import machine_of

TITLE = "bf16 products (AMX where the processor has it): oneDNN's time, through torch / ours"
GOAL = Goal(0.9, 1.1)
MEAN = False


def rows(setting: Setting) -> dict[str, Measure]:
    return {name_of(shape): partial(measure, shape) for shape in SHAPES}


def measure(shape: tuple[int, int, int], setting: Setting) -> Figures:
    m, n, k = shape
    x, w = _bf16(random(m, k)), _bf16(random(k, n, seed=1))
    path = save(setting.folder / "gemm.onnx", [node("MatMul", "x w", "y")], {"x": x}, ["y"],
                {"w": w}, {"y": TensorProto.BFLOAT16})
    found = duel(path, {"x": x}, setting, {"torch": f"{TWINS}:gemm_bf16_{name_of(shape)}"},
                 precision="bf16")
    features = [f for f in ("amx-bf16", "avx512bf16") if f in machine_of().features]
    note = f"the processor has {' and '.join(features) or 'no instructions for bf16'}"
    return Figures(found.ours, found.peers, found.ratio, (*found.notes, note))


def _bf16(values: Array) -> Array:
    return values.astype(ml_dtypes.bfloat16)
