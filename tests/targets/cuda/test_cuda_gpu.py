"""Kernels and models on a real GPU; `benchmarks/cuda/selftest.py` does more, and times it."""

from __future__ import annotations

import numpy as np
import pytest

from dialects.block import StoreOp
from dialects.block.interpret import interpret_kernel
from dialects.weights import WeightStore
from targets.base import TargetOptions
from targets.cuda import TARGET
from tests.targets.cuda import samples
from tests.targets.cuda.samples import SAMPLES, Sample, as_model

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("sample", SAMPLES, ids=[s.name for s in SAMPLES])
def test_samples(sample: Sample) -> None:
    kernel = sample.kernel
    buffers = sample.buffers(kernel)
    stored = {op.buffer for op in kernel.walk() if isinstance(op, StoreOp)}
    inputs = [a.copy() for b, a in zip(kernel.buffers, buffers, strict=True) if b not in stored]
    interpret_kernel(kernel, buffers, sample.sizes)
    expected = [a for b, a in zip(kernel.buffers, buffers, strict=True) if b in stored]
    model = TARGET.load(as_model(kernel), WeightStore(), TargetOptions())
    for _ in range(2):  # launched one by one, then as a graph
        for a, b in zip(model.run(inputs), expected, strict=True):
            a, b = a.astype(np.float64), b.astype(np.float64)
            np.testing.assert_allclose(a, b, rtol=0, atol=4 * sample.tolerance * np.abs(b).max())


def test_tensors_on_the_device_go_in_and_come_out() -> None:
    torch = pytest.importorskip("torch")
    model = TARGET.load(as_model(Sample(samples.SOFTMAX).kernel), WeightStore(), TargetOptions())
    for n in (3, 513, 3):
        x = torch.randn(n, 1000, device="cuda")
        with torch.cuda.stream(torch.cuda.Stream()):
            [y] = model.run([x])
        torch.cuda.synchronize()
        assert y.is_cuda
        torch.testing.assert_close(y, torch.softmax(x, 1))
