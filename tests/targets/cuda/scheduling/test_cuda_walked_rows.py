"""Long rows that are walked once: online sums with a running maximum for each word of a step."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser

from dialects.block import ForOp, KernelOp, ReduceOp
from dialects.block.programs import tile_type
from dialects.context import make_context
from dialects.host.interpret import interpret_host
from dialects.strata.schedule import parse_schedule
from dialects.strata.weights import WeightStore
from passes.loop_to_block.legality import faults
from targets.base import TargetOptions
from targets.cuda import TARGET
from targets.cuda.build.interpreter import Interpreter
from tests.lowering import STEPS, lower

WHOLE = [s for s in STEPS if s != "loop-split-reductions"]


def powers(rows: int, columns: int | str, element: str = "f32") -> str:
    """Of each row the maximum, the sum of the powers below it, and the sum of all elements."""
    shape, wide = f"{element}[{rows}, {columns}]", f"f32[{rows}, {columns}]"
    cast = f"%w = graph.cast %x {{to = f32}} : {wide}" if element != "f32" else ""
    x = "%w" if cast else "%x"
    return f"""
strata.func @main(%x: {shape}) -> (f32[{rows}, 1], f32[{rows}], f32[{rows}])
    inputs ["x"] outputs ["m", "y", "s"] {{
  {cast}
  %m = graph.reduce_max {x} {{axes = [1], keepdims = true}} : f32[{rows}, 1]
  %d = graph.sub {x}, %m : {wide}
  %e = graph.exp %d : {wide}
  %y = graph.reduce_sum %e {{axes = [1], keepdims = false}} : f32[{rows}]
  %s = graph.reduce_sum {x} {{axes = [1], keepdims = false}} : f32[{rows}]
  strata.return %m, %y, %s
}}"""


def lowered(text: str, steps: list[str], *, interpret: bool = False) -> ModuleOp:
    module = Parser(make_context(), text).parse_module()
    options = TargetOptions(features="sm_90", interpret=interpret)
    for _ in lower(module, TARGET.bind(options).context(), steps):
        pass
    return module


def kernels(text: str) -> list[KernelOp]:
    return [op for op in lowered(text, WHOLE).walk() if isinstance(op, KernelOp)]


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    yield Interpreter()


def hard_rows(columns: int) -> np.ndarray:
    """Rows with a late maximum, that begin with -inf, are nothing else, hold an infinity or a NaN,
    or only the lowest number."""
    x = np.random.default_rng(columns).standard_normal((8, columns)).astype(np.float32) * 20
    x[1, -1] = 300
    x[2, : columns - 3], x[3], x[4, 7], x[5, -2] = -np.inf, -np.inf, np.inf, np.nan
    x[6] = np.finfo(np.float32).min
    return x


def check(found: list[np.ndarray], x: np.ndarray) -> None:
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        exact = np.exp(wide - wide.max(1, keepdims=True)).sum(1)
        total = wide.sum(1)
    exact[3] = 0  # of a row of -inf, whose maximum starts at the lowest number
    total[6] = -np.inf  # beyond the range of f32
    assert np.isnan(exact).tolist() == [False] * 4 + [True, True] + [False] * 2
    np.testing.assert_array_equal(found[0][[0, 1, 2, 4, 5, 6, 7], 0],
                                  x.max(1)[[0, 1, 2, 4, 5, 6, 7]])
    np.testing.assert_allclose(found[1], exact, rtol=3e-6)
    np.testing.assert_allclose(found[2], total, rtol=1e-4, atol=1e-1)


COLUMNS = [16388, 17408, 20000, 3 * 8192]
"""A word more than a row that is held, whole steps of few rows, and with a last part of one."""


@pytest.mark.parametrize("columns", COLUMNS)
def test_groups_of_neighbours_mean_what_one_maximum_does(columns: int) -> None:
    x, module = hard_rows(columns), lowered(powers(8, columns), WHOLE)
    assert "neighbours = 4" in str(module)
    with np.errstate(all="ignore"):
        check(interpret_host(module, [x], WeightStore()), x)


@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
@pytest.mark.parametrize("columns", COLUMNS[:2])
def test_groups_of_neighbours_in_triton(interpreter: Interpreter, columns: int) -> None:
    x, module = hard_rows(columns), lowered(powers(8, columns), WHOLE, interpret=True)
    with np.errstate(all="ignore"):
        check(interpret_host(module, [x], WeightStore(), interpreter.run), x)


@pytest.mark.parametrize(("rows", "element", "word", "step", "warps"), [
    (4096, "bf16", 8, 2048, 4), (512, "bf16", 8, 8192, 16), (4096, "f32", 4, 1024, 4)])
def test_no_step_reduces_between_threads(
    rows: int, element: str, word: int, step: int, warps: int
) -> None:
    """Each reduction in the loop is one of the neighbours in a word."""
    [kernel] = kernels(powers(rows, 32000, element))
    assert f"loop i1 tile {step}" in str(kernel.schedule)
    assert f"warps = {warps}" in str(kernel.schedule)
    loops = [op for op in kernel.walk() if isinstance(op, ForOp)]
    reduced = [tile_type(op.operands[0]).shape for loop in loops for op in loop.walk()
               if isinstance(op, ReduceOp)]
    assert len(loops) == 1 and set(map(tuple, reduced)) == {(step // word, word)}


@pytest.mark.parametrize("columns", [16385, 20001, "n"])
def test_rows_between_words_and_open_rows_have_one_maximum(columns: int | str) -> None:
    assert "neighbours" not in "".join(str(k.schedule) for k in kernels(powers(64, columns)))


@pytest.mark.parametrize(("schedule", "fits"), [
    ("grid i0 tile 1, loop i1 tile 512 | online = 1, neighbours = 8", True),
    ("grid i0 tile 1, loop i1 tile 512 | neighbours = 8", False),
    ("grid i0 tile 1, loop i1 tile 8 | online = 1, neighbours = 8", False),
    ("grid i0 tile 1, loop i1 tile 512 | online = 1, neighbours = 3", False),
    ("grid i0 tile 1, whole i1 tile 32768 | online = 1, neighbours = 8", False)])
def test_schedules_of_groups_that_do_not_fit_are_refused(schedule: str, fits: bool) -> None:
    from dialects.loop import KernelOp as LoopKernelOp

    steps = WHOLE[:WHOLE.index("loop-to-block")]
    [kernel] = [op for op in lowered(powers(64, 20000), steps).walk()
                if isinstance(op, LoopKernelOp)]
    told = " ".join(f.text for f in faults(kernel, parse_schedule(f"<{schedule}>")))
    assert (not told) if fits else ("neighbours" in told)
