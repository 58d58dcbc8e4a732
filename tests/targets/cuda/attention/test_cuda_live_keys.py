"""Attention on CUDA reads only the part of a cache that its rows see.

Keys and values outside of that part, in whole steps of the loop, are NaN. So results are numbers
only if the program does not read them: NaN times a weight of 0 is NaN.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from compiler.api import model_of_argument
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from dialects.block import ForOp, KernelOp
from dialects.host.interpret import interpret_host
from targets.cuda.build.interpreter import InterpretedExecutable
from tests.targets.masked_step import Mask, Step, live_keys

torch = pytest.importorskip("torch")
STEP, WINDOW, BATCH = 256, 300, 2
"""A multiple of the columns of each step; how many keys a window holds; rows of a batch."""

MASKS: dict[str, Mask] = {
    "position": lambda at, position, _: at <= position,
    "window": lambda at, position, _: (at <= position) & (at > position - WINDOW),
    "difference": lambda at, position, _: position - at >= 0,
    "memory": lambda at, position, seen: seen[:, None, None],
    "both": lambda at, position, seen: seen[:, None, None] & (at <= position),
}
SHAPES = {"split": (2, 8, 2, 64), "parts of one row": (2, 3, 3, 32), "whole": (2, 140, 70, 16),
          "whole single rows": (2, 150, 150, 16)}
"""Batch, heads, heads of keys, and the size of a head; many heads keep a GPU busy."""


def inputs(shape: str, keys: int, position: int) -> tuple[Any, ...]:
    """Queries, keys, values, the position, and which keys each row of the batch sees."""
    torch.manual_seed(position)
    batch, heads, shared, size = SHAPES[shape]
    key, value = (torch.randn(batch, shared, keys, size, dtype=torch.float16) for _ in range(2))
    at = torch.arange(keys)
    pads = torch.tensor([[1], [0]]) * (position // 2)
    return (torch.randn(batch, heads, 1, size, dtype=torch.float16), key, value,
            torch.tensor(position), (at >= pads) & (at <= position))


def poisoned(given: tuple[Any, ...], mask: Mask) -> tuple[Any, ...]:
    """The same, with NaN in the steps of which no row of a batch sees anything."""
    query, key, value, position, seen = given
    live = live_keys(given, mask)
    steps = live.reshape(len(query), -1, STEP).any(2)
    first = [int(s.nonzero().min()) for s in steps]
    last = [int(s.nonzero().max()) for s in steps]
    key, value = key.clone(), value.clone()
    for b, (begin, end) in enumerate(zip(first, last, strict=True)):
        for cache in (key, value):
            cache[b, :, :begin * STEP] = torch.nan
            cache[b, :, (end + 1) * STEP:] = torch.nan
    return query, key, value, position, seen


def lowered(mask: Mask, given: tuple[Any, ...], shapes: Any = None) -> Any:
    program = torch.export.export(Step(mask), given, strict=False, dynamic_shapes=shapes)
    return Compiler(model_of_argument(program), CompileOptions(
        target="cuda", features="sm_90", cache="off", tuned="off")).lower("block")


def check(found: Any, mask: Mask, given: tuple[Any, ...]) -> None:
    floats = [v.float() if v.is_floating_point() else v for v in given]
    want = Step(mask)(*floats).numpy()
    np.testing.assert_allclose(found.astype("f4"), want, rtol=0, atol=4e-3)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mask", MASKS)
def test_only_live_keys_are_read(mask: str, shape: str) -> None:
    given = inputs(shape, 1024, 0)
    state = lowered(MASKS[mask], given)
    kernels = [op for op in state.module.body.block.ops if isinstance(op, KernelOp)]
    [attention] = [k for k in kernels if k.sym_name.data.startswith("online")]
    assert any(isinstance(op, ForOp) and op.indices for op in attention.walk())
    for position in (0, 255, 256, 700, 1023):
        given = inputs(shape, 1024, position)
        arrays = [v.numpy() for v in poisoned(given, MASKS[mask])]
        [found] = interpret_host(state.module, arrays, state.context.weights)
        check(found, MASKS[mask], given)


def test_keys_that_only_a_run_counts() -> None:
    n, mask = torch.export.Dim("n", min=2), MASKS["both"]
    state = lowered(mask, inputs("split", 1024, 0), ({}, {2: n}, {2: n}, {}, {1: n}))
    for keys, position in ((1024, 300), (512, 3), (256, 255)):
        given = inputs("split", keys, position)
        [found] = interpret_host(state.module, [v.numpy() for v in poisoned(given, mask)],
                                 state.context.weights)
        check(found, mask, given)


def test_several_queries_see_what_any_of_them_sees() -> None:
    def mask(at: Any, position: Any, _: Any) -> Any:
        return at <= position + torch.arange(3)[:, None]

    def given(position: int) -> tuple[Any, ...]:
        _, *others = inputs("parts of one row", 1024, position)
        return torch.randn(2, 3, 3, 32, dtype=torch.float16), *others

    state = lowered(mask, given(0))
    for position in (0, 254, 255, 1021):
        query, key, value, *others = given(position)
        for cache in (key, value):
            cache[:, :, (position + 3 + STEP - 1) // STEP * STEP:] = torch.nan
        arrays = [v.numpy() for v in (query, key, value, *others)]
        [found] = interpret_host(state.module, arrays, state.context.weights)
        check(found, mask, (query, key.nan_to_num(), value.nan_to_num(), *others))


@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
@pytest.mark.parametrize("mask, shape", [
    ("window", "split"), ("both", "split"), ("position", "parts of one row")])
def test_text_in_tritons_interpreter(mask: str, shape: str) -> None:
    given = inputs(shape, 1024, 0)
    state = lowered(MASKS[mask], given)
    executable = InterpretedExecutable(state.module, state.context.weights)
    for position in (0, 700):
        given = inputs(shape, 1024, position)
        [found] = executable.run([v.numpy() for v in poisoned(given, MASKS[mask])])
        check(found, MASKS[mask], given)
