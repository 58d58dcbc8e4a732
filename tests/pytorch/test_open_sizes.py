"""Sizes that PyTorch leaves open are 0, 1 or more in a call, and give what PyTorch gives."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
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


def _equal(x: Any, y: Any) -> Any:
    torch._check(x.shape[0] == y.shape[0])
    return torch.softmax(x * y, 0)


def _linear(x: Any, y: Any) -> Any:
    torch._check(y.shape[0] == 2 * x.shape[0] + 1)
    return torch.cat([x, x, x.new_ones(1, 4)]) * y


def _difference(x: Any, y: Any) -> Any:
    torch._check(y.shape[0] >= x.shape[0])
    return y.narrow(0, 0, x.shape[0]) + x


def _pairs(x: Any) -> Any:
    torch._check(x.shape[0] % 2 == 0)
    return x.view(x.shape[0] // 2, 2, 4).sum(1)


def _bounded(x: Any) -> Any:
    torch._check(x.shape[0] <= 64)
    return torch.arange(x.shape[0]) * 2, x.new_zeros(x.shape[0] + 1), x.shape[0] * 3


def _attended(x: Any) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(ROWS[None], x[None], x[None])


def _drawn(x: Any) -> Any:
    return x + 0 * torch.rand(x.shape[0], 4), 0 * torch.randint(5, (x.shape[0],))


@pytest.mark.parametrize(("function", "rows"), [
    (_equal, [(1, 0), (1, 0)]), (_linear, [(1, 0), (2, 1)]), (_difference, [(1, 0), (1, 3)]),
    (lambda x, y: torch.cat([x, y]).flip(0), [(1, 0), (1, 2)]), (_pairs, [(2, 0)]),
    (lambda x, y: x[:, None] + y[None], [(1, 0), (1, 1)]), (_bounded, [(1, 0)]),
    (_attended, [(1, 1)]), (_drawn, [(1, 0)]), (lambda x: torch.arange(x.shape[0]), [(1, 0)]),
], ids=["equal", "linear", "narrow", "cat", "pairs", "outer", "bounded", "attention", "drawn",
        "integer"])
def test_unbacked_sizes_compile_once(
    function: Callable[..., Any], rows: Sequence[tuple[int, int]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One compilation holds for all sizes, 0 and 1 included, and no node runs eagerly."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    caplog.set_level(logging.WARNING, "strata")
    compiled = torch.compile(function, backend="strata")
    for n in (*SIZES, 2):
        inputs = [torch.randn(scale * n + more, 4) for scale, more in rows]
        for x in inputs:
            torch._dynamo.decorators.mark_unbacked(x, 0)
        check_outputs(_listed(compiled(*inputs)), _listed(function(*inputs)))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert not torch._dynamo.utils.counters["strata"]["recompilations"]
    assert not caplog.messages


def _listed(results: Any) -> list[Any]:
    return [torch.as_tensor(r) for r in (results if isinstance(results, tuple) else (results,))]


@pytest.mark.parametrize(("function", "good", "bad"), [
    (_equal, (3, 3), (3, 4)), (_linear, (2, 5), (2, 4)), (_difference, (2, 3), (4, 3)),
    (_pairs, (4,), (5,)), (_bounded, (64,), (65,))])
def test_checks_of_unbacked_sizes_fail(
    function: Callable[..., Any], good: Sequence[int], bad: Sequence[int]
) -> None:
    """Dynamo's guards tell of some, and the program of others."""
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="strata")
    for sizes in (good, bad):
        inputs = [torch.randn(n, 4) for n in sizes]
        for x in inputs:
            torch._dynamo.decorators.mark_unbacked(x, 0)
        if sizes is bad:
            with pytest.raises((AssertionError, RuntimeError),
                               match=r"Guard failed|assertion failed"):
                compiled(*inputs)
        else:
            compiled(*inputs)


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


@pytest.mark.parametrize("function", [
    lambda x: x.kthvalue(2, 1).values, lambda x: x.kthvalue(2, 0, keepdim=True).values.squeeze(0),
    lambda x: x[:, 1:2].exp().squeeze(1), lambda x: x[None, :, 3:4].squeeze((0, 2)),
], ids=["picked", "kept", "cut", "several"])
def test_dims_that_are_1_although_their_size_is_an_expression_are_removed(
    function: Callable[[Any], Any], caplog: pytest.LogCaptureFixture
) -> None:
    """A part of an open dim is as long as it is cut, where the dim is long enough."""
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="strata", fullgraph=True, dynamic=True)
    for rows, columns in ((7, 11), (5, 6), (13, 8)):
        x = torch.randn(rows, columns)
        with torch.no_grad():
            check_outputs([compiled(x)], function(x))
    assert not [r.getMessage() for r in caplog.records if r.name.startswith("strata")]
