"""Kernels and models on a real GPU; `benchmarks/cuda/selftest.py` does more, and times it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier

import numpy as np
import pytest

from dialects.block import StoreOp
from dialects.block.interpret import interpret_kernel
from dialects.strata.types import Array
from dialects.strata.weights import WeightStore
from targets.base import TargetOptions
from targets.cuda import TARGET
from targets.cuda.runtime import driver
from tests.control.programs import COUNTED, PREFIX, PROGRAMS, Program
from tests.targets.cuda import samples
from tests.targets.cuda.runtime.control_programs import REFUSALS, compare, lowered
from tests.targets.cuda.samples import SAMPLES, Sample, as_model

pytestmark = pytest.mark.gpu
RUNNING = TARGET.bind(TargetOptions()).running


@pytest.mark.parametrize("sample", SAMPLES, ids=[s.name for s in SAMPLES])
def test_samples(sample: Sample) -> None:
    kernel = sample.kernel
    buffers = sample.buffers(kernel)
    stored = {op.buffer for op in kernel.walk() if isinstance(op, StoreOp)}
    inputs = [a.copy() for b, a in zip(kernel.buffers, buffers, strict=True) if b not in stored]
    interpret_kernel(kernel, buffers, sample.values)
    expected = [a for b, a in zip(kernel.buffers, buffers, strict=True) if b in stored]
    model = RUNNING.load(as_model(kernel), WeightStore())
    for _ in range(2):  # a new graph, and one that is there
        for a, b in zip(model.run(inputs), expected, strict=True):
            a, b = a.astype(np.float64), b.astype(np.float64)
            np.testing.assert_allclose(a, b, rtol=0, atol=4 * sample.tolerance * np.abs(b).max())


def test_tensors_on_the_device_go_in_and_come_out() -> None:
    torch = pytest.importorskip("torch")
    model = RUNNING.load(as_model(Sample(samples.SOFTMAX).kernel), WeightStore())
    for n in (3, 513, 3):
        x = torch.randn(n, 1000, device="cuda")
        torch.cuda.synchronize()  # the other stream does not wait for x
        with torch.cuda.stream(torch.cuda.Stream()):
            [y] = model.run([x])
        torch.cuda.synchronize()
        assert y.is_cuda
        torch.testing.assert_close(y, torch.softmax(x, 1))


def test_programs_come_and_go() -> None:
    """Each is given up with a run under way, which ends well."""
    torch = pytest.importorskip("torch")
    module = as_model(Sample(samples.SOFTMAX).kernel)
    x, stream = torch.randn(4001, 1000, device="cuda"), torch.cuda.Stream()
    torch.cuda.synchronize()
    for _ in range(20):
        model = RUNNING.load(module, WeightStore())
        with torch.cuda.stream(stream):
            [y] = model.run([x])
        del model
        torch.testing.assert_close(y, torch.softmax(x, 1))


def test_tensors_that_lie_anywhere_on_any_stream() -> None:
    """Other tensors each time, some that kernels cannot read in place, from several threads."""
    torch = pytest.importorskip("torch")
    model = RUNNING.load(as_model(Sample(samples.SOFTMAX).kernel), WeightStore())
    whole = torch.randn(4001, 1000, device="cuda")
    torch.cuda.synchronize()

    def check(start: int) -> None:
        for n in (7, 7, 500):
            for x in (whole[start: start + n], whole[start: start + 2 * n: 2]):
                with torch.cuda.stream(torch.cuda.Stream()):
                    [y] = model.run([x])
                    torch.testing.assert_close(y, torch.softmax(x, 1))

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(check, start) for start in range(8)]:
            done.result()
    x = whole[:7].cpu().numpy()
    np.testing.assert_allclose(model.run([x])[0], torch.softmax(whole[:7], 1).cpu(), rtol=1e-5)


# ---------------------------------------------------------------------- calls at once
THREADS, CALLS = 4, 200


def all_at_once(works: Sequence[Callable[[], None]]) -> None:
    """In a thread each, from one moment on; the first error of one is raised."""
    barrier = Barrier(len(works), timeout=60)

    def begin(work: Callable[[], None]) -> None:
        barrier.wait()
        work()

    with ThreadPoolExecutor(len(works)) as pool:
        for done in [pool.submit(begin, work) for work in works]:
            done.result()


def test_threads_call_a_model_with_arrays_at_once() -> None:
    """Other sizes and other numbers in each thread: every result is that of a call alone."""
    model = RUNNING.load(as_model(Sample(samples.SOFTMAX).kernel), WeightStore())
    random = np.random.default_rng(0)
    inputs = [[random.standard_normal((n + k, 1000)).astype(np.float32) for n in (1, 33, 700)]
              for k in range(THREADS)]
    alone = [[model.run([x])[0] for x in given] for given in inputs]

    def check(thread: int) -> None:
        for call in range(CALLS):
            [y] = model.run([inputs[thread][call % 3]])
            np.testing.assert_array_equal(y, alone[thread][call % 3])

    all_at_once([partial(check, thread) for thread in range(THREADS)])


@pytest.mark.parametrize("streams", [1, THREADS], ids=["one stream", "a stream each"])
def test_threads_call_a_model_with_tensors_at_once(streams: int) -> None:
    """Several calls are under way before one is looked at; tensors lie elsewhere each time."""
    torch = pytest.importorskip("torch")
    model = RUNNING.load(as_model(Sample(samples.SOFTMAX).kernel), WeightStore())
    inputs = [[torch.randn(n + k, 1000, device="cuda") for n in (1, 33, 700)]
              for k in range(THREADS)]
    alone = [[model.run([x])[0].clone() for x in given] for given in inputs]
    there = [torch.cuda.Stream() for _ in range(streams)]
    torch.cuda.synchronize()

    def check(thread: int) -> None:
        with torch.cuda.stream(there[thread % streams]):
            for _ in range(CALLS // 4):
                given = [inputs[thread][k % 3].clone() for k in range(4)]
                found = [model.run([x])[0] for x in given]
                for k, y in enumerate(found):
                    assert torch.equal(y, alone[thread][k % 3])

    all_at_once([partial(check, thread) for thread in range(THREADS)])


@pytest.mark.parametrize("program", [COUNTED, PREFIX], ids=lambda p: p.name)
def test_threads_call_a_program_that_decides_at_once(program: Program) -> None:
    model = RUNNING.load(*lowered(program.text))

    def check(thread: int) -> None:
        for call in range(CALLS // 4):
            inputs = program.inputs[(thread + call) % len(program.inputs)]
            compare(model.run(inputs), program, inputs)

    all_at_once([partial(check, thread) for thread in range(THREADS)])


# ---------------------------------------------------------------------- control flow, late sizes
each_program = pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)


@each_program
@pytest.mark.parametrize("has_pools", [True, False], ids=["pool", "kept blocks"])
def test_programs_that_decide(
    program: Program, has_pools: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All inputs on one compiled program, twice. torch's allocator, where torch is imported."""
    if not has_pools:
        monkeypatch.setattr(driver, "has_pools", lambda: False)
    model = RUNNING.load(*lowered(program.text))
    for inputs in (*program.inputs, *program.inputs):
        compare(model.run(inputs), program, inputs)


@each_program
def test_programs_that_decide_on_tensors(program: Program) -> None:
    torch = pytest.importorskip("torch")
    model = RUNNING.load(*lowered(program.text))
    for inputs in program.inputs:
        with torch.cuda.stream(torch.cuda.Stream()):
            outputs = model.run([torch.from_numpy(np.array(a)).cuda() for a in inputs])
            compare([o.cpu().numpy() for o in outputs], program, inputs)


@pytest.mark.parametrize(("program", "inputs", "message"), REFUSALS)
def test_what_is_refused(program: Program, inputs: Sequence[Array], message: str) -> None:
    model = RUNNING.load(*lowered(program.text))
    for _ in range(2):
        with pytest.raises(ValueError, match=re.escape(message)):
            model.run(inputs)
        compare(model.run(program.inputs[0]), program, program.inputs[0])
