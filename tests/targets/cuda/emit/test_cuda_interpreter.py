"""The generated source in Triton's interpreter, against the block level's own meaning."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import ml_dtypes
import numpy as np
import pytest

from dialects.block import KernelOp
from dialects.block.interpret import interpret_kernel
from dialects.strata.types import Array
from dialects.strata.weights import WeightStore
from dialects.symbolic.symbol import Symbol
from targets.base import TargetOptions
from targets.cuda import TARGET
from targets.cuda.build.interpreter import Interpreter
from tests.symbols import by_symbol
from tests.targets.cuda import samples
from tests.targets.cuda.samples import SAMPLES, Sample, kernel_of, parse
from tests.targets.cuda.scalar_kernels import FLOAT_OPS, INTEGER_OPS, float_kernel, integer_kernel

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
RANDOM = np.random.default_rng(0)


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    yield Interpreter()


def run_both(
    interpreter: Interpreter, kernel: KernelOp, buffers: list[Array], sizes: dict[Symbol, int]
) -> tuple[list[Array], list[Array]]:
    """What Triton's interpreter makes of the buffers, and what the kernel means."""
    found, expected = [b.copy() for b in buffers], [b.copy() for b in buffers]
    interpreter.run(kernel, found, sizes)
    with np.errstate(all="ignore"):
        interpret_kernel(kernel, expected, sizes)
    return found, expected


@pytest.mark.parametrize("sample", SAMPLES, ids=[s.name for s in SAMPLES])
def test_samples(interpreter: Interpreter, sample: Sample) -> None:
    kernel = sample.kernel
    found, expected = run_both(interpreter, kernel, sample.buffers(kernel), sample.values)
    for a, b in zip(found, expected, strict=True):
        a, b = a.astype(np.float64), b.astype(np.float64)
        np.testing.assert_allclose(a, b, rtol=0, atol=sample.tolerance * np.abs(b).max())


SPECIAL = np.array([
    [0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 0.5, 1.5, -2.5, 2, -2, 3, -3, 0, 4, -8, 2, 5e4, -0.5,
     0.49999997, 1e-30, 2.5, -np.inf],
    [0, 1, np.nan, np.inf, 2, 3, 1, 0.5, -1, 2, 3, 3, -1, -2, -1, 0.5, 1 / 3, np.nan, -np.inf, 0,
     -0.0, -1, 0, 3]])


@pytest.mark.parametrize("element", ["f32", "f64", "f16", "bf16"])
def test_float_operations(interpreter: Interpreter, element: str) -> None:
    kernel = kernel_of(float_kernel(element))
    dtype = np.dtype({"f32": "f4", "f64": "f8", "f16": "f2", "bf16": ml_dtypes.bfloat16}[element])
    scales = [3.0] * 64 + [1e-3] * 64 + [30.0] * 40
    x = np.concatenate([RANDOM.standard_normal((2, 168)) * scales, RANDOM.random((2, 64)) * 0.9,
                        SPECIAL], axis=1).astype(dtype)
    y = np.zeros((len(FLOAT_OPS), 256), dtype)
    (_, found), (_, expected) = run_both(interpreter, kernel, [x, y], {})
    step, tiny = (float(getattr(ml_dtypes.finfo(dtype), k)) for k in ("eps", "tiny"))
    for name, a, b in zip(FLOAT_OPS, found.astype(float), expected.astype(float), strict=True):
        if name == "math.powf" and element == "f64":
            continue  # about as exact as exp2(y*log2(x)) in f64
        with np.errstate(all="ignore"):
            error = np.abs(a - b) / (np.maximum(np.abs(b), tiny) * step)
        error[(a == b) | (np.isnan(a) & np.isnan(b))] = 0
        worst = int(np.nanargmax(np.where(np.isnan(error), np.inf, error)))
        assert error[worst] <= 3, (name, x[:, worst], a[worst], b[worst])


