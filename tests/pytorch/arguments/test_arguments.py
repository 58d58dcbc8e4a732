"""Every argument of every ATen operator that is imported, at another value than in a sample.

PyTorch's schemas list the arguments, so an importer that ignores one fails here, and so does a new
importer with an argument that cannot be varied from its samples. The imported graphs are
interpreted; `tests/pipeline` runs their operations on every target.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch

from compiler.diagnostics import StrataError
from compiler.frontend.torch.captured_graph import CapturedGraph
from compiler.frontend.torch.importer import import_captured
from compiler.frontend.torch.ops import importers
from compiler.io.arrays import to_numpy
from targets.reference.interpret import interpret
from tests.pytorch.arguments.variations import Call, find, other_values
from tests.pytorch.op_samples import UNSAMPLED
from tests.pytorch.operators.all_samples import SAMPLES
from tests.pytorch.operators.special_samples import SPECIAL_SAMPLES
from tests.pytorch.programs import check_outputs, flat
from tests.pytorch.training.gradients.gradient_samples import GRADIENT_SAMPLES

MOST = 2
"""How many other values of an argument are tried for each sample."""

REFUSED: dict[str, str] = {
    "_unsafe_index_put.accumulate": "where a mask is true",
    "index_put.accumulate": "where a mask is true",
    "batch_norm.training": "in training mode",
    "dropout.train": "in training mode",
    "_native_batch_norm_legit_functional.training": "in training mode",
    "scaled_dot_product_attention.dropout_p": "in training mode",
    "histc.max": "its range depends on the elements",
    "unfold.size": "must be from 1 up",
    "unfold_copy.size": "must be from 1 up",
    "view.dtype": "do not have the width of",
    "view_copy.dtype": "do not have the width of",
}
"""Arguments with values that are refused, and the reason that is given."""

ONE_VALUE: dict[str, str] = {
    "_grouped_mm.out_dtype": "must be that of the operands",
    "_log_softmax.half_to_float": "is for GPUs",
    "_softmax.half_to_float": "is for GPUs",
    "_scaled_dot_product_flash_attention_for_cpu.dropout_p": "must be 0",
    "_native_batch_norm_legit.training": "without statistics, only training mode is possible",
    "hash_tensor.mode": "PyTorch has one mode",
    "_weight_norm.dim": "must fit the shape of g",
    "_weight_norm_interface.dim": "must fit the shape of g",
    "native_group_norm.N": "repeats a size of x",
    "native_group_norm.C": "repeats a size of x",
    "native_group_norm.HxW": "repeats a size of x",
    "_scaled_mm.out_dtype": "PyTorch computes in f32 for f64, too",
    "topk.sorted": "the order is PyTorch's choice without it",
}
"""Arguments that have one value only, or others for which results are not determined."""

NOT_RESULTS = ("device", "layout", "pin_memory", "memory_format", "non_blocking", "copy",
               "generator")
"""Arguments that only say how a result is stored."""


def varied(name: str) -> dict[str, int]:
    """The arguments of an operator that are not tensors, each with its place."""
    return {a.name: k for k, a in enumerate(find(name)._schema.arguments)
            if "Tensor" not in str(a.real_type) and a.name not in NOT_RESULTS
            and f"{name.split('.')[1]}.{a.name}" not in ONE_VALUE}


def calls(name: str, place: int) -> Iterator[Call]:
    """Calls with an argument at other values, as far as PyTorch accepts them."""
    argument = find(name)._schema.arguments[place]
    for given in SAMPLES[name]:
        call = Call.of(name, given)
        others = (call.at(place, v) for v in other_values(argument, call.arguments[place]))
        yield from islice(filter(_is_valid, others), MOST)


def _is_valid(call: Call) -> bool:
    try:
        call.eager()
    except (RuntimeError, IndexError, TypeError, NotImplementedError, ValueError):
        return False
    return True


def imported(call: Call) -> list[torch.Tensor]:
    """The results of the imported call. Raises StrataError if it is refused."""
    module, inputs = call.graph()
    outputs = list(module.graph.nodes)[-1].args[0]
    captured = CapturedGraph(module, {}, list(range(len(outputs))))
    model = import_captured(captured, "call", "call")
    found = interpret(model.module, model.weights, [to_numpy(v) for v in inputs])
    return [_tensor(v, n.meta["val"].dtype) for v, n in zip(found, outputs, strict=True)]


def _tensor(array: Any, dtype: torch.dtype) -> torch.Tensor:
    """An array as a tensor, also of a dtype that NumPy does not have."""
    bits = array.view(f"u{array.itemsize}") if array.dtype.kind == "V" else array
    return torch.from_numpy(np.array(bits)).view(dtype)


def check(call: Call) -> None:
    want = flat(call.eager())
    check_outputs(got := imported(call), want[:len(got)])


SAMPLED_ALONE = {name for name in SPECIAL_SAMPLES if name.startswith("prims.")} | {
    "aten.polygamma.default"}
"""Operators of PrimTorch, which fail inside PyTorch for values that no caller gives, and what eager
mode computes less exactly than Strata."""
OPERATORS = sorted((set(importers()) & set(SAMPLES)) - SAMPLED_ALONE)


@pytest.mark.parametrize("name", OPERATORS)
def test_other_values(name: str) -> None:
    for argument, place in varied(name).items():
        refusal = REFUSED.get(f"{name.split('.')[1]}.{argument}")
        for call in calls(name, place):
            try:
                check(call)
            except StrataError as error:
                assert refusal is not None and refusal in str(error), f"{call.text}: {error}"
            except Exception as error:
                raise AssertionError(f"{call.text}: {error}") from error


@cache
def _sampled(name: str, place: int) -> set[str]:
    """The values of an argument in the samples of an operator."""
    return {str(Call.of(name, given).arguments[place]) for given in SAMPLES[name]}


@pytest.mark.parametrize("name", OPERATORS)
def test_every_argument_has_two_values(name: str) -> None:
    alone = [argument for argument, place in varied(name).items()
             if len(_sampled(name, place)) == 1 and next(calls(name, place), None) is None]
    assert not alone, f"add samples of {name} with other values of {', '.join(alone)}"


def test_every_importer_is_varied() -> None:
    """But for gradients: PyTorch crashes where their arguments are not those of a forward call."""
    known = {name for name in importers() if not name.startswith("_c10d_functional")}
    assert not known - set(OPERATORS) - UNSAMPLED - set(GRADIENT_SAMPLES) - SAMPLED_ALONE
