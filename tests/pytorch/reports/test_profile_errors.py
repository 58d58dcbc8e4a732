"""`compiler.profile` of a PyTorch program that cannot be exported says what to do."""

from __future__ import annotations

from typing import Any

import pytest

import compiler

torch: Any = pytest.importorskip("torch")


def test_inputs_of_a_wrong_shape_are_named() -> None:
    with pytest.raises(compiler.StrataError, match=r"Linear.*\[2, 5\]") as raised:
        compiler.profile(torch.nn.Linear(7, 3), torch.randn(2, 5))
    assert "runs on these inputs" in str(raised.value)


def test_a_branch_that_depends_on_data_is_an_error_with_advice() -> None:
    def program(x: Any) -> Any:
        return x.sin() if x.sum() > 0 else x.cos()

    with pytest.raises(compiler.StrataError, match=r"torch\.cond"):
        compiler.profile(program, torch.randn(5))
