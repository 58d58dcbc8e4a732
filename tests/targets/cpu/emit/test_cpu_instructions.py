"""Machine code of products, convolutions and quantized models has the instructions of its set.

Each architecture has instructions that multiply and add several lanes at once. Whether LLVM finds
them depends on how the emitter writes a product, so the text of the machine code is looked at.
Nothing is run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import onnx
import onnx.parser
import pytest

from compiler.frontend import model_of
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler, lower_to_text

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
MODELS = {
    "product": f"{HEAD} m (float[64, 96] x, float[96, 128] w) => (float[64, 128] y) "
               "{ y = MatMul(x, w) }",
    "convolution": f"{HEAD} m (float[1, 32, 18, 18] x, float[64, 32, 3, 3] w) "
                   "=> (float[1, 64, 16, 16] y) { y = Conv(x, w) }",
    "product of bytes": f"{HEAD} m (uint8[64, 96] x, int8[96, 128] w) => (int32[64, 128] y) "
                        "{ y = MatMulInteger(x, w) }",
    "convolution of bytes": f"{HEAD} m (uint8[1, 18, 18, 64] x, int8[64, 64, 3, 3] w) "
                            "=> (int32[1, 16, 16, 64] y) { a = Transpose<perm = [0, 3, 1, 2]>(x) "
                            "b = ConvInteger(a, w) y = Transpose<perm = [0, 2, 3, 1]>(b) }",
    "quantization": f"{HEAD} m (float[64, 96] x, float s, uint8 z) => (uint8[64, 96] y) "
                    "{ y = QuantizeLinear(x, s, z) }",
}


class Set(NamedTuple):
    """A set of features, and patterns of the instructions that floats, bytes and rounding need."""

    triple: str
    features: str
    floats: str
    bytes: str
    rounding: str


NEON, ARM = r"fmla\tv\d+\.4s, v\d+\.4s, v\d+\.s\[\d\]", r"fcvtzs\tv\d+\.4s"
SETS = (
    Set("x86_64-linux-gnu", "baseline", "mulps", "pmaddwd", "cvtps2dq"),
    Set("x86_64-linux-gnu", "avx2", r"vfmadd\d+ps\t.*%ymm", r"vpmaddwd\t.*%ymm", r"vcvtps2dq"),
    Set("x86_64-linux-gnu", "avx512", r"vfmadd\d+ps\t.*%zmm", r"vpmaddwd\t.*%zmm", "vcvtps2dq"),
    Set("x86_64-linux-gnu", "amx", r"vfmadd\d+ps\t.*%zmm", "tdpbusd|vpdpbusd", "vcvtps2dq"),
    Set("aarch64-linux-gnu", "baseline", NEON, r"smlal2?\tv\d+\.4s", ARM),
    Set("aarch64-linux-gnu", "dotprod", NEON, r"sdot\tv\d+\.4s", ARM),
    Set("aarch64-linux-gnu", "i8mm", NEON, r"usmmla\tv\d+\.4s", ARM),
    Set("aarch64-linux-gnu", "sve256", r"fml?ad?\tz\d+\.s", r"usmmla\tv\d+\.4s",
        r"fcvtzs\tz\d+\.s"),
    Set("riscv64-linux-gnu", "v", r"vfmacc\.vf", r"vwmacc(su|us|u)?\.v[vx]", r"vfcvt\.x\.f\.v"),
    Set("wasm32", "simd128", r"f32x4\.mul", r"i32x4\.dot_i16x8_s", r"i32x4\.trunc_sat_f32x4_s"),
)
SCALAR = {
    "x86_64": r"mulss|imull|cvtss2si", "aarch64": r"(fmadd|madd)\t[sw]\d|fcvtzs\tw\d+, s",
    "riscv64": r"fmadd\.s|mulw|fcvt\.[wl]\.s", "wasm32": r"f32\.mul|i32\.trunc\w*",
}
"""What the same takes lane by lane."""


def code_of(model: str, triple: str, features: str) -> Sequence[str]:
    """The lines of the machine code of the kernels, of a model with constant weights."""
    proto = onnx.parser.parse_model(MODELS[model])
    for port in proto.graph.input:
        if port.name == "w":
            shape = [dim.dim_value for dim in port.type.tensor_type.shape.dim]
            dtype = onnx.helper.tensor_dtype_to_np_dtype(port.type.tensor_type.elem_type)
            weights = np.random.default_rng(7).integers(-100, 100, shape).astype(dtype)
            proto.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    compilation = Compiler(model_of(proto), CompileOptions(triple=triple, features=features))
    text = lower_to_text(compilation, "asm")
    return [line.strip() for line in text.splitlines() if line.startswith("\t")]


def count(pattern: str, lines: Sequence[str]) -> int:
    return sum(re.match(pattern, line) is not None for line in lines)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kind", [pytest.param(s, id=f"{s.triple}-{s.features}") for s in SETS])
def test_innermost_loops_have_the_instructions_of_the_set(kind: Set, model: str) -> None:
    wanted = (kind.rounding if model == "quantization" else
              kind.bytes if "bytes" in model else kind.floats)
    lines = code_of(model, kind.triple, kind.features)
    found, scalar = count(wanted, lines), count(SCALAR[kind.triple.partition("-")[0]], lines)
    assert found >= 4, f"{found} times"
    assert scalar <= found / 4, f"{scalar} of single lanes beside {found}"
    calls = [line for line in lines if re.match(r"(callq?|bl)\t", line)]
    assert not [line for line in calls if re.search(r"f$|@PLT$", line) and "strata" not in line
                and re.search(r"rint|round|fma|nearby|exp|__", line)], calls


def test_without_vectors_no_function_is_called_for_a_lane() -> None:
    for triple in ("riscv64-linux-gnu", "wasm32"):
        lines = code_of("quantization", triple, "baseline")
        assert not count(r"(call|bl)\t.*(rint|round)", lines)
        assert count(SCALAR[triple.partition("-")[0]], lines)
