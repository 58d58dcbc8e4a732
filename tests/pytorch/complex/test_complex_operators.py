"""Every operator that is imported for complex numbers, against eager PyTorch."""

from __future__ import annotations

import pytest
import torch
import torch._prims  # registers the operators

from compiler.frontend.torch.complex import complex_importers
from compiler.frontend.torch.drawing import drawing_importers
from tests.pytorch.complex.complex_samples import COMPLEX_SAMPLES
from tests.pytorch.programs import check_outputs, export, flat, run
from tests.pytorch.test_operators import Call

CASES = [(name, k) for name, samples in COMPLEX_SAMPLES.items() for k in range(len(samples))]
UNSAMPLED = {
    "aten.conj.default", "aten.real.default", "aten.imag.default", "aten.resolve_conj.default",
    "aten.resolve_neg.default", "aten.type_as.default", "aten.to.dtype", "aten.to.device",
    "aten.to.dtype_layout", "aten.sign.default",  # PyTorch takes them apart, or refuses them
    "aten._neg_view.default",
    "prims.conj.default", "prims.real.default", "prims.imag.default",  # PyTorch exports none
    "aten.convolution.default",  # PyTorch takes complex ones apart, or has no kernel
    "aten.alias.default", "aten.detach.default",
    "prims.convert_element_type.default", "prims.device_put.default",
    "aten.lift_fresh.default", "aten.lift_fresh_copy.default", "prims.sigmoid.default",
    "aten.empty.memory_format", "aten.empty_like.default", "aten.empty_permuted.default",
    "aten.empty_strided.default", "aten.new_empty.default", "aten.new_empty_strided.default",
}


def viewed(tensor: torch.Tensor) -> torch.Tensor:
    """Reals [..., 2] as inputs and results stand for complex numbers."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


@pytest.mark.parametrize(("name", "k"), CASES)
def test_complex_operator(name: str, k: int) -> None:
    check(name, k, "reference")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "k"), CASES)
def test_complex_operator_on_the_cpu(name: str, k: int) -> None:
    check(name, k, "cpu")


def check(name: str, k: int, target: str) -> None:
    call = Call(name, COMPLEX_SAMPLES[name][k])
    want = [viewed(v) for v in flat(call(*call.inputs))]
    got = run(export(call, call.inputs), [viewed(v) for v in call.inputs], target)
    check_outputs(got, want)


def test_every_complex_importer_has_a_sample() -> None:
    """Those that draw numbers have distributions in `operators/test_random_numbers.py`."""
    drawn = set(drawing_importers())
    assert not set(complex_importers()) - set(COMPLEX_SAMPLES) - UNSAMPLED - drawn
    assert not set(COMPLEX_SAMPLES) - set(complex_importers())
