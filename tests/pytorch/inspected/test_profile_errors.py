"""`compiler.profile` and `compiler.explain` of a PyTorch program that does not run, or cannot be
exported, say what to do."""

from __future__ import annotations

from typing import Any

import pytest

import compiler

torch: Any = pytest.importorskip("torch")

DOORS = [compiler.profile, compiler.explain]


def branching(x: Any) -> Any:
    return x.sin() if x.sum() > 0 else x.cos()


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("door", DOORS)
def test_inputs_of_a_wrong_shape_are_named(door: Any, compiled: bool) -> None:
    net = torch.nn.Linear(7, 3)
    with pytest.raises(compiler.StrataError, match=r"Linear.*\[2, 5\]") as raised:
        door(torch.compile(net, backend="strata") if compiled else net, torch.randn(2, 5))
    assert "runs on these inputs" in str(raised.value)


@pytest.mark.parametrize("door", DOORS)
def test_an_index_out_of_range_is_an_error_with_advice(door: Any) -> None:
    program = torch.compile(lambda x, at: x[at] * 2, backend="strata")
    with pytest.raises(compiler.StrataError, match=r"(?s)\[2, 5\], \[1\].*runs on these inputs"):
        door(program, torch.randn(2, 5), torch.tensor([7]))


@pytest.mark.parametrize("door", DOORS)
def test_a_missing_input_is_an_error_with_advice(door: Any) -> None:
    with pytest.raises(compiler.StrataError, match="runs on these inputs"):
        door(torch.compile(torch.nn.Linear(7, 3), backend="strata"))


def test_a_branch_that_depends_on_data_is_an_error_with_advice() -> None:
    with pytest.raises(compiler.StrataError, match=r"torch\.cond"):
        compiler.profile(branching, torch.randn(5))


@pytest.mark.parametrize("door", DOORS)
def test_a_branch_where_a_whole_graph_is_asked_for(door: Any) -> None:
    program = torch.compile(branching, backend="strata", fullgraph=True)
    with pytest.raises(compiler.StrataError, match=r"torch\.cond"):
        door(program, torch.randn(5))


def test_a_branch_that_depends_on_data_ends_a_graph() -> None:
    [found] = compiler.explain(torch.compile(branching, backend="strata"), torch.randn(5)).breaks
    assert "torch.cond" in found.rewrite


@pytest.mark.parametrize("door", DOORS)
def test_wrong_values_of_options_are_told_before_anything_is_compiled(door: Any) -> None:
    program = torch.compile(branching, backend="strata", options={"strategy": "fastest"})
    with pytest.raises(compiler.StrataError, match="fastest"):
        door(program, torch.randn(5))
