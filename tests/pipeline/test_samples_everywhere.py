"""Every sample through the whole pipeline: each level and each target computes the same.

What the graph level computes, by the meaning of its operations, is what must come out after every
pass of the loop level, at the host and the block level, of the CPU's machine code, and of the
generated Triton source.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp

from dialects.block import KernelOp
from dialects.host.interpret import interpret_host
from dialects.strata.types import Array
from dialects.strata.weights import WeightStore
from passes.base import StrataContext
from targets.base import TargetOptions, find_target
from targets.cpu.machine import features_here, machine_of
from targets.cuda.build.compile import CompileOptions, Job, compile_kernels
from targets.cuda.build.interpreter import Interpreter
from targets.cuda.emit import emit_kernel
from targets.reference.interpret import interpret
from tests.lowering import assert_close, check_levels, lower, without_subnormals
from tests.op_samples.graph_samples import SAMPLES, Sample, build_module
from tests.op_samples.pipeline_samples import PIPELINE_SAMPLES
from tests.targets.cuda.runtime.plans import check_plan

ALL = [*SAMPLES, *PIPELINE_SAMPLES]
CPU, CUDA = find_target("cpu"), find_target("cuda")
IDS = [f"{k}-{s.label}" for k, s in enumerate(ALL)]
FIRST = {s.op: s for s in reversed(SAMPLES) if s.operands}
"""The first row of each operation."""
OTHERS = [name for name in ("baseline", "avx2") if name in features_here()
          and machine_of(name).features < machine_of().features]
"""Feature sets that are less than this machine's own."""
FEW = ("matmul", "softmax", "conv", "layer_norm", "gather", "concat", "max_pool", "conv_transpose")

each_sample = pytest.mark.parametrize("sample", ALL, ids=IDS)
each_size = pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")


def context_for(target: str, weights: WeightStore, options: TargetOptions) -> StrataContext:
    return find_target(target).bind(options).context(weights)


def lowered(sample: Sample, symbolic: bool, target: str, options: TargetOptions) -> tuple[
    ModuleOp, StrataContext, list[Array], list[Array]
]:
    """The module at block level, its context, inputs, and what it must compute."""
    module, arrays, context = build_module(sample, symbolic)
    inputs = without_subnormals(arrays)
    expected = interpret(module, context.weights, inputs)
    strata = context_for(target, context.weights, options)
    list(lower(module, strata))
    return module, strata, inputs, expected


@pytest.fixture(scope="session")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of compiled code, for kernels that samples share."""
    return tmp_path_factory.mktemp("objects")


# ---------------------------------------------------------------------- levels, and the CPU's code
@each_size
@each_sample
def test_every_level_computes_the_same(sample: Sample, symbolic: bool, objects: Path) -> None:
    known, tolerance = set[tuple[object, ...]](), sample.tolerance or 0
    module, inputs, context = build_module(sample, symbolic)
    expected = interpret(module, context.weights, inputs)
    cuda = context_for("cuda", context.weights, TargetOptions())
    check_levels(module, cuda, inputs, expected, tolerance, known)
    kernels = [op for op in module.body.block.ops if isinstance(op, KernelOp)]
    source = CUDA.bind(TargetOptions()).emission.emit(module, "triton")
    assert source.count("@triton.jit") >= len(kernels)
    check_plan(module)

    module, arrays, context = build_module(sample, symbolic)
    inputs = without_subnormals(arrays)
    expected = interpret(module, context.weights, inputs)
    options = TargetOptions(cache=objects)
    cpu = context_for("cpu", context.weights, options)
    check_levels(module, cpu, inputs, expected, tolerance, known)
    check_native(module, options, cpu.weights, inputs, expected, tolerance)


@pytest.mark.parametrize("symbolic", [False, pytest.param(True, marks=pytest.mark.slow)],
                         ids=["static", "symbolic"])
@pytest.mark.parametrize("features", OTHERS)
@each_sample
def test_native_code_of_other_features(
    sample: Sample, features: str, symbolic: bool, objects: Path
) -> None:
    """As on processors with fewer instructions."""
    options = TargetOptions(features=features, cache=objects)
    module, context, inputs, expected = lowered(sample, symbolic, "cpu", options)
    check_native(module, options, context.weights, inputs, expected, sample.tolerance or 0)


def check_native(
    module: ModuleOp, options: TargetOptions, weights: WeightStore, inputs: Sequence[Array],
    expected: Sequence[Array], tolerance: float,
) -> None:
    """Machine code, called twice: what the first call leaves must not change the second."""
    model = CPU.bind(options).running.load(module, weights)
    for time in ("at first", "again"):
        assert_close(model.run(inputs), expected, tolerance, f"{options.features}, {time}")


# ---------------------------------------------------------------------- Triton
@needs_triton
@pytest.mark.parametrize("samples", [
    [s for s in FIRST.values() if s.op.name.removeprefix("graph.") in FEW],
    pytest.param([*FIRST.values(), *PIPELINE_SAMPLES], marks=pytest.mark.slow),
], ids=["few", "all"])
def test_kernels_compile_to_cubins(samples: Sequence[Sample]) -> None:
    jobs: list[Job] = []
    for sample, symbolic in product(samples, (False, True)):
        module = lowered(sample, symbolic, "cuda", TargetOptions())[0]
        jobs += [Job(emit_kernel(op), tuple(range(len(op.buffers))))
                 for op in module.body.block.ops if isinstance(op, KernelOp)]
    binaries = compile_kernels(jobs, CompileOptions("sm_90"))
    assert all(b.cubin[:4] == b"\x7fELF" for b in binaries)


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    yield Interpreter()


def run_in_triton(sample: Sample, symbolic: bool, interpreter: Interpreter) -> None:
    options = TargetOptions(interpret=True)
    module, context, inputs, expected = lowered(sample, symbolic, "cuda", options)
    outputs = interpret_host(module, inputs, context.weights, interpreter.run)
    assert_close(outputs, expected, sample.tolerance or 0, "Triton's interpreter")


@needs_triton
@pytest.mark.parametrize("name", FEW)
def test_triton_source_of_a_few(name: str, interpreter: Interpreter) -> None:
    sample = next(s for s in FIRST.values() if s.op.name == f"graph.{name}")
    run_in_triton(sample, True, interpreter)


@needs_triton
@pytest.mark.slow
@each_size
@each_sample
def test_triton_source(sample: Sample, symbolic: bool, interpreter: Interpreter) -> None:
    run_in_triton(sample, symbolic, interpreter)
