"""Gradients of model classes of transformers, diffusers and timm, through `torch.compile`.

    python benchmarks/torch/trained.py [--only BERT,ViT] [--rows FILE] [--page]

The classes are those of `models.py`, in training mode: dropout draws, and batch normalization takes
the statistics of the batch. Forward and backward are compiled with `fullgraph=True` for the CPU.
The loss is a sum of all outputs of floats with fixed random factors. A model is whole when no node
of either graph runs eagerly. It is right when its loss and its gradients are as near to those of
f64 as eager mode's f32 (a few times its error, or rounding of f32). Random numbers of f64 are those
that f32 draws. A model is called once before it is compiled, since some install hooks at their
first call. Where eager f32 itself is far from f64, since a batch norm of two values returns plus
and minus one whatever they are, batches are larger. Results are written to TRAINED.md beside this
file. Exit status: 0 when every model is whole and right, 1 otherwise.
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
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from models import NOISE, TOLERANCE
from opinfo import EagerParts
from torch.utils._python_dispatch import TorchDispatchMode
from zoo import CASES, Case

HERE = Path(__file__).parent
CONDITION, BATCH, MOST = 1e-2, 8, 0.1
"""Models of which eager f32 has a larger error get batches of this size. What then has more than
the most says nothing of a compiler."""
Found = tuple[torch.Tensor, list[torch.Tensor | None]]


@dataclass
class Row:
    """One model's line: seconds of the first step, and errors of gradients."""

    name: str
    library: str
    first: float = 0.0
    error: float = 0.0
    eager: float = 0.0
    apart: float = 0.0
    split: str = ""
    problem: str = ""

    @property
    def verdict(self) -> str:
        return self.problem or (f"split: {self.split}" if self.split else "whole and right")


def measure(name: str) -> Row:
    """A step of one model, compiled, eagerly, and in f64."""
    library, make = CASES[name]
    row, split = Row(name, library), EagerParts()
    torch._dynamo.reset()
    logging.getLogger("strata").addHandler(split)
    try:
        torch.manual_seed(0)
        case = make()
        fill_row(row, prepared(case), list(case.inputs.values()))
    except Exception as error:
        logging.debug(traceback.format_exc())
        row.problem = f"{type(error).__name__}: {error}".splitlines()[0]
    finally:
        logging.getLogger("strata").removeHandler(split)
    row.split = "; ".join(dict.fromkeys(split.why))
    return row


def prepared(case: Case) -> torch.nn.Module:
    """The model in training mode, after a first call."""
    module = case.module.train()
    with torch.no_grad():
        module(*case.inputs.values())
    return module


def fill_row(row: Row, module: torch.nn.Module, inputs: list[torch.Tensor]) -> None:
    own = copy.deepcopy(module)
    true, eager = eagerly(module, inputs)
    if distance(eager, true) > CONDITION and all(v.is_floating_point() for v in inputs):
        inputs = [torch.randn(BATCH, *v.shape[1:]) for v in inputs]
        true, eager = eagerly(module, inputs)
    started = time.perf_counter()
    ours = step(torch.compile(own, backend="strata", fullgraph=True), own, inputs)
    row.first = time.perf_counter() - started
    row.error, row.eager, row.apart = distance(ours, true), distance(eager, true), distance(
        ours, eager)
    if row.eager > MOST:
        row.problem = f"eager f32 is {row.eager:.1e} from f64, which compares nothing"
    elif not row.error <= max(TOLERANCE, NOISE * row.eager):
        row.problem = f"error {row.error:.1e}, that of eager f32 is {row.eager:.1e}"


def eagerly(module: torch.nn.Module, inputs: list[torch.Tensor]) -> tuple[Found, Found]:
    """A step in f64 and one in f32, each of a copy."""
    exact, own = copy.deepcopy(module).double(), copy.deepcopy(module)
    with DrawsOfSingles():
        true = step(exact, exact, [v.double() if v.is_floating_point() else v for v in inputs])
    return true, step(own, own, inputs)


