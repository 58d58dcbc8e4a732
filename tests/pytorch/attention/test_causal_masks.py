"""However a causal mask is written, attention on CUDA is one kernel that walks to the diagonal."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.export import Dim
from xdsl.dialects.builtin import ModuleOp

from compiler.frontend import load_model
from compiler.frontend.torch import in_memory
from dialects.block import ForOp, KernelOp
from dialects.host.interpret import interpret_host
from dialects.strata.weights import WeightStore
from targets.base import TargetOptions
from targets.cuda import TARGET
from tests.lowering import lower
from tests.pytorch.attention.causal_masks import BUFFER, LONGEST, MASKS, Attention, Mask
from tests.pytorch.programs import export

FOLDED = 1 << 20
"""Smaller masks are constants."""


def inputs(size: int) -> list[torch.Tensor]:
    torch.manual_seed(size)
    return [torch.randn(1, 2, size, 16, dtype=torch.float16) for _ in range(3)]


def lowered(mask: Mask, size: int, *, open_size: bool = False) -> tuple[ModuleOp, WeightStore]:
    dims = [{2: Dim("s", max=LONGEST - 1)}] * 3 if open_size else None
    model = in_memory(export(Attention(mask), inputs(size), dims))
    assert model is not None
    imported = load_model(model)
    context = TARGET.bind(TargetOptions("sm_90")).context(imported.weights)
    for _ in lower(imported.module, context):
        pass
    return imported.module, imported.weights


def check_structure(module: ModuleOp) -> None:
    """One kernel of q, k, v and the result, whose loops end where rows do."""
    [kernel] = [op for op in module.body.block.ops if isinstance(op, KernelOp)]
    assert len(kernel.buffers) == 4, "a mask is read"
    bounds = [str(op.upper.data) for op in kernel.walk() if isinstance(op, ForOp)]
    assert bounds and all("%0" in bound for bound in bounds), bounds


@pytest.mark.parametrize("mask", [*MASKS, *BUFFER], ids=lambda m: m.__name__)
def test_masks_of_known_sizes(mask: Mask) -> None:
    size = 1088
    assert size * size > FOLDED
    check_structure(lowered(mask, size)[0])


@pytest.mark.parametrize("mask", MASKS, ids=lambda m: m.__name__)
def test_masks_of_open_sizes(mask: Mask) -> None:
    module, weights = lowered(mask, 32, open_size=True)
    check_structure(module)
    arrays = inputs(131)
    [found] = interpret_host(module, [a.numpy() for a in arrays], weights)
    expected = Attention(mask)(*(a.double() for a in arrays)).numpy()
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=0, atol=2e-3)
