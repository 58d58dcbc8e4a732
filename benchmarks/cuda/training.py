"""Whole steps of training on a GPU, beside PyTorch's eager mode and compiler.

    python benchmarks/cuda/training.py [--only BERT,GPT-2] [--jobs 2] [--budget 570]

A step sets gradients to none, computes the loss under bf16 autocast, its gradients, and a fused
AdamW, which is PyTorch's for all. Contestants are eager mode, `torch.compile` in its modes
"default" and "reduce-overhead", and Strata; they have equal weights and inputs. A model has a
process of its own. `--jobs` compile at a time and are measured one by one, in turns of contestants:
the time is the median over turns of a few steps in a row, by the clock, so that what the host needs
is in it.

`loss`: how far a loss of the first steps is from eager's (dropout differs by seed). Memory: the
most that PyTorch's allocator held for a contestant, parameters and states included. MFU is of the
model's own FLOPs, as PyTorch counts them, at 989 TFLOP/s. Results gather in `--results`, so that a
run can be made in parts. The page is TRAINING.md beside this file.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import torch
from torch import nn
from trained_models import MODELS

from compiler.torch.backend import strata

sys.path.append(str(Path(__file__).parents[1] / "shared"))

from suites.contests import chosen, hold, kept, parser_of, take_part, told
from suites.kernels import slowest_kernels

HERE = Path(__file__).parent
EAGER, STRATA = "eager", "strata"
PEAK = 989e12
"""FLOPs in a second of an H100's tensor cores with bf16."""
TURN, WARM = 4, 4
SHOWN = 20
"""So many kernels of a step are told."""
Step = Callable[[], torch.Tensor]


# ---------------------------------------------------------------------- one model
class Contest:
    """The contestants of a model, and what is measured of them."""

    def __init__(self, name: str, options: argparse.Namespace):
        self.options, self.device = options, "cpu" if options.smoke else "cuda"
        torch.manual_seed(0)
        torch.backends.cudnn.benchmark = True
        made = MODELS[name](options.smoke)
        self.order = torch.channels_last if made.channels_last else torch.contiguous_format
        self.module = made.module.train()
        self.inputs = [self._placed(v) for v in made.inputs]
        self.steps: dict[str, Step] = {}
        self.record: dict[str, Any] = {
            "name": name, "seconds": {}, "losses": {}, "memory": {}, "notes": {},
            "parameters": sum(p.numel() for p in self.module.parameters())}
        for who in (EAGER, *filter(None, options.modes.split(",")), STRATA):
            self._enter(who)

    def _placed(self, value: torch.Tensor) -> torch.Tensor:
        return value.to(self.device, memory_format=self.order if value.dim() == 4
                        else torch.contiguous_format)

    def _enter(self, who: str) -> None:
        """Let someone take part; who cannot is told."""
        before = 0 if self.options.smoke else torch.cuda.memory_allocated()
        module = copy.deepcopy(self.module).to(self.device, memory_format=self.order)
        try:
            step = self._step(who, module)
            torch.manual_seed(1)
            started = time.perf_counter()
            first = [step().item()]
            self.record["seconds"][who] = time.perf_counter() - started
            told(who, self.record["seconds"][who])
            first += [step().item() for _ in range(WARM)]
            self.record["losses"][who] = first
            self.record["memory"][who] = self._memory(step) - before
        except Exception as error:
            said = str(error).strip().splitlines() or [""]
            self.record["notes"][who] = f"{type(error).__name__}: {said[0]}"[:400]
            return
        finally:
            if not self.options.smoke:  # others compile beside this process
                torch.cuda.empty_cache()
        self.steps[who] = step

    def _step(self, who: str, module: nn.Module) -> Step:
        optimizer = torch.optim.AdamW(module.parameters(), 1e-4, fused=True)
        run = _compiled(who, module)

        def step() -> torch.Tensor:
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(self.device, torch.bfloat16):
                loss = run(*self.inputs)
            loss.backward()
            optimizer.step()
            return loss.detach()

        def marked() -> torch.Tensor:
            torch.compiler.cudagraph_mark_step_begin()
            return step().clone()

        return step if who in (EAGER, STRATA) else marked

    def _memory(self, step: Step) -> int:
        """The most bytes that are allocated in a step."""
        if self.options.smoke:
            return 0
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        step()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated()

    def flops(self) -> int:
        from torch.utils.flop_counter import FlopCounterMode

        try:
            with FlopCounterMode(display=False) as counter:
                self.steps[EAGER]()
        except AssertionError:  # it does not know attention whose heads share keys
            return 0
        return counter.get_total_flops()

    def measure(self) -> None:
        """Medians of milliseconds, in turns."""
        self.record["flops"] = self.flops() if EAGER in self.steps else 0
        taken: dict[str, list[float]] = {who: [] for who in self.steps}
        until = time.monotonic() + self.options.seconds
        while time.monotonic() < until or len(next(iter(taken.values()))) < 3:
            for who, step in self.steps.items():
                taken[who].append(self._turn(step))
        self.record["ms"] = {who: statistics.median(times) for who, times in taken.items()}
        if self.options.kernels and not self.options.smoke:
            peers = [who for who in self.steps if who not in (EAGER, STRATA)]
            best = sorted(peers, key=self.record["ms"].__getitem__)[:1]
            self.record["kernels"] = {who: slowest_kernels(self.steps[who], SHOWN)
                                      for who in (STRATA, *best) if who in self.steps}

    def _turn(self, step: Step) -> float:
        step()
        self._wait()
        started = time.perf_counter()
        for _ in range(TURN):
            step()
        self._wait()
        return (time.perf_counter() - started) * 1e3 / TURN

    def _wait(self) -> None:
        if not self.options.smoke:
            torch.cuda.synchronize()


