"""Attention of few rows on the CPU reads only the part of a cache that its rows see.

Keys and values that no row of a batch sees, but for those of a step, are NaN. So results are
numbers only if the program does not read them: NaN times a weight of 0 is NaN.
"""

from __future__ import annotations

from typing import Any

import pytest

import compiler
from compiler.api import model_of_argument
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from dialects.loop import KernelOp
from targets.cpu.scheduling.few_rows import STEP
from tests.targets.masked_step import Mask, Step, live_keys

torch = pytest.importorskip("torch")
KEYS, WINDOW = 20011, 300
"""More keys than a core's cache holds; how many a window shows."""

MASKS: dict[str, Mask] = {
    "position": lambda at, position, _: at <= position,
    "window": lambda at, position, _: (at <= position) & (at > position - WINDOW),
    "memory": lambda at, position, seen: seen[:, None, None],
    "both": lambda at, position, seen: seen[:, None, None] & (at <= position)}
SHAPES = {"groups": (2, 8, 2, 64, 1), "single": (2, 3, 3, 32, 1), "odd": (2, 6, 2, 20, 1),
          "queries": (2, 4, 4, 16, 3)}
"""Batch, heads, heads of keys, the size of a head, and queries."""


def inputs(shape: str, position: int, kind: Any, keys: int = KEYS) -> tuple[Any, ...]:
    """Queries, keys, values, the position, and which keys each row of the batch sees: all up to the
    position, but for some that pad the second row on the left."""
    torch.manual_seed(position)
    batch, heads, shared, size, queries = SHAPES[shape]
    key, value = (torch.randn(batch, shared, keys, size, dtype=kind) for _ in range(2))
    at, pads = torch.arange(keys), torch.tensor([[0], [1]]) * (position // 2)
    return (torch.randn(batch, heads, queries, size, dtype=kind), key, value,
            torch.tensor(position), (at >= pads) & (at <= position))


def poisoned(given: tuple[Any, ...], mask: Mask) -> tuple[Any, ...]:
    """The same, with NaN in the whole steps of which no row of a batch sees anything."""
    query, key, value, position, seen = given
    keys = key.shape[2]
    live = live_keys(given, mask)
    key, value = key.clone(), value.clone()
    for b, row in enumerate(live):
        shown = row.nonzero()
        begin, end = int(shown.min()) // STEP * STEP, int(shown.max()) // STEP * STEP + STEP
        for cache in (key, value):
            cache[b, :, :begin] = torch.nan
            cache[b, :, end:keys // STEP * STEP] = torch.nan
    return query, key, value, position, seen


def program_of(mask: Mask, given: tuple[Any, ...], shapes: Any = None) -> Any:
    return torch.export.export(Step(mask), given, strict=False, dynamic_shapes=shapes)


def check(run: Any, mask: Mask, given: tuple[Any, ...]) -> None:
    """Compare with the same in f64."""
    wide = [v.double() if v.is_floating_point() else v for v in given]
    want = Step(mask)(*wide)
    [found] = run(*poisoned(given, mask))
    error = 2e-2 if given[0].dtype != torch.float32 else 2e-6
    torch.testing.assert_close(found.double(), want, rtol=0, atol=error)


@pytest.mark.parametrize("mask, shape, kind", [
    ("position", "groups", "float32"), ("both", "groups", "bfloat16"), ("window", "odd", "float32"),
    ("memory", "single", "float32"), ("both", "queries", "float32"),
    ("window", "groups", "bfloat16")])
def test_only_live_keys_are_read(mask: str, shape: str, kind: str) -> None:
    dtype = getattr(torch, kind)
    run = compiler.compile(program_of(MASKS[mask], inputs(shape, 0, dtype)), cache="off")
    for position in (0, 255, 7001, KEYS - 1):
        check(run, MASKS[mask], inputs(shape, position, dtype))


def test_keys_that_only_a_run_counts() -> None:
    n, mask = torch.export.Dim("n", min=2), MASKS["both"]
    shapes: Any = ({}, {2: n}, {2: n}, {}, {1: n})
    run = compiler.compile(
        program_of(mask, inputs("groups", 0, torch.float32), shapes), cache="off")
    for keys, position in ((1024, 300), (7, 3), (2, 0), (KEYS, KEYS - 1)):
        check(run, mask, inputs("groups", position, torch.float32, keys))


def kernels(given: tuple[Any, ...], mask: Mask) -> list[str]:
    state = Compiler(model_of_argument(program_of(mask, given)), CompileOptions(
        cache="off", tuned="off", features="avx2")).lower("host")
    return [op.sym_name.data.rpartition("_")[0] for op in state.module.body.block.ops
            if isinstance(op, KernelOp)]


def test_short_caches_and_whole_ones_are_faster_in_separate_kernels() -> None:
    mask = MASKS["position"]
    assert "online" in kernels(inputs("groups", 0, torch.float32), mask)
    assert "online" not in kernels(inputs("groups", 0, torch.float32, 64), mask)

    def everything(at: Any, position: Any, seen: Any) -> Any:
        return torch.ones(1, 1, 1, KEYS, dtype=torch.bool)

    assert "online" not in kernels(inputs("groups", 0, torch.float32), everything)


def test_a_row_that_sees_nothing_is_zero() -> None:
    """As PyTorch has it."""
    given = list(inputs("groups", 9, torch.float32))
    run = compiler.compile(program_of(MASKS["memory"], tuple(given)), cache="off")
    given[4] = given[4] & torch.tensor([[True], [False]])
    want = Step(MASKS["memory"])(*given)
    [found] = run(*given)
    torch.testing.assert_close(found, want, rtol=0, atol=2e-6)
    assert not found[1].any()