@pytest.mark.parametrize("element", ["i8", "i16", "i32", "i64"])
def test_integer_operations(interpreter: Interpreter, element: str) -> None:
    kernel = kernel_of(integer_kernel(element))
    dtype = np.dtype(f"i{int(element[1:]) // 8}")
    x = RANDOM.integers(-100, 100, (2, 256)).astype(dtype)
    x[1, x[1] == 0] = 7
    x[1, :128] = RANDOM.integers(1, 7, 128)
    y = np.zeros((len(INTEGER_OPS), 256), dtype)
    (_, found), (_, expected) = run_both(interpreter, kernel, [x, y], {})
    for name, a, b in zip(INTEGER_OPS, found, expected, strict=True):
        used = slice(128) if name.startswith("arith.sh") else slice(None)  # amounts below the width
        np.testing.assert_array_equal(a[used], b[used], name)


def test_extrema_propagate_nan(interpreter: Interpreter) -> None:
    kernel = kernel_of(samples.REDUCTIONS)
    buffers = Sample(samples.REDUCTIONS).buffers(kernel)
    buffers[0][3, 5] = np.nan
    found, expected = run_both(interpreter, kernel, buffers, {})
    assert np.isnan(found[3][0, 3]) and np.isnan(found[3][2, 3])
    np.testing.assert_array_equal(np.isnan(found[3]), np.isnan(expected[3]))


@pytest.mark.parametrize("n", [1, 3, 4, 5])
def test_tails(interpreter: Interpreter, n: int) -> None:
    sample = Sample(samples.GELU, {"n": n})
    kernel = sample.kernel
    found, expected = run_both(interpreter, kernel, sample.buffers(kernel), sample.values)
    np.testing.assert_allclose(found[2], expected[2], atol=1e-6)


@pytest.mark.parametrize("step", [2**20 + 1, 2**28, 2**30, 2**31 - 1, 2**40])
@pytest.mark.parametrize("sign", [1, -1])
def test_places_far_outside(interpreter: Interpreter, step: int, sign: int) -> None:
    """All places but the first one lie outside, and 32 bits do not hold their distances."""
    kernel = kernel_of(f"""
    block.kernel @far(%x: f32[n], %y: f32[64]) grid() sizes(n)
        schedule<grid i0 tile 64 | tails = mask, warps = 1> {{
      %a = block.load %x[n - 1 + {sign * step}*t0] check [0] pad 7.0 : tile<64xf32>
      block.store %a, %y[t0]
      block.yield
    }}""")
    x = RANDOM.standard_normal(3).astype(np.float32)
    found, expected = run_both(interpreter, kernel, [x, np.zeros(64, np.float32)],
                               by_symbol({"n": 3}))
    np.testing.assert_array_equal(found[1], expected[1])


def test_no_programs(interpreter: Interpreter) -> None:
    sample = Sample(samples.GELU, {"n": 0})
    interpreter.run(sample.kernel, sample.buffers(sample.kernel), sample.values)


def test_a_model(interpreter: Interpreter) -> None:
    module = parse(f"""builtin.module {{ {samples.SOFTMAX}
      host.func @main(%x: f32[n, 1000], %y: f32[n, 1000]) inputs ["x"] outputs ["y"] sizes(n)
          arena(4000*n) {{
        %h = host.alloc offset 0 : f32[n, 1000]
        host.launch @softmax(%x, %h) sizes(n)
        host.launch @softmax(%h, %y) sizes(n)
        host.return
      }} }}""")
    model = TARGET.bind(TargetOptions(interpret=True)).running.load(module, WeightStore())
    assert (model.input_names, model.output_names) == (["x"], ["y"])
    for n in (1, 4):
        x = RANDOM.standard_normal((n, 1000)).astype(np.float32)
        [y] = model.run([x])
        np.testing.assert_allclose(y, softmax(softmax(x)), rtol=1e-5)
    with pytest.raises(ValueError, match="input 'x' must be float32, not int64"):
        model.run([np.zeros((2, 1000), np.int64)])


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)
