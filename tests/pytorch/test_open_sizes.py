"""Sizes that PyTorch leaves open are 0, 1 or more in a call, and give what PyTorch gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import compiler
import compiler.torch.backend
from tests.pytorch.programs import check_outputs, export, run

torch: Any = pytest.importorskip("torch")
SIZES = (3, 1, 0, 5)
ROWS = torch.arange(12.0).reshape(3, 4)


def test_a_program_runs_at_sizes_of_zero_and_one() -> None:
    dynamic = ({0: torch.export.Dim.AUTO}, {0: torch.export.Dim.AUTO})
    program = export(lambda x, y: torch.softmax(x * y, 1).sum(0), [ROWS, ROWS], dynamic)
    executable = compiler.compile(program, cache="off", threads=1)
    for n in SIZES:
        x, y = torch.randn(2, n, 4)
        check_outputs(executable(x, y), program.module()(x, y))


def test_a_program_that_squeezes_refuses_the_size_by_name() -> None:
    program = export(lambda x: x.mean(1, keepdim=True).squeeze(), [ROWS],
                     ({0: torch.export.Dim.AUTO},))
    check_outputs(run(program, [torch.ones(5, 4)]), torch.ones(5))
    with pytest.raises(compiler.SizeError, match=r"squeeze.* must not be 1"):
        run(program, [torch.ones(1, 4)], "cpu")


@pytest.mark.parametrize("marked", [False, True], ids=["dynamic", "unbacked"])
@pytest.mark.parametrize("function", [
    lambda x: x.mean(1, keepdim=True).squeeze(), lambda x: torch.softmax(x, 0) @ ROWS.T,
], ids=["squeeze", "product"])
def test_a_compiled_function(function: Callable[[Any], Any], marked: bool) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="strata", dynamic=None if marked else True)
    for n in (3, 1, 2, 1):
        x = torch.randn(n, 4)
        if marked:
            torch._dynamo.decorators.mark_unbacked(x, 0)
        with torch.no_grad():
            check_outputs([compiled(x)], function(x))


@pytest.mark.parametrize("shape", [lambda b, n: (b, n), lambda b, n: (1, n)], ids=["own", "1"])
def test_sizes_that_tracing_found_to_be_equal_stay_open(
    shape: Callable[[Any, Any], tuple[Any, Any]]
) -> None:
    """Conditions on a size that turned out to be another one fix neither to the example's."""
    def masked(ids: Any, mask: Any) -> Any:
        b, n = ids.shape
        return ids[:, None, :] + mask[:, None, :].expand(b, 2, n)

    b, n = torch.export.Dim("b", min=1, max=64), torch.export.Dim("n", min=1, max=64)
    dynamic = {0: b, 1: n}
    inputs = [torch.randn(5, 6), torch.randn(shape(5, 6))]
    program = export(masked, inputs, (dynamic, dynamic if len(inputs[1]) == 5 else {1: n}))
    executable = compiler.compile(program, cache="off", threads=1)
    for b, n in ((5, 6), (3, 7), (1, 1), (2, 6)):
        x, mask = torch.randn(b, n), torch.randn(shape(b, n))
        check_outputs(executable(x, mask), masked(x, mask))
    fixed = compiler.compile(program, cache="off", threads=1, dims={"b": 3, "n": 2})
    x, mask = torch.randn(3, 2), torch.randn(shape(3, 2))
    check_outputs(fixed(x, mask), masked(x, mask))
