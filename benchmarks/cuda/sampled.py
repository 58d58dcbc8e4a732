"""Kernels at sizes that nobody tuned: drawn from a seed, beside PyTorch.

    python benchmarks/cuda/sampled.py --seed N [--classes product,norm] [--count 8] [--jobs 12]

draws `--count` rows of each class of benchmarks/shared/draws, and compiles each with
`torch.compile` for Strata and for PyTorch's modes (`--modes`); eager PyTorch takes part, too. Rows
compile side by side in `--jobs` processes and are measured one by one when all are ready: the time
is that on the device, from cold caches, contestants in turns. Results are compared with the same
function in f64. Results gather in `--results`, and the page is SAMPLED.md beside this file.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import torch
from rows import Setting
from rows.programs import Compiled, inductor, off, told
from rows.timing import device_times
from suites.contests import kept
from suites.kernels import slowest_kernels
from suites.sampled import EAGER, OURS, keys_of, page, parser_of, seeds_of

from compiler.torch.backend import strata

HERE = Path(__file__).parent
ROUNDING = 4e-3
"""Results in bf16 may be so far off."""
SHOWN = 14
"""So many kernels of a program are told."""


# ---------------------------------------------------------------------- one row
class Row:
    """A draw's programs, and what is measured of them."""

    def __init__(self, key: str, options: argparse.Namespace):
        from draws import classes

        name = key.split("/")[0]
        draw = classes()[name](Random(f"{options.seed}/{key}"))
        self.setting = Setting(seconds=options.seconds, smoke=options.smoke)
        self.device = "cpu" if options.smoke else "cuda"
        self.given = [v.to(self.device) for v in draw.make(getattr(torch, options.dtype))]
        self.record: dict[str, Any] = {"class": name, "name": draw.name, "errors": {},
                                       "notes": {}, "seconds": {}}
        self.calls: dict[str, Callable[..., Any]] = {}
        exact = self._exact(draw.call, options)
        self._enter(EAGER, lambda: Compiled(draw.call, 0.0), exact)
        self._enter(OURS, partial(self._ours, draw), exact)
        for mode in filter(None, options.modes.split(",")):
            self._enter(mode, partial(inductor, draw.call, self.given, mode), exact)

    def _exact(self, call: Callable[..., Any], options: argparse.Namespace) -> Any:
        """The result in f64, on the host; one process at a time has the memory for it."""
        with Path(options.lock).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            wide = [v.double() if v.is_floating_point() else v for v in self.given]
            try:
                return [v.double().cpu() for v in _listed(call(*wide))]
            except (torch.OutOfMemoryError, RuntimeError) as error:
                self.record["notes"]["f64"] = told(error)
                return None
            finally:
                del wide
                if not options.smoke:
                    torch.cuda.empty_cache()

    def _ours(self, draw: Any) -> Compiled:
        started = time.perf_counter()
        compiled = torch.compile(draw.call, backend=strata, dynamic=draw.open_size or False,
                                 options={"cache": "off"})
        compiled(*self.given)
        return Compiled(compiled, time.perf_counter() - started)

    def _enter(self, name: str, make: Callable[[], Compiled], exact: Any) -> None:
        """Let someone take part; who cannot is told."""
        try:
            compiled = make()
            found = _listed(compiled.call(*self.given))
        except Exception as error:
            self.record["notes"][name] = told(error)
            return
        if exact is not None:
            self.record["errors"][name] = max(
                off(a.double().cpu(), b) for a, b in zip(found, exact, strict=True))
        self.record["seconds"][name] = compiled.seconds
        self.calls[name] = partial(compiled.call, *self.given)

    def measure(self, kernels: bool) -> dict[str, Any]:
        self.record["ms"] = device_times(self.calls, self.setting)
        if kernels and not self.setting.smoke:
            self.record["kernels"] = {
                name: slowest_kernels(call, SHOWN) for name, call in self.calls.items()}
        return self.record


def _listed(found: Any) -> list[torch.Tensor]:
    return list(found) if isinstance(found, (list, tuple)) else [found]


