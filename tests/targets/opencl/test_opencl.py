"""OpenCL: what kernels become, and what a device computes; the latter needs a driver, as pocl."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import ml_dtypes
import numpy as np
import onnx
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

import compiler
from compiler.__main__ import main
from dialects.block import KernelOp
from dialects.block.interpret import interpret_kernel
from dialects.strata.types import Array
from dialects.symbolic.symbol import Symbol
from targets.base import TargetError, TargetOptions, find_target
from targets.opencl import Launcher, device
from targets.opencl.kernel import function_names, kernel_text
from targets.opencl.scalar import head
from targets.reference.interpret import interpret
from tests.lowering import assert_close, lower, without_subnormals
from tests.models import tiny_bert, tiny_cnn, tiny_lstm
from tests.op_samples.graph_samples import SAMPLES, Sample, build_module
from tests.targets.cuda import samples as kernels
from tests.targets.cuda.samples import kernel_of
from tests.targets.cuda.scalar_kernels import FLOAT_OPS, INTEGER_OPS, float_kernel, integer_kernel

TARGET = find_target("opencl")
FIRST = [s for s in {s.op: s for s in reversed(SAMPLES) if s.operands}.values()]
SCHEDULED = ("graph.matmul", "graph.conv", "graph.softmax", "graph.cumsum", "graph.transpose",
             "graph.reduce_max", "graph.max_pool", "graph.layer_norm")
SWAP = """
block.kernel @swap(%x: f32[2, 4], %y: f32[2, 4]) grid() sizes() {
  %a = block.load %x[0, t0] : tile<4xf32>
  %b = block.load %x[1, t0] : tile<4xf32>
  %c, %d = block.for %k = 0 to 3 step 1 (%p = %a, %q = %b) {
    block.yield %q, %p
  }
  block.store %c, %y[0, t0]
  block.store %d, %y[1, t0]
  block.yield
}"""
GRID = """
block.kernel @"dot"(%half: i32[select, b, 3, 5], %M_PI: i32[select, b, 3, 5])
    grid(%size_t: select, %exp: b, %float4: 3, %int: 5) sizes(select, b) {
  %event_t = block.load %half[%size_t, %exp, %float4, %int] : tile<i32>
  block.store %event_t, %M_PI[%size_t, %exp, %float4, %int]
  block.yield
}"""
"""Four dims, and names that are words of OpenCL."""
NAMES = """
block.kernel @a_b(%x: f32[4]) grid(%i: 4) sizes() {
  %one = block.full 1.0 : tile<f32>
  block.store %one, %x[%i]
  block.yield
}
block.kernel @"a.b"(%x: f32[4]) grid(%i: 4) sizes() {
  %two = block.full 2.0 : tile<f32>
  block.store %two, %x[%i]
  block.yield
}"""
SCRATCH = """
block.kernel @scratch(%x: f32[n], %y: f32[n]) grid() sizes(n) {
  %s = block.scratch : f32[n]
  block.for %i = 0 to n step 1 {
    %v = block.load %x[%i] : tile<f32>
    block.store %v, %s[%i]
    block.yield
  }
  block.for %i = 0 to n step 1 {
    %v = block.load %s[n - %i - 1] : tile<f32>
    block.store %v, %y[%i]
    block.yield
  }
  block.yield
}"""


def reason() -> str:
    """Why nothing runs here; empty if there is a device."""
    try:
        device.find_device()
    except TargetError as error:
        return str(error)
    return ""


needs_device = pytest.mark.skipif(bool(reason()), reason=reason())


def launch(kernel: KernelOp, buffers: Sequence[Array], sizes: dict[Symbol, int]) -> None:
    """Run one kernel on the device."""
    functions = function_names([kernel])
    [name] = functions.values()
    program = device.find_device().build(head(exact=True) + kernel_text(kernel, name))
    Launcher(program, functions, {})(kernel, buffers, sizes)


def run_both(
    kernel: KernelOp, buffers: Sequence[Array], sizes: dict[Symbol, int]
) -> tuple[list[Array], list[Array]]:
    """What the device leaves in buffers, and what the interpreter leaves."""
    found, expected = [b.copy() for b in buffers], [b.copy() for b in buffers]
    launch(kernel, found, sizes)
    with np.errstate(all="ignore"):
        interpret_kernel(kernel, expected, sizes)
    return found, expected


# ---------------------------------------------------------------------- text
def test_a_kernel_reads_like_its_block() -> None:
    text = kernel_text(kernel_of(SWAP), "k_swap")
    assert text.startswith("kernel void k_swap(global const float *v_x, global float *v_y) {")
    assert "for (long v_k = 0L; v_k < 3L; v_k += 1) {" in text


def test_functions_have_names_of_their_own() -> None:
    module = kernels.parse(NAMES)
    names = function_names(op for op in module.body.block.ops if isinstance(op, KernelOp))
    assert names == {"a_b": "k_a_b", "a.b": "k_a_b_2"}


def test_what_a_work_item_cannot_do_is_refused() -> None:
    with pytest.raises(TargetError, match="scratch memory of open sizes"):
        kernel_text(kernel_of(SCRATCH), "scratch")


def test_a_machine_without_opencl_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> ctypes.CDLL:
        raise OSError(name)

    device.library.cache_clear()
    device.find_device.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(TargetError, match="install its loader"):
        TARGET.bind(TargetOptions()).running.check_machine()
    assert "install its loader" in TARGET.report()[0]


# ---------------------------------------------------------------------- kernels
@needs_device
@pytest.mark.parametrize("sample", kernels.SAMPLES, ids=[s.name for s in kernels.SAMPLES])
def test_kernels(sample: kernels.Sample) -> None:
    kernel = sample.kernel
    found, expected = run_both(kernel, sample.buffers(kernel), sample.values)
    for a, b in zip(found, expected, strict=True):
        a, b = a.astype(np.float64), b.astype(np.float64)
        np.testing.assert_allclose(a, b, rtol=0, atol=sample.tolerance * np.abs(b).max())


@needs_device
@pytest.mark.parametrize("element", ["f32", "f64", "f16", "bf16"])
def test_operations_on_floats(element: str) -> None:
    """OpenCL allows functions an error of a few units in the last place, powers of 16."""
    random = np.random.default_rng(0)
    dtype = np.dtype({"f32": "f4", "f64": "f8", "f16": "f2", "bf16": ml_dtypes.bfloat16}[element])
    x = np.concatenate([random.standard_normal((2, 128)) * 3, random.random((2, 128)) * 0.9],
                       axis=1).astype(dtype)
    x[:, :4] = [[0, -0.0, np.inf, np.nan], [1, 2, np.nan, np.inf]]
    y = np.zeros((len(FLOAT_OPS), 256), dtype)
    (_, found), (_, expected) = run_both(kernel_of(float_kernel(element)), [x, y], {})
    step, tiny = (float(getattr(cast(Any, ml_dtypes).finfo(dtype), k)) for k in ("eps", "tiny"))
    for name, a, b in zip(FLOAT_OPS, found.astype(float), expected.astype(float), strict=True):
        with np.errstate(all="ignore"):
            error = np.abs(a - b) / (np.maximum(np.abs(b), tiny) * step)
        error[(a == b) | (np.isnan(a) & np.isnan(b))] = 0
        worst = int(np.argmax(np.where(np.isnan(error), np.inf, error)))
        assert error[worst] <= 16, (name, x[:, worst], a[worst], b[worst])


@needs_device
@pytest.mark.parametrize("element", ["i8", "i16", "i32", "i64"])
def test_operations_on_integers(element: str) -> None:
    random = np.random.default_rng(0)
    dtype = np.dtype(f"i{int(element[1:]) // 8}")
    x = random.integers(-100, 100, (2, 256)).astype(dtype)
    x[1, x[1] == 0] = 7
    x[1, :128] = random.integers(1, 7, 128)
    x[:, 255] = np.iinfo(dtype).min, -1  # a quotient that a processor may refuse to compute
    y = np.zeros((len(INTEGER_OPS), 256), dtype)
    (_, found), (_, expected) = run_both(kernel_of(integer_kernel(element)), [x, y], {})
    for name, a, b in zip(INTEGER_OPS, found, expected, strict=True):
        used = slice(128) if name.startswith("arith.sh") else slice(255)  # amounts below the width
        np.testing.assert_array_equal(a[used], b[used], name)


@needs_device
def test_loops_may_exchange_their_values() -> None:
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    (_, found), (_, expected) = run_both(kernel_of(SWAP), [x, np.zeros_like(x)], {})
    np.testing.assert_array_equal(found, expected)


@needs_device
@pytest.mark.parametrize("shape", [(2, 3), (1, 1), (4, 0)])
def test_grids_of_many_dims_and_words_of_opencl_as_names(shape: tuple[int, int]) -> None:
    sizes = dict(zip(map(Symbol.size, ("select", "b")), shape, strict=True))
    x = np.arange(15 * shape[0] * shape[1], dtype=np.int32).reshape(*shape, 3, 5)
    (_, found), _ = run_both(kernel_of(GRID), [x, np.zeros_like(x)], sizes)
    np.testing.assert_array_equal(found, x)


@needs_device
def test_errors_of_the_device_s_compiler_are_shown() -> None:
    with pytest.raises(TargetError, match=r"refused a kernel(.|\n)*undeclared"):
        device.find_device().build("kernel void f(global float *x) { x[0] = y; }")


# ---------------------------------------------------------------------- modules
def computes(sample: Sample, scheduled: str = "opencl", features: str | None = None) -> list[str]:
    """What is told about a sample, which the device must compute; schedules are of a target."""
    module, arrays, context = build_module(sample, True)
    inputs = without_subnormals(arrays)
    expected = interpret(module, context.weights, inputs)
    parts = find_target(scheduled).bind(TargetOptions(features=features))
    list(lower(module, parts.context(context.weights)))
    executable = TARGET.bind(TargetOptions()).running.load(module, context.weights)
    assert_close(executable.run(inputs), expected, sample.tolerance or 2e-5, sample.label)
    return list(executable.notes)


@needs_device
@pytest.mark.parametrize("sample", FIRST, ids=[s.label for s in FIRST])
def test_the_first_sample_of_each_operator(sample: Sample) -> None:
    assert computes(sample) == []  # nothing is left to NumPy


@needs_device
@pytest.mark.slow
@pytest.mark.parametrize("sample", SAMPLES, ids=[s.label for s in SAMPLES])
def test_every_sample(sample: Sample) -> None:
    computes(sample)


@needs_device
@pytest.mark.parametrize("sample", [
    pytest.param(s, id=s.op.name, marks=() if s.op.name in SCHEDULED else pytest.mark.slow)
    for s in FIRST])
def test_tiles_of_schedules_for_processors(sample: Sample) -> None:
    computes(sample, "cpu", "avx2")


@needs_device
def test_the_processor_runs_what_the_device_cannot() -> None:
    from dialects.strata.weights import WeightStore

    module: ModuleOp = kernels.parse(f"""
        host.func @main(%x: f32[n], %y: f32[n]) inputs ["x"] outputs ["y"] sizes(n) {{
          host.launch @scratch(%x, %y) sizes(n)
          host.return
        }}
        {SCRATCH}""")
    executable = TARGET.bind(TargetOptions()).running.load(module, WeightStore())
    assert executable.notes == ["the target cpu runs the kernel scratch: the target opencl has no "
                                "scratch memory of open sizes"]
    x = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(executable.run([x])[0], x[::-1])


# ---------------------------------------------------------------------- what is left
ACCELERATOR = """
from passes.analyses.loop.kinds import is_contraction
from targets.opencl import OpenclScheduling, OpenclTarget

