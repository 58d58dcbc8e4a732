"""Model classes of transformers, diffusers and timm, captured, compiled for the CPU, and compared.

    python benchmarks/torch/models.py [--only BERT,ViT] [--threads 1]

Weights are random and nothing is downloaded. The reference is the model in f64, run eagerly: a
compiled model is right when its error is at most a few times that of eager f32, or rounding of f32.
A model with dynamic dims runs at a second size on the same code. Results are written to RESULTS.md
beside this file. Exit status: 0 when every model is right, 1 otherwise.
"""

from __future__ import annotations

import argparse
import copy
import json
import logging
import sys
import time
import traceback
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from zoo import CASES, Case

import compiler

HERE = Path(__file__).parent
TOLERANCE = 2e-5
"""Allowed error against f64, relative to the largest magnitude of an output."""
NOISE = 4.0
"""... or so many times the error of eager f32."""


@dataclass
class Row:
    """One model's line: the number of graph operations, seconds, and errors at each size."""

    name: str
    library: str
    parameters: int = 0
    operations: int = 0
    capture: float = 0.0
    compile: float = 0.0
    sizes: str = ""
    error: float = 0.0
    eager: float = 0.0
    problem: str = ""


def measure(name: str, threads: int) -> Row:
    """Capture, compile and compare one model."""
    library, make = CASES[name]
    row = Row(name, library)
    try:
        torch.manual_seed(0)
        case = make()
        case.module.eval()
        with torch.no_grad():
            fill_row(row, case, threads)
    except Exception as error:
        logging.debug(traceback.format_exc())
        row.problem = f"{type(error).__name__}: {error}"
    return row


def fill_row(row: Row, case: Case, threads: int) -> None:
    started = time.perf_counter()
    program = torch.export.export(case.module, tuple(case.inputs.values()), strict=False,
                                  dynamic_shapes=dynamic_shapes(case))
    row.capture = time.perf_counter() - started
    started = time.perf_counter()
    executable = compiler.compile(program, threads=threads, cache="off")
    row.compile = time.perf_counter() - started
    row.operations = executable.text("graph").count("graph.")
    row.parameters = sum(p.numel() for p in case.module.parameters())
    row.sizes = ", ".join(s.name for s in executable.signature.symbols())
    exact = copy.deepcopy(case.module).double()
    for inputs in (case.inputs, *([resized(case)] if case.dynamic else [])):
        compare(row, case.module, exact, executable, inputs)


def dynamic_shapes(case: Case) -> dict[str, object] | None:
    """Every dynamic dim as a size of its own, unless the program finds that two are equal."""
    if not case.dynamic:
        return None
    dynamic = torch.export.Dim.DYNAMIC
    return {"inputs": tuple({k: dynamic for n, k in case.dynamic if n == name} or None
                            for name in case.inputs)}


def resized(case: Case) -> dict[str, torch.Tensor]:
    """The inputs with other dynamic dims: one element more in each."""
    found: dict[str, torch.Tensor] = {}
    for name, value in case.inputs.items():
        for dim in (k for n, k in case.dynamic if n == name):
            value = torch.cat([value, value.narrow(dim, 0, 1)], dim)
        found[name] = value
    return found


def compare(
    row: Row, module: torch.nn.Module, exact: torch.nn.Module,
    executable: compiler.api.Executable, inputs: Mapping[str, torch.Tensor],
) -> None:
    doubled = {k: v.double() if v.is_floating_point() else v for k, v in inputs.items()}
    want, eager = exact(*doubled.values()), module(*inputs.values())
    got = executable(*inputs.values())
    assert len(got) == len(want), f"{len(got)} outputs instead of {len(want)}"
    row.error = max(row.error, *(error_of(g, w) for g, w in zip(got, want, strict=True)))
    row.eager = max(row.eager, *(error_of(e, w) for e, w in zip(eager, want, strict=True)))
    if not row.error <= max(TOLERANCE, NOISE * row.eager):
        row.problem = f"error {row.error:.1e}, that of eager f32 is {row.eager:.1e}"


def error_of(got: torch.Tensor, want: torch.Tensor) -> float:
    """The largest deviation over the largest magnitude."""
    if got.shape != want.shape:
        return float("inf")
    scale = float(want.abs().max().clamp_min(1e-30)) if want.numel() else 1.0
    return float((got.double() - want.double()).abs().max()) / scale if want.numel() else 0.0


# ---------------------------------------------------------------------- the table
def table(rows: Sequence[Row]) -> str:
    right = [r for r in rows if not r.problem]
    import transformers

    lines = [
        "# Model classes through the PyTorch frontend", "",
        "Made by `python benchmarks/torch/models.py`; do not edit.", "",
        f"{len(right)} of {len(rows)} model classes are captured, compiled for the CPU and right: "
        "tiny configurations with random weights. Reference: eager f64. Error: largest deviation "
        "over largest magnitude, over all outputs and sizes; beside it that of eager f32. With "
        f"sizes, a second one ran on the same code. torch {torch.__version__}, transformers "
        f"{transformers.__version__}.", "",
        "| model | library | parameters | graph operations | sizes | capture | compile | error | "
        "eager f32 | |", "|---|---|---|---|---|---|---|---|---|---|"]
    for r in rows:
        lines.append(
            f"| {r.name} | {r.library} | {r.parameters:,} | {r.operations} | {r.sizes} | "
            f"{r.capture:.1f} s | {r.compile:.1f} s | {r.error:.1e} | {r.eager:.1e} | "
            f"{r.problem.splitlines()[0] if r.problem else 'right'} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="names, separated by commas")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rows", type=Path, default=Path("build/torch.json"),
                        help="results so far, merged with new ones")
    arguments = parser.parse_args()
    arguments.rows.parent.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(arguments.threads)
    warnings.filterwarnings("ignore")
    known = json.loads(arguments.rows.read_text()) if arguments.rows.is_file() else {}
    for name in arguments.only.split(",") if arguments.only else CASES:
        row = measure(name, arguments.threads)
        known[name] = asdict(row)
        print(f"{name:20} {row.problem or f'right, error {row.error:.1e}'}", flush=True)
        arguments.rows.write_text(json.dumps(known, indent=1))
    rows = [Row(**known[name]) for name in CASES if name in known]
    (HERE / "RESULTS.md").write_text(table(rows))
    return int(any(r.problem for r in rows))


if __name__ == "__main__":
    sys.exit(main())
