"""How exact the functions of the CUDA target are on a GPU, in f32, f16 and bf16.

    python benchmarks/cuda/accuracy.py [--step 61] [-o benchmarks/cuda/ACCURACY.md]

One model per type, an output per function: on every `--step`-th f32, and on all f16 and bf16. The
reference is PyTorch in f64 on the same device. An error of 1 ulp is the distance of neighbouring
numbers at the expected result; 0.5 is unavoidable. Numbers below the least normal f32 count as 0.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
from onnx import TensorProto, helper

import compiler
from compiler.frontend import MemoryModel

HERE = Path(__file__).parent
TYPES = {"f32": (torch.float32, TensorProto.FLOAT), "f16": (torch.float16, TensorProto.FLOAT16),
         "bf16": (torch.bfloat16, TensorProto.BFLOAT16)}
Function = Callable[[Any], Any]


def gelu(x: Any) -> Any:
    return 0.5 * x * torch.special.erfc(-x * 0.5**0.5)


def gelu_tanh(x: Any) -> Any:
    return x * torch.sigmoid(2 * (2 / torch.pi)**0.5 * (x + 0.044715 * x**3))


@dataclass(frozen=True)
class Case:
    """An operator, what it computes in f64, and from where on its f32 formula cancels: below that,
    results count as 0."""

    function: Function
    operator: str
    attributes: dict[str, Any]
    least: float = 2.0**-126


def _case(operator: str, function: Function, least: float = 2.0**-126, **attributes: Any) -> Case:
    return Case(function, operator, attributes, least)


CASES = {
    "Exp": _case("Exp", torch.exp), "Log": _case("Log", torch.log),
    "Tanh": _case("Tanh", torch.tanh), "Erf": _case("Erf", torch.erf),
    "Sigmoid": _case("Sigmoid", torch.sigmoid), "Sin": _case("Sin", torch.sin),
    "Cos": _case("Cos", torch.cos), "Sqrt": _case("Sqrt", torch.sqrt),
    "Reciprocal": _case("Reciprocal", torch.reciprocal), "Tan": _case("Tan", torch.tan),
    "Asin": _case("Asin", torch.asin), "Acos": _case("Acos", torch.acos),
    "Atan": _case("Atan", torch.atan), "Sinh": _case("Sinh", torch.sinh),
    "Cosh": _case("Cosh", torch.cosh), "Asinh": _case("Asinh", torch.asinh),
    "Acosh": _case("Acosh", torch.acosh), "Atanh": _case("Atanh", torch.atanh),
    "Softplus": _case("Softplus", lambda x: torch.where(
        x > 30, x, torch.log1p(torch.exp(torch.clamp(x, max=30.0))))),
    "Elu": _case("Elu", lambda x: torch.where(x < 0, torch.expm1(x), x)),
    "Gelu, results above 1e-5": _case("Gelu", gelu, 1e-5),
    "Gelu by tanh, results above 1e-5": _case("Gelu", gelu_tanh, 1e-5, approximate="tanh"),
    "Silu, results above 1e-35": _case("Swish", lambda x: x * torch.sigmoid(x), 1e-35),
}


def model(element: int) -> bytes:
    """A model with all cases of a type, each an output of its own."""
    x, *results = (helper.make_tensor_value_info(n, element, ["n"])
                   for n in ("x", *(f"y{k}" for k in range(len(CASES)))))
    nodes = [helper.make_node(case.operator, ["x"], [f"y{k}"], **case.attributes)
             for k, case in enumerate(CASES.values())]
    graph = helper.make_graph(nodes, "functions", [x], results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)],
                             ir_version=11).SerializeToString()


def numbers(kind: Any, step: int) -> Any:
    """All numbers of a type, or every `step`-th, without those below the least normal f32."""
    if kind == torch.float32:
        bits = torch.arange(-1 << 31, 1 << 31, step, device="cuda").to(torch.int32)
    else:
        bits = torch.arange(-1 << 15, 1 << 15, device="cuda").to(torch.int16)
    x = bits.view(kind)
    return x[~((x.abs().float() < 2.0**-126) & (x != 0))]


def spacing(size: Any, kind: Any) -> Any:
    """The distance of neighbouring numbers of a type at a magnitude."""
    limits = torch.finfo(kind)
    exponent = torch.floor(torch.log2(size.clamp(min=limits.tiny)))
    return torch.exp2(exponent) * limits.eps


def errors(found: Any, exact: Any, least: float) -> tuple[float, int]:
    """The largest error in ulp, and how many results are NaN or infinite in the wrong place."""
    want, limits = exact.to(found.dtype), torch.finfo(found.dtype)
    near_end = exact.abs() >= limits.max * (1 - limits.eps)
    wrong = ~near_end & ((want.isnan() != found.isnan()) | (want.isinf() != found.isinf()))
    counted = want.isfinite() & found.isfinite() & ~near_end & (exact.abs() >= least)
    small = (exact.abs() < least) & (found.double().abs() > 2 * least)
    if not bool(counted.any()):
        return 0.0, int(wrong.sum() + small.sum())
    size = exact[counted]
    error = (found[counted].double() - size).abs() / spacing(size.abs(), found.dtype)
    return float(error.max()), int(wrong.sum() + small.sum())


def column(name: str, step: int) -> list[str]:
    """The errors of all cases in a type."""
    kind, element = TYPES[name]
    loaded = compiler.compile(MemoryModel(f"{name}.onnx", model(element)), target="cuda",
                              cache="off")
    x = numbers(kind, step)
    cells: list[str] = []
    for case, found in zip(CASES.values(), loaded(x), strict=True):
        error, wrong = errors(found, case.function(x.double()), case.least)
        cells.append(f"{error:.2f}" + (f", {wrong} of {x.numel()} wrong" if wrong else ""))
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--step", metavar="N", type=int, default=61)
    parser.add_argument("-o", metavar="FILE.md", dest="output", type=Path,
                        default=HERE / "ACCURACY.md")
    options = parser.parse_args()
    columns = [column(name, options.step) for name in TYPES]
    lines = ["# Accuracy of functions on a GPU", "",
             f"Made by `python benchmarks/cuda/accuracy.py --step {options.step}`; do not edit.",
             "The largest error in ulp; 0.5 is unavoidable. What f32 GELU loses near -4, its",
             "formula loses: 1 + erf cancels there, and 1 + tanh.", "",
             f"On {torch.cuda.get_device_name()}, torch {torch.__version__}.", "",
             f"| operator | {' | '.join(TYPES)} |", "|---|---|---|---|",
             *(f"| {' | '.join(cells)} |" for cells in zip(CASES, *columns, strict=True))]
    print(*lines, sep="\n")
    options.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
