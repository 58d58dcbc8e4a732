"""How exact the functions of the CPU target are, over all f32, beside onnxruntime's.

    python benchmarks/cpu/accuracy.py [--step 509] [-o benchmarks/cpu/ACCURACY.md]

One model of one node per function, on every `--step`-th of the 2^32 bit patterns and on the special
values: zeros of both signs, infinities, NaN, the least and the largest numbers. The reference is
NumPy in f64, rounded to f32. An error of 1 ulp is the distance of neighbouring f32 at the expected
result. Denormal inputs and results count as 0, as compiled models treat them. Products of functions
(GELU, Mish) are not here: what their formulas lose by cancellation, every implementation loses.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

import compiler
from compiler.faults import versions
from compiler.frontend import MemoryModel

HERE = Path(__file__).parent
FEATURES = ("avx512", "avx2")
TINY = float(np.finfo(np.float32).tiny)
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, TINY, -TINY,
                    np.finfo(np.float32).max, -np.finfo(np.float32).max], np.float32)
Function = Callable[[Any], Any]


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def erf(x: Any) -> Any:
    return np.vectorize(math.erf, [np.float64])(x)


def softplus(x: Any) -> Any:
    return np.logaddexp(x, 0)


FUNCTIONS: dict[str, Function] = {
    "Exp": np.exp, "Log": np.log, "Tanh": np.tanh, "Erf": erf, "Sigmoid": sigmoid,
    "Sin": np.sin, "Cos": np.cos, "Tan": np.tan, "Sqrt": np.sqrt, "Reciprocal": lambda x: 1 / x,
    "Asin": np.arcsin, "Acos": np.arccos, "Atan": np.arctan, "Sinh": np.sinh, "Cosh": np.cosh,
    "Asinh": np.arcsinh, "Acosh": np.arccosh, "Atanh": np.arctanh, "Softplus": softplus,
    "Elu": lambda x: np.where(x < 0, np.expm1(x), x),
}
"""ONNX operator -> what it computes in f64."""


def samples(step: int) -> np.ndarray:
    """Every `step`-th f32 that is no denormal, and the special values."""
    bits = np.arange(0, 1 << 32, step, np.uint64).astype(np.uint32)
    values = np.concatenate([bits.view(np.float32), SPECIAL])
    return values[~((np.abs(values) < TINY) & (values != 0))]


def model(name: str) -> bytes:
    """A model of one node."""
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n"]) for n in "xy")
    graph = helper.make_graph([helper.make_node(name, ["x"], ["y"])], name, [x], [y])
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9).SerializeToString()


def ulps(got: np.ndarray, exact: np.ndarray) -> tuple[float, int]:
    """The largest error in ulp of finite results, and how many others are wrong: what is NaN,
    infinite or zero there has to be so here, with its sign.

    Beyond the largest f32, and about the least, either side of the border is right.
    """
    with np.errstate(over="ignore"):
        want = exact.astype(np.float32)
    want = np.where(np.abs(want) < TINY, np.copysign(np.float32(0), want), want)
    normal = np.isfinite(want) & (np.abs(want) >= 2 * TINY) & (np.abs(want) < 3.4e38)
    spacing = np.spacing(np.abs(want[normal])).astype(np.float64)
    with np.errstate(invalid="ignore"):
        errors = np.abs(got[normal].astype(np.float64) - exact[normal]) / spacing
    clear = ~normal & ~(np.isfinite(exact) & (exact != 0))
    same = (np.isnan(got) & np.isnan(want)) | (
        (got == want) & ((np.signbit(got) == np.signbit(want)) | (want != 0)))
    lost = ~np.isfinite(errors)
    return (float(errors[~lost].max(initial=0.0)),
            int(np.count_nonzero(clear & ~same) + np.count_nonzero(lost)))


def runners(name: str) -> dict[str, Function]:
    """Who computes the function."""
    text = model(name)
    found: dict[str, Function] = {}
    for features in FEATURES:
        exe = compiler.compile(MemoryModel(f"{name}.onnx", text), cache="off",
                               threads=1, features=features)
        found[features] = lambda x, exe=exe: exe(x)[0]
    session = onnxruntime.InferenceSession(text, providers=["CPUExecutionProvider"])
    found["onnxruntime"] = lambda x: session.run(None, {"x": x})[0]
    return found


def row(name: str, x: np.ndarray) -> str:
    """A line of the table."""
    with np.errstate(all="ignore"):
        exact = FUNCTIONS[name](x.astype(np.float64))
    cells = [name]
    for run in runners(name).values():
        error, wrong = ulps(run(x), exact)
        cells.append(f"{error:.2f}" + (f", {wrong} special values differ" if wrong else ""))
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--step", metavar="N", type=int, default=509)
    parser.add_argument("-o", metavar="FILE.md", dest="output", type=Path,
                        default=HERE / "ACCURACY.md")
    options = parser.parse_args()
    x = samples(options.step)
    lines = ["# Accuracy of functions on the CPU", "",
             f"Made by `python benchmarks/cpu/accuracy.py --step {options.step}`; do not edit. The",
             f"largest error over {x.size:,} f32 of all magnitudes, in ulp.", "",
             f"With {', '.join(versions())}.", "",
             f"| operator | {' | '.join(FEATURES)} | onnxruntime |", "|---|---|---|---|"]
    for name in FUNCTIONS:
        lines.append(row(name, x))
        print(lines[-1], flush=True)
    options.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
