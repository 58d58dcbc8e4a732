"""Bytes, FLOPs and memory over time, as `explain` counts them: against counts of other code."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest

from compiler.explaining.collect import Explanation
from compiler.explaining.memory import timeline
from compiler.frontend import MemoryModel
from compiler.measuring.work import Watch
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from dialects.host import CopyOp, LaunchOp
from tests.counts import models
from tests.counts.count import Subject
from tests.models.onnx_graph import OnnxGraph

MODELS = [models.cnn, models.control, models.experts]


def watched(model: onnx.ModelProto, **options: str) -> tuple[Explanation, Watch]:
    return seen(model, CompileOptions(features="avx2", threads=1, **options))


def seen(model: onnx.ModelProto, options: CompileOptions) -> tuple[Explanation, Watch]:
    found, watch = Explanation(target=options.target), Watch()
    Compiler(MemoryModel("m.onnx", model.SerializeToString()), options, [found, watch]).lower()
    return found, watch


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("strategy", ["per-op", "whole-graph"])
def test_as_compare_counts(make: Callable[[], Subject], strategy: str) -> None:
    """Two counts of the same program: bytes of launches, their number, and the arena."""
    found, watch = watched(make().model, strategy=strategy)
    work = watch.work(found.sizes)
    ops = [op for f in found.functions for op in f.body.block.ops]
    copied = sum(sum(v.type.byte_size.evaluate({s: found.sizes.get(s, 1) for s in
                                                v.type.byte_size.symbols}) for v in op.operands)
                 for op in ops if isinstance(op, CopyOp))
    assert sum(k.bytes for k in found.found.values()) + copied == work.bytes
    assert sum(isinstance(op, LaunchOp | CopyOp) for op in ops) == work.launches
    own = sum(b["bytes"] for b in found.memory["buffers"] if b["offset"] is None)
    assert found.memory["arena"] <= work.arena <= found.memory["arena"] + own


def test_joined_launches_have_the_work_of_all() -> None:
    """Three tensors, of which two have the same kernel, and one that is computed from another."""
    g = OnnxGraph({})
    sums = {f"y{k}": g.node("Add", x, x) for k, x in enumerate(
        g.input(f"x{k}", np.float32, shape) for k, shape in enumerate(((3, 5), (7, 9), (3, 5))))}
    total = g.node("ReduceSum", sums["y1"], keepdims=0)
    found, watch = seen(g.model({**sums, "t": total}), CompileOptions(
        target="cuda", features="sm_90", cache="off", tuned="off"))
    work = watch.work(found.sizes)
    assert sum(k.bytes for k in found.found.values()) == work.bytes > 2 * 4 * (15 + 63 + 15)
    assert sum(k.launches for k in found.found.values()) == work.launches < 4


def test_a_table_is_not_read_as_a_whole() -> None:
    """Three rows of 64 numbers, of a table of a thousand: read, and written."""
    g = OnnxGraph({})
    y = g.node("Gather", g.random_weight(1000, 64), g.input("x", np.int64, [3]), axis=0)
    found, _ = watched(g.model({"y": y}))
    moved = sum(k.bytes for k in found.found.values())
    assert 2 * 3 * 64 * 4 <= moved < 2 * 3 * 64 * 4 + 200


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("options", [{}, {"without_groups": ("memory",)}], ids=["planned", "own"])
def test_live_bytes_are_those_of_the_buffers(
    make: Callable[[], Subject], options: dict[str, str]
) -> None:
    """Counted byte by byte: at no step more than the arena and what lies outside, and the places
    of buffers are covered at the steps between their first and last use."""
    found, _ = watched(make().model, **options)
    made = timeline(found.functions, found.sizes)
    assert [s.json for s in made.steps] == found.memory["timeline"]
    for function in {s.function for s in made.steps}:
        steps = [s for s in made.steps if s.function == function]
        buffers = [b for b in made.buffers if b.function == function]
        for at, step in enumerate(steps):
            here = [b for b in buffers if b.first <= at <= b.last]
            places = {place for b in here if b.offset is not None
                      for place in range(b.offset, b.offset + b.bytes)}
            assert step.live == len(places) + sum(b.bytes for b in here if b.offset is None)
    peak = found.memory["peak"]
    assert peak.get("live", 0) == max((s.live for s in made.steps), default=0)
    if options and made.buffers:
        assert all(b.offset is None for b in made.buffers) and found.memory["arena"] == 0


def test_the_peak_of_a_chain_without_reuse() -> None:
    """Products of 32 kB: what a product reads and what it writes are live at once."""
    g = OnnxGraph({})
    y = g.input("x", np.float32, [128, 64])
    for _ in range(4):
        y = g.node("Softmax", g.node("MatMul", y, g.random_weight(64, 64)), axis=-1)
    found, _ = watched(g.model({"y": y}), without_groups=("fuse",))
    size = 128 * 64 * 4
    assert found.memory["peak"]["live"] in (size, 2 * size)
    assert {b["bytes"] for b in found.memory["peak"]["buffers"]} == {size}