def worker(options: argparse.Namespace) -> None:
    """Compile rows, telling each before it begins, wait for the turn, and print the records."""
    out = sys.stdout
    sys.stdout = sys.stderr
    tell: Callable[[str], None] = partial(print, file=out, flush=True)
    torch.backends.cudnn.benchmark = True
    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 10000
    made: dict[str, Row] = {}
    with torch.no_grad():
        for key in json.loads(options.rows):
            tell(json.dumps({"at": key}))
            made[key] = Row(key, options)
        tell(json.dumps({"ready": True}))
        sys.stdin.readline()
        for key in list(made):
            tell(json.dumps({"at": key}))
            tell(json.dumps({"key": key, "record": made.pop(key).measure(options.kernels)}))


# ---------------------------------------------------------------------- all rows
class Worker:
    """A process with rows of its own."""

    def __init__(self, keys: Sequence[str], lock: Path):
        self.keys, self.at = list(keys), ""
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (it lives as long as the worker)
        self.process = subprocess.Popen(
            [sys.executable, __file__, *sys.argv[1:], "--rows", json.dumps(keys),
             "--lock", str(lock)], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self.errors)

    def told(self) -> Iterator[dict[str, Any]]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            found = json.loads(line)
            self.at = found.get("at", self.at)
            yield found

    def compile(self) -> bool:
        """Whether all rows are ready; otherwise `at` is the one that ended the process."""
        return any("ready" in found for found in self.told())

    def measure(self) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return {found["key"]: found["record"] for found in self.told() if "record" in found}

    def fault(self) -> str:
        self.process.kill()
        self.errors.seek(0)
        lines = [x for x in self.errors.read().splitlines() if "rror" in x] or ["no time was left"]
        return lines[-1][:200]


def measured(keys: Sequence[str], options: argparse.Namespace) -> dict[str, Any]:
    """The records of rows; where one ends its process, the others of that process go on."""
    from threading import Thread, Timer

    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        lock = Path(folder, "lock")
        parts = [keys[k::options.jobs] for k in range(options.jobs)]
        workers = [Worker(part, lock) for part in parts if part]
        timer = Timer(options.budget, lambda: [w.process.kill() for w in workers])
        timer.start()
        threads = [Thread(target=_prepare, args=(workers, k, found, lock))
                   for k in range(len(workers))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for one in workers:
            found |= _turn(one)
        timer.cancel()
    return found


def _prepare(workers: list[Worker], k: int, found: dict[str, Any], lock: Path) -> None:
    """Compile the rows of a worker; start another one for what a fault has left."""
    while not workers[k].compile() and workers[k].at:
        lost = workers[k]
        found[lost.at] = {"class": lost.at.split("/")[0], "problem": lost.fault()}
        rest = [key for key in lost.keys if key != lost.at]
        if lost.process.wait() == -9 or not rest:
            return
        workers[k] = Worker(rest, lock)


def _turn(one: Worker) -> dict[str, Any]:
    try:
        found = one.measure()
    except (BrokenPipeError, ValueError):
        found = {}
    if one.process.wait() and one.at and one.at not in found:
        found[one.at] = {"class": one.at.split("/")[0], "problem": one.fault()}
    return found


# ---------------------------------------------------------------------- the command
def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__, "cuda_sampled", 570.0, 0.3, HERE / "SAMPLED.md")
    parser.add_argument("--jobs", type=int, default=12, help="processes that compile at a time")
    parser.add_argument("--modes", default="default", help="of torch.compile")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16", "float32"))
    parser.add_argument("--kernels", action="store_true", help="keep the slowest kernels")
    parser.add_argument("--smoke", action="store_true", help="on the CPU")
    parser.add_argument("--lock", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if options.rows:
        worker(options)
        return
    known = kept(options.results)
    known |= {f"{options.seed}/{key}": found
              for key, found in measured(keys_of(options), options).items()}
    options.results.write_text(json.dumps(known))
    machine = "" if options.smoke else (
        f"On {torch.cuda.get_device_name()}, {options.dtype}, seeds {seeds_of(known)}.")
    options.output.write_text(page(
        known, f"Made by `python benchmarks/cuda/sampled.py`; do not edit. {machine}",
        "Speed on the device over the best of eager PyTorch and `torch.compile`.", ROUNDING))
    print(options.output.read_text())


if __name__ == "__main__":
    main()
