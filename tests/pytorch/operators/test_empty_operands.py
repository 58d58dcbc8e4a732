"""Operators on tensors without elements, many in one program, against eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch

from tests.pytorch.programs import check_outputs, export, flat, run
from tests.pytorch.test_operators import SAMPLES, Call

Tensors = list[torch.Tensor]
GROUPS = 16
ANYTHING = ("empty", "rand", "normal", "bernoulli", "dropout", "exponential", "multinomial")
"""Parts of names of operators whose results are not defined by their operands."""


CRASHING = ("weight_norm", "backward", "flash_attention", "strata.", "prims.")
"""Of these eager mode divides by 0, reads foreign memory or checks no shapes, or there is none; or
the exporter refuses them beside others."""


def _all_first(tensors: Tensors) -> Tensors:
    return [t[:0] if t.dim() and t.shape[0] == tensors[0].shape[0] else t for t in tensors]


def _all_last(tensors: Tensors) -> Tensors:
    size = tensors[0].shape[-1]
    return [t[..., :0] if t.dim() and t.shape[-1] == size else t for t in tensors]


CUTS: Sequence[Callable[[Tensors], Tensors]] = (
    _all_first, _all_last, lambda tensors: [tensors[0][:0], *tensors[1:]])


def emptied(call: Call) -> Iterator[Tensors]:
    """Operands without elements that eager mode takes."""
    if not call.inputs or not call.inputs[0].dim():
        return
    for cut in CUTS:
        given = cut(call.inputs)
        try:
            made = call(*[t.clone() for t in given])
        except (RuntimeError, IndexError, ValueError, NotImplementedError):
            continue
        if flat(made):
            yield given


class Calls(torch.nn.Module):
    """Several operators, each with its own operands, one after the other."""

    def __init__(self, cases: Sequence[tuple[Call, Tensors]]):
        super().__init__()
        self.calls = [call for call, _ in cases]
        self.counts = [len(given) for _, given in cases]

    def forward(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        made: Tensors = []
        for call, given in zip(self.calls, _parted(inputs, self.counts), strict=True):
            made += [t.clone() for t in flat(call(*given))]
        return made


def _parted(inputs: Sequence[torch.Tensor], counts: Sequence[int]) -> list[Tensors]:
    parts, first = list[Tensors](), 0
    for count in counts:
        parts.append(list(inputs[first:first + count]))
        first += count
    return parts


def check(cases: Sequence[tuple[Call, Tensors]]) -> None:
    inputs = [t.clone() for _, given in cases for t in given]
    module = Calls(cases)
    check_outputs(run(export(module, inputs), inputs), module(*inputs))


@pytest.mark.parametrize("group", range(GROUPS))
def test_operators_of_nothing(group: int) -> None:
    """The first sample of each operator; a group that fails is taken apart."""
    names = [name for name in SAMPLES if not any(part in name for part in (*ANYTHING, *CRASHING))]
    calls = {name: Call(name, SAMPLES[name][0]) for name in names[group::GROUPS]}
    cases = [(name, call, given) for name, call in calls.items() for given in emptied(call)]
    assert cases
    try:
        check([(call, given) for _, call, given in cases])
    except Exception:
        failed = [(name, [tuple(t.shape) for t in given], why) for name, call, given in cases
                  if (why := _fault(call, given))]
        assert not failed, failed
        raise


def _fault(call: Call, given: Tensors) -> str | None:
    """What is wrong about an operator on these operands."""
    try:
        check([(call, given)])
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    return None


def pooled(size: Any, name: str) -> Callable[[torch.Tensor], Any]:
    return lambda x: getattr(torch.nn.functional, name)(x, size)


@pytest.mark.parametrize("name", ["adaptive_avg_pool3d", "adaptive_max_pool3d"])
@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_windows_of_several_sizes(name: str, target: str) -> None:
    """The last dim is divided as a view, whose every index was 0: the empty axis was lost."""
    x, function = torch.rand(0, 2, 8, 8, 8), pooled((5, 7, 4), name)
    check_outputs(run(export(function, [x]), [x], target), function(x))


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_truth_of_nothing(target: str) -> None:
    """None of no elements is true, and all are, whatever the sizes of other calls."""
    def call(x: torch.Tensor) -> list[torch.Tensor]:
        return [x.any(), x.all(), x.any(0), x.all(1), x.isnan().any((0, 1)), x.sum(
            0, dtype=torch.bool), x.prod(0, dtype=torch.bool), x.bool().sum()]

    rows, columns = torch.export.Dim("rows", min=0), torch.export.Dim("columns", min=0)
    program = export(call, [torch.rand(5, 4)], ({0: rows, 1: columns},))
    for x in (torch.rand(0, 4), torch.zeros(3, 0), torch.zeros(2, 3), torch.rand(1, 1)):
        check_outputs(run(program, [x], target), call(x))
        check_outputs(run(export(call, [x]), [x], target), call(x))