class DrawsOfSingles(TorchDispatchMode):
    """Random numbers of f64 are drawn in f32, so that both have the same."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        named, f64 = dict(kwargs or {}), torch.float64
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **named)
        if named.get("dtype") == f64:
            return func(*args, **{**named, "dtype": torch.float32}).double()
        first, *more = args or (None,)
        if (not isinstance(first, torch.Tensor) or first.dtype != f64
                or any(isinstance(v, torch.Tensor) for v in more)):  # as of attention with dropout
            return func(*args, **named)
        made = func(first.float(), *more, **named)
        return first.copy_(made) if func._schema.is_mutable else made.double()


def step(call: Callable[..., tuple[torch.Tensor, ...]], module: torch.nn.Module,
         inputs: Sequence[torch.Tensor]) -> Found:
    """The loss, and the gradients of all parameters."""
    torch.manual_seed(1)
    outputs = [v for v in call(*inputs) if v.is_floating_point() and v.requires_grad]
    draws = torch.Generator().manual_seed(2)
    loss = sum((v * torch.randn(v.shape, generator=draws)).mean() for v in outputs)
    assert isinstance(loss, torch.Tensor), "no output has a gradient"
    loss.backward()
    return loss.detach(), [p.grad for p in module.parameters()]


def distance(found: Found, true: Found) -> float:
    """The difference of the gradients, relative to all of these; infinite if one is missing."""
    far = near = 0.0
    for a, b in zip(found[1], true[1], strict=True):
        if (a is None) != (b is None):
            return float("inf")
        if a is not None and b is not None:
            far += float((a.double() - b.double()).square().sum())
            near += float(b.double().square().sum())
    loss = float((found[0].double() - true[0].double()).abs() / true[0].abs().clamp_min(1.0))
    return max((far / max(near, 1e-60)) ** 0.5, loss)


# ---------------------------------------------------------------------- the table
def page(rows: Sequence[Row]) -> str:
    right = [r for r in rows if not r.problem and not r.split]
    lines = [
        "# Gradients of model classes", "",
        "Made by `python benchmarks/torch/trained.py`; do not edit.", "",
        f"Of {len(rows)} model classes, the forward and backward passes of {len(right)} compile "
        "whole for the CPU and are right: tiny configurations with random weights, in training "
        "mode. Error: the 2-norm of the difference of all gradients from those of f64, over the "
        "norm of these; beside it that of eager f32. `Unsupported` is an error of Dynamo, which "
        f"captures these models for no backend. torch {torch.__version__}.", "",
        "| model | library | first step | error | eager f32 | |", "|---|---|---|---|---|---|"]
    lines += [f"| {r.name} | {r.library} | {r.first:.1f} s | {r.error:.1e} | {r.eager:.1e} | "
              f"{r.verdict} |" for r in rows]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", help="names, separated by commas")
    parser.add_argument("--rows", type=Path, default=Path("build/torch_trained.json"),
                        help="results so far, merged with new ones; a second run continues")
    parser.add_argument("--page", action="store_true", help="only write the page")
    arguments = parser.parse_args()
    arguments.rows.parent.mkdir(parents=True, exist_ok=True)
    warnings.filterwarnings("ignore")
    known = json.loads(arguments.rows.read_text()) if arguments.rows.is_file() else {}
    wanted = arguments.only.split(",") if arguments.only else [n for n in CASES if n not in known]
    for name in [] if arguments.page else wanted:
        known[name] = asdict(row := measure(name))
        print(f"{name:20} {row.verdict}, error {row.error:.1e}", flush=True)
        arguments.rows.write_text(json.dumps(known, indent=1))
    rows = [Row(**known[name]) for name in CASES if name in known]
    (HERE / "TRAINED.md").write_text(page(rows))
    return int(any(r.problem or r.split for r in rows))


if __name__ == "__main__":
    sys.exit(main())