class Products(OpenclScheduling):
    def claims(self, kernel):
        return any(map(is_contraction, kernel.nests))

class Accelerator(OpenclTarget):
    scheduling = Products

TARGET = Accelerator("accelerator", ("opencl",), "a device that has products only")
"""


@needs_device
@pytest.mark.parametrize("model", [tiny_bert, tiny_cnn, tiny_lstm], ids=lambda m: m.__name__)
def test_a_device_claims_products_of_models_and_leaves_the_rest(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models of open sizes are run by both, at several sizes."""
    plugin = tmp_path / "accelerator.py"
    plugin.write_text(ACCELERATOR)
    made = model.make_model(model.OPEN)
    exe = compiler.compile(made, target="accelerator", plugins=[plugin], cache="off")
    here = compiler.compile(made, cache="off")
    taken: list[bool] = []
    whole = Launcher.__call__

    def watched(
        self: Launcher, kernel: Operation, buffers: Sequence[Array], sizes: dict[Symbol, int]
    ) -> None:
        assert isinstance(kernel, KernelOp)
        taken.append(kernel.sym_name.data in self.functions)
        assert taken[-1] or kernel.sym_name.data in self.left
        whole(self, kernel, buffers, sizes)

    monkeypatch.setattr(Launcher, "__call__", watched)
    for sizes in model.CASES:
        inputs = model.make_inputs(sizes)
        given = [inputs[name] for name in exe.input_names]
        assert_close(exe(*given), here(*given), 2e-5, str(sizes))
    assert True in taken and False in taken


@needs_device
def test_extents_of_outer_axes_may_be_products() -> None:
    """With more than three axes, ids are digits of one number, which extents divide."""
    made = tiny_cnn.make_model(tiny_cnn.OPEN)
    exe = compiler.compile(made, target="opencl", cache="off")
    here = compiler.compile(made, cache="off")
    for sizes in tiny_cnn.CASES:
        inputs = tiny_cnn.make_inputs(sizes)
        given = [inputs[name] for name in exe.input_names]
        assert_close(exe(*given), here(*given), 2e-5, str(sizes))


@needs_device
def test_the_text_of_a_target_has_what_it_claims(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "accelerator.py").write_text(ACCELERATOR)
    onnx.save(tiny_cnn.make_model(tiny_cnn.OPEN), tmp_path / "m.onnx")
    texts: list[str] = []
    for target in ("opencl", "accelerator"):
        assert main(["lower", str(tmp_path / "m.onnx"), "--target", target, "--plugin",
                     str(tmp_path / "accelerator.py")]) == 0
        texts.append(capsys.readouterr().out)
    assert 0 < texts[1].count("kernel void") < texts[0].count("kernel void")
