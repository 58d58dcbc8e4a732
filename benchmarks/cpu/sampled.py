"""Kernels at sizes that nobody tuned, on the CPU: drawn from a seed, beside all peers.

    python benchmarks/cpu/sampled.py --seed N [--classes product,norm] [--count 8] [--threads 1]

draws `--count` rows of each class of benchmarks/shared/draws, of sizes for a processor, in f32. In
every other row of products and convolutions, weights are constants; in the others they are
arguments. Each row is exported once, and compared with onnxruntime, OpenVINO, eager PyTorch and
Inductor: with one thread by the median of a call's processor time, with several by wall time.
Results are compared with the same function in f64, and gather in `--results`. The page is
SAMPLED.md beside this file.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import torch
from rows import Setting
from rows.contests import Race
from suite import environment, processor
from suites.contests import kept
from suites.sampled import EAGER, keys_of, page, parser_of, seeds_of
from torch.utils.flop_counter import FlopCounterMode

from compiler.frontend.torch.capture import Captured
from compiler.measuring.comparison import error_of

HERE = Path(__file__).parent
PEERS = ("torch", "inductor", "onnxruntime", "openvino")
ROUNDING = 1e-5
"""Results in f32 may be so far off."""
LONGEST = 200
"""So many characters of an error are told."""
MOST_FLOPS, MOST_BYTES = 3e9, 48e6
"""No row has more: operations of products, and bytes of inputs and results."""
_BORDER = "taps outside the image are left out for whole tiles here, and for each place by oneDNN"
REASONS = dict.fromkeys(("dilated", "convolution larger"), _BORDER)
"""Why rows of a class may fall short: without padding, at as many products, these do not."""
Tensor = torch.Tensor


# ---------------------------------------------------------------------- one row
class Kernel(torch.nn.Module):
    """A draw as a module, some of whose inputs are buffers."""

    def __init__(self, draw: Any, buffers: list[Tensor]):
        super().__init__()
        self.draw, self.count = draw, len(buffers)
        for k, tensor in enumerate(buffers):
            self.register_buffer(f"weight_{k}", tensor)

    def forward(self, *given: Tensor) -> Any:
        return self.draw.call(*given, *(getattr(self, f"weight_{k}") for k in range(self.count)))


def drawn(key: str, seed: str) -> Any:
    """The first draw that a processor computes in about a tenth of a second."""
    from draws import classes

    random, make = Random(f"{seed}/{key}"), classes()[key.split("/")[0]]
    while not _is_small(draw := make(random)):
        pass
    return draw


def _is_small(draw: Any) -> bool:
    """Whether a draw is within the limits; no memory is taken to find out."""
    given = [torch.empty(a.shape, device="meta",
                         dtype=_kind(a.values)) for a in draw.inputs]
    if sum(t.nbytes for t in given) > MOST_BYTES:
        return False
    try:
        with FlopCounterMode(display=False) as counter:
            found = draw.call(*given)
    except (RuntimeError, NotImplementedError):  # what it does depends on values
        return True
    return counter.get_total_flops() <= MOST_FLOPS and (
        sum(t.nbytes for t in (*given, *_listed(found))) <= MOST_BYTES)


def _kind(values: Any) -> torch.dtype:
    return torch.bool if values == "mask" else (
        torch.int64 if isinstance(values, int) else torch.float32)


def _listed(found: Any) -> list[Tensor]:
    return list(found) if isinstance(found, (list, tuple)) else [found]


class Row(NamedTuple):
    """An exported draw, all that it is given, and what of that are arguments of the program."""

    draw: Any
    name: str
    module: Kernel
    program: torch.export.ExportedProgram
    given: list[Tensor]
    own: list[Tensor]


def exported(key: str, seed: str) -> Row:
    """A row, whose weights are constants in every other one of products and convolutions."""
    from draws import convolutions, products

    draw, name = drawn(key, seed), key.split("/")[0]
    given = draw.make(torch.float32)
    constant = int(key.split("/")[1]) % 2 == 1 and name in {**products.CLASSES,
                                                           **convolutions.CLASSES}
    own = given[:1] if constant else given
    module = Kernel(draw, given[len(own):]).eval()
    sizes = tuple({d: torch.export.Dim.AUTO for d in range(t.ndim)} for t in own)
    program = torch.export.export(module, tuple(own), strict=False,
                                  dynamic_shapes=(sizes,) if draw.open_size else None)
    return Row(draw, draw.name + (", constant weights" if constant else ""), module, program,
               given, own)


def measure(key: str, options: argparse.Namespace) -> dict[str, Any]:
    """The record of a row."""
    row = exported(key, options.seed)
    draw, given, own = row.draw, row.given, row.own
    captured = Captured(key, row.program, row.module)
    arrays = dict(zip(captured.input_names, (t.numpy() for t in own), strict=True))
    record: dict[str, Any] = {"class": key.split("/")[0], "name": row.name, "errors": {},
                              "notes": {}}
    with tempfile.TemporaryDirectory() as folder:
        race = Race(key, arrays, Setting(options.threads, options.seconds, Path(folder)),
                    captured=captured)
        for peer in PEERS:
            race.add_peer(peer)
        times = race.times()
    names = {"torch": EAGER}
    record["ms"] = {names.get(n, n): t for n, t in times.items()}
    record["notes"] = {n: " ".join(str(error).split())[:LONGEST]
                       for n, error in race.contest.problems.items()}
    exact = [v.double().numpy() for v in _listed(draw.call(
        *(v.double() if v.is_floating_point() else v for v in given)))]
    record["errors"] = {names.get(n, n): max(map(_error, entrant.outputs, exact))
                        for n, entrant in race.contest.entrants.items()}
    return record


def _error(found: Any, exact: Any) -> float:
    return error_of(found.astype(exact.dtype), exact)


def worker(options: argparse.Namespace) -> None:
    """Measure rows, telling each before it begins."""
    out = sys.stdout
    sys.stdout = sys.stderr
    torch.set_num_threads(options.threads)
    with torch.no_grad():
        for key in json.loads(options.rows):
            print(json.dumps({"at": key}), file=out, flush=True)
            try:
                record = measure(key, options)
            except Exception as error:
                told = f"{type(error).__name__}: {' '.join(str(error).split())}"
                record = {"class": key.split("/")[0], "name": drawn(key, options.seed).name,
                          "problem": told[:LONGEST]}
            print(json.dumps({"key": key, "record": record}), file=out, flush=True)


# ---------------------------------------------------------------------- all rows
def measured(keys: list[str], options: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    """The records of rows; where one ends its process, another process goes on with the rest."""
    until = time.monotonic() + options.budget
    while keys:
        command = [sys.executable, __file__, *sys.argv[1:], "--rows", json.dumps(keys)]
        at, limit = "", max(1.0, until - time.monotonic())
        with tempfile.TemporaryFile("w+") as errors, subprocess.Popen(
                ["timeout", "-k", "1", str(limit), *command], text=True, stdout=subprocess.PIPE,
                stderr=errors, env=environment()) as process:
            assert process.stdout is not None
            for line in process.stdout:
                found = json.loads(line)
                at = found.get("at", at)
                if "record" in found:
                    keys.remove(found["key"])
                    yield found["key"], found["record"]
        if not keys or time.monotonic() >= until:
            return
        keys.remove(at)
        yield at, {"class": at.split("/")[0],
                   "problem": f"its process ended with status {process.returncode}"}


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__, "cpu_sampled", 3600.0, 1.0, HERE / "SAMPLED.md")
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if options.rows:
        worker(options)
        return
    known = kept(options.results)
    for key, record in measured(keys_of(options), options):
        known[f"{options.seed}/{key}"] = record
        print(key, record.get("name", ""), record.get("problem") or {
            who: f"{t:.3g}" for who, t in record["ms"].items()}, flush=True)
        options.results.write_text(json.dumps(known))
    options.output.write_text(page(
        known, f"Made by `python benchmarks/cpu/sampled.py`; do not edit. On {processor()}, f32, "
        f"threads: {options.threads}, seeds {seeds_of(known)}.",
        "Speed over the best of eager PyTorch, Inductor, onnxruntime and OpenVINO.", ROUNDING,
        REASONS))


if __name__ == "__main__":
    main()
