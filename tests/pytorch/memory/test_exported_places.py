"""`as_strided` in programs of torch.export: windows, diagonals and parts, at open sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import compiler
from compiler.diagnostics import StrataError
from dialects.strata.assumptions import SizeError

CASES: dict[str, tuple[Callable[[Any], Any], Callable[[int], Any]]] = {
    "rows": (lambda x: x.as_strided((x.shape[0], 2), (x.shape[1], 1)),
             lambda n: torch.randn(n, 5)),
    "diagonal": (lambda x: x.as_strided((x.shape[0],), (x.shape[1] + 1,)),
                 lambda n: torch.randn(n, n + 3)),
    "windows": (lambda x: x.as_strided((x.shape[0] - 2, 3), (1, 1)) * 2, torch.randn),
    "repeated": (lambda x: x.as_strided((4, x.shape[0]), (0, 1)), torch.randn),
    "reversed": (lambda x: x.as_strided((5, x.shape[0]), (1, 5)), lambda n: torch.randn(n, 5)),
    "from an offset": (lambda x: x.as_strided((x.shape[0] - 3,), (1,), 3), torch.randn),
    "of a part": (lambda x: x[2:].as_strided((2, 2), (1, 2)), lambda n: torch.randn(n, 2)),
    "before a part": (lambda x: x[2:].as_strided((2, 2), (1, 2), 4), lambda n: torch.randn(n, 2)),
    "of integers": (lambda x: x.as_strided((x.shape[0] - 1, 2), (1, 1)), torch.arange),
}


class Function(torch.nn.Module):
    def __init__(self, function: Callable[[Any], Any]):
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


def compiled(function: Callable[[Any], Any], x: Any, is_open: bool = False) -> Any:
    sizes = ({k: torch.export.Dim.DYNAMIC for k in range(x.dim()) if x.shape[k] >= 7},)
    program = torch.export.export(Function(function), (x,),
                                  dynamic_shapes=sizes if is_open else None)
    return compiler.compile(program, target="cpu", cache="off")


@pytest.mark.parametrize("is_open", [False, True], ids=["fixed", "open"])
@pytest.mark.parametrize("name", CASES)
def test_elements_by_their_places(name: str, is_open: bool) -> None:
    function, make = CASES[name]
    exe = compiled(function, make(7), is_open)
    for n in (7, 12, 31) if is_open else (7,):
        x = make(n)
        np.testing.assert_array_equal(exe(x.numpy())[0], function(x).numpy())


def test_operands_in_another_order() -> None:
    """The memory of a transposed operand is that with which the program was traced."""
    x = torch.randn(5, 7).t()
    found = compiled(lambda x: x.as_strided((3, 4), (1, 3)), x)(x)
    torch.testing.assert_close(found[0], x.as_strided((3, 4), (1, 3)), rtol=0, atol=0)


def test_places_that_are_not_known_are_refused() -> None:
    """An operand with gaps, and places beyond the operand."""
    with pytest.raises(StrataError, match=r"with gaps, in strides of 2"):
        compiled(lambda x: x[::2].as_strided((3,), (1,)), torch.randn(8))
    with pytest.raises(StrataError, match=r"with gaps, in strides of 1, 1"):
        compiled(lambda x: x.as_strided((4, 3), (1, 1)).as_strided((3,), (1,)), torch.randn(8))
    exe = compiled(lambda x: x.as_strided((6,), (1,)), torch.randn(8), is_open=True)
    with pytest.raises(SizeError, match="it needs 5 <= "):
        exe(np.zeros(5, np.float32))
