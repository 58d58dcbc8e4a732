"""The second demo: `python -m examples.training [--steps 30] [--dumps FOLDER]`.

Trains a small language model on this project's own pages, in eager mode, with PyTorch's compiler
and with Strata, from the same weights, batches and random numbers. Prints the losses beside each
other, the time of a step, how far the last gradients are from true ones, and where the dumps of
the forward and backward graphs lie.
Exit status: 0 when the losses follow those of eager mode, 1 when they do not.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from examples.training.model import Characters, batches

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "ARCHITECTURE.md", "docs/glossary.md")
BATCH, SPREAD = 16, 2e-3
"""The size of a batch, and the largest difference of losses that rounding explains."""


@dataclass
class Runner:
    """A copy of the model, and how it is called and trained."""

    name: str
    model: nn.Module
    call: Callable[..., Tensor]
    losses: list[float] = field(default_factory=list[float])
    times: list[float] = field(default_factory=list[float])

    def __post_init__(self) -> None:
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 2e-3)

    def step(self, batch: Sequence[Tensor], seed: int) -> None:
        started = time.perf_counter()
        torch.manual_seed(seed)
        self.optimizer.zero_grad()
        loss = self.call(*batch)
        loss.backward()
        self.optimizer.step()
        self.times.append((time.perf_counter() - started) * 1e3)
        self.losses.append(loss.item())


def runners(model: nn.Module, batch: Sequence[Tensor], dumps: Path) -> list[Runner]:
    """Eager mode, Strata, and PyTorch's compiler if it works here."""
    own = [copy.deepcopy(model) for _ in range(3)]
    made = [Runner("eager", own[0], own[0]), Runner("strata", own[1], torch.compile(
        own[1], backend="strata", options={"dump_dir": str(dumps)}))]
    inductor = torch.compile(own[2], options={"fallback_random": True})  # draws eager's numbers
    try:
        inductor(*batch)
    except Exception as error:
        print(f"inductor is left out: {type(error).__name__}: {str(error).splitlines()[0]}")
        return made
    return [*made, Runner("inductor", own[2], inductor)]


def gradients(model: nn.Module, call: Callable[..., Tensor], batch: Sequence[Tensor]
              ) -> list[Tensor]:
    torch.manual_seed(0)
    model.zero_grad()
    call(*batch).backward()
    return [p.grad.double() for p in model.parameters() if p.grad is not None]


def distance(found: Sequence[Tensor], true: Sequence[Tensor]) -> float:
    """The 2-norm of all differences, by that of the true gradients."""
    far = sum(float((a - b).square().sum()) for a, b in zip(found, true, strict=True))
    return (far / sum(float(b.square().sum()) for b in true)) ** 0.5


def error_of(runner: Runner, batch: Sequence[Tensor]) -> float:
    """How far the gradients are from those in f64."""
    exact = copy.deepcopy(runner.model).double()
    true = gradients(exact, exact, batch)
    return distance(gradients(runner.model, runner.call, batch), true)


def show_losses(found: Sequence[Runner]) -> None:
    print("\n  step" + "".join(f"{r.name:>12}" for r in found))
    count = len(found[0].losses)
    for k in sorted({*range(0, count, max(1, count // 8)), count - 1}):
        print(f"{k:6}" + "".join(f"{r.losses[k]:12.6f}" for r in found))
    print("\nmilliseconds per step: " + ", ".join(
        f"{r.name} {statistics.median(r.times[2:]):.1f}" for r in found))


def show_dumps(folder: Path) -> None:
    for name, graph in zip(("forward", "backward"), sorted(folder.glob("graph-*")), strict=False):
        files = sorted(graph.glob("[0-9][0-9]-*"))
        print(f"{name} graph: {len(files)} texts in {graph}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.training")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--dumps", type=Path, help="where dumps go; by default a new folder")
    options = parser.parse_args()
    text = "".join((ROOT / page).read_text(encoding="utf-8") for page in PAGES)
    names = sorted(set(text))
    ids = torch.tensor([names.index(c) for c in text])
    torch.manual_seed(0)
    model, given = Characters(len(names)), batches(ids, options.steps, BATCH)
    print(f"{len(text):,} characters of {', '.join(PAGES)}; "
          f"{sum(p.numel() for p in model.parameters()):,} parameters")
    dumps = options.dumps or Path(tempfile.mkdtemp(prefix="strata-training-"))
    found = runners(model, given[0], dumps)
    for number, batch in enumerate(given):
        for runner in found:
            runner.step(batch, number)
    show_losses(found)
    print("distance of gradients from those in f64: " + ", ".join(
        f"{r.name} {error_of(r, given[0]):.1e}" for r in found))
    show_dumps(dumps)
    eager, ours = (r.losses for r in found[:2])
    worst = max(abs(a - b) / a for a, b in zip(eager, ours, strict=True))
    print(f"losses differ from eager's by at most {worst:.1e} (allowed: {SPREAD:.0e})")
    return int(worst > SPREAD)


if __name__ == "__main__":
    sys.exit(main())
