"""PyTorch's operators with indices: an index is an error exactly where PyTorch raises."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import compiler
from dialects.strata.assumptions import IndexRangeError

X = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))


class Case(NamedTuple):
    """A function of x and indices of a shape, into `size` elements."""

    function: Callable[..., torch.Tensor]
    size: int
    shape: Sequence[int] = (3,)


CASES = {
    "embedding": Case(lambda x, i: torch.nn.functional.embedding(i, x), 5, (2, 3)),
    "index_select": Case(lambda x, i: torch.index_select(x, 0, i), 5),
    "gather": Case(lambda x, i: torch.gather(x, 1, i), 6, (5, 3)),
    "index": Case(lambda x, i: x[i], 5),
    "index_behind": Case(lambda x, i: x[:, i], 6),
    "index_pairs": Case(lambda x, i: x[i, i], 5),
    "take": Case(torch.take, 30),
    "take_along": Case(lambda x, i: torch.take_along_dim(x, i, 1), 6, (5, 3)),
    "scatter": Case(lambda x, i: torch.scatter(x, 0, i, 1.0), 5, (2, 6)),
    "scatter_add": Case(lambda x, i: torch.scatter_add(x, 0, i, x), 5, (2, 6)),
    "scatter_reduce": Case(lambda x, i: torch.scatter_reduce(x, 0, i, x, "amax"), 5, (2, 6)),
    "index_put": Case(lambda x, i: x.index_put((i,), torch.ones(3, 6)), 5),
    "index_put_add": Case(lambda x, i: x.index_put((i,), torch.ones(3, 6), accumulate=True), 5),
    "index_put_one": Case(lambda x, i: x.index_put((i,), torch.ones(1, 6)), 5, (1,)),
    "index_add": Case(lambda x, i: x.index_add(0, i, torch.ones(3, 6)), 5),
    "index_fill": Case(lambda x, i: x.index_fill(0, i, 2.0), 5),
    "one_hot": Case(lambda x, i: torch.nn.functional.one_hot(i, 7), 7),
}


class Model(torch.nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor]):
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return self.function(x, i)


@pytest.mark.parametrize("name", list(CASES))
def test_an_index_is_an_error_where_pytorch_raises(name: str) -> None:
    case = CASES[name]
    program = torch.export.export(Model(case.function), (X, torch.zeros(case.shape).long()))
    ours = compiler.compile(program, cache="off")
    for value in (0, case.size - 1, case.size, -1, -case.size, -case.size - 1, 2**40):
        indices = torch.zeros(case.shape).long()
        indices.reshape(-1)[-1] = value
        try:
            expected = case.function(X, indices)
        except (IndexError, RuntimeError):
            with pytest.raises(IndexRangeError, match=f"is {value} at node"):
                ours(X.numpy(), indices.numpy())
        else:
            [found] = ours(X.numpy(), indices.numpy())
            np.testing.assert_allclose(found, expected.numpy())


def test_compiled_functions_raise_and_go_on() -> None:
    def function(x: torch.Tensor, i: torch.Tensor) -> Any:
        return torch.nn.functional.embedding(i, x).relu()

    torch.compiler.reset()
    compiled = torch.compile(function, backend="strata", options={"cache": "off"})
    right, wrong = torch.tensor([0, 4]), torch.tensor([0, 5])
    torch.testing.assert_close(compiled(X, right), function(X, right))
    with pytest.raises(IndexError, match="is 5 at node"):
        compiled(X, wrong)
    torch.testing.assert_close(compiled(X, right), function(X, right))


@pytest.mark.parametrize("function", [
    lambda x, i: x.gather(0, i) + 1, lambda x, i: x.scatter(0, i, x) * 2,
    lambda x, i: x.index_put_((i[:, 0],), i) + 1], ids=["gather", "scatter", "index_put"])
def test_empty_floats_are_indices_where_pytorch_takes_them(
    function: Callable[..., torch.Tensor], caplog: pytest.LogCaptureFixture
) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="strata", options={"cache": "off"})
    given = torch.ones(3, 2), torch.zeros(0, 2)
    try:
        expected = function(*given)
    except IndexError as error:
        with pytest.raises(IndexError, match=str(error)):
            compiled(*given)
    else:
        torch.testing.assert_close(compiled(*given), expected)
    assert "its indices are f32, but must be integers" in caplog.text