def _compiled(who: str, module: nn.Module) -> Callable[..., torch.Tensor]:
    torch._dynamo.reset()
    if who == EAGER:
        return module
    if who == STRATA:
        return torch.compile(module, backend=strata, dynamic=False, options={"cache": "off"})
    return torch.compile(module, mode=who, dynamic=False)


# ---------------------------------------------------------------------- the page
def page(records: Mapping[str, Mapping[str, Any]], machine: str) -> str:
    done = [r for r in records.values() if r.get("ms")]
    peers = list(dict.fromkeys(who for r in done for who in r["ms"] if who != STRATA))
    columns = ["model", STRATA, *peers, "best / strata", "MFU", "of best", "memory / default",
               "first step / default", "loss"]
    lines = ["# Training on a GPU", "",
             "Made by `python benchmarks/cuda/training.py`; do not edit. " + machine, "",
             "Milliseconds of a whole step under bf16 autocast. Best: the fastest of PyTorch's "
             "ways.", "", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|",
             *[_line(r, peers) for r in done]]
    gains = [gain for r in done if (gain := _gain(r))]
    if gains:
        lines += ["", f"best / strata: geometric mean {geometric_mean(gains):.2f} of "
                      f"{len(gains)}, least {min(gains):.2f}"]
    notes = [f"- {r['name']}: {who}: {why}" for r in records.values()
             for who, why in [*r.get("notes", {}).items(),
                              *(("eager nodes", why) for why in r.get("eagerly", ())),
                              *([("all", r["problem"])] if "problem" in r else [])]]
    return "\n".join([*lines, "", *notes, ""])


def _gain(record: Mapping[str, Any]) -> float | None:
    times = record["ms"]
    peers = [t for who, t in times.items() if who != STRATA]
    return min(peers) / times[STRATA] if STRATA in times and peers else None


def _line(record: Mapping[str, Any], peers: Sequence[str]) -> str:
    times, gain = record["ms"], _gain(record)
    best = min((t for who, t in times.items() if who != STRATA), default=0.0)
    cells = [f"{times[who]:.3g}" if who in times else "" for who in (STRATA, *peers)]
    cells.append(f"{gain:.2f}" if gain else "")
    cells += [f"{record['flops'] / t / 1e-3 / PEAK:.0%}" if t and record["flops"] else ""
              for t in (times.get(STRATA), best)]
    for key in ("memory", "seconds"):
        found = record[key]
        both = found.get(STRATA) and found.get("default")
        cells.append(f"{found[STRATA] / found['default']:.2f}" if both else "")
    cells.append(_loss(record["losses"]))
    return f"| {record['name']} | " + " | ".join(cells) + " |"


def _loss(losses: Mapping[str, Sequence[float]]) -> str:
    """The largest relative difference of a loss from eager's."""
    if STRATA not in losses or EAGER not in losses:
        return ""
    pairs = zip(losses[STRATA], losses[EAGER], strict=True)
    return f"{max(abs(a - b) / abs(b) for a, b in pairs):.1e}"


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__, 2, 6.0, HERE / "TRAINING.md")
    parser.add_argument("--again", action="store_true", help="also models that have results")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if options.row:
        take_part(lambda: Contest(options.row, options))
        return
    done = {} if options.again else kept(options.results)
    names = [n for n in chosen(MODELS, options.only) if "ms" not in done.get(n, {})]
    machine = "On the CPU." if options.smoke else f"On {torch.cuda.get_device_name()}."
    hold(options, names, lambda records: page(records, machine))


if __name__ == "__main__":
    main()
