"""Real programs, each as one graph through `torch.compile(backend="strata")`, against eager mode.

    python benchmarks/torch/programs.py [--device cpu] [--only NAME,...] [--jobs 1] [--seconds 300]
        [--kept FOLDER] [--page] [-o PROGRAMS.md]

Model classes of transformers, diffusers and timm (`zoo.py`), torchvision, torchao and PyTorch
Geometric, with random weights; nothing is downloaded. `--device cuda` runs them on a GPU, where
eager mode's convolutions are computed in f32, too. Verdicts:

    whole   one graph without a break; every node is compiled, and the results are eager mode's.
    split   some nodes run eagerly; the reason is what the warning says.
    wrong   the results differ.
    failed  PyTorch or the backend raises, crashes, or needs more than `--seconds`.
    absent  the library does not load here.

Programs run in processes of their own, as operators do in `opinfo.py`, `--jobs` at a time. Results
are kept in a folder, and a second run continues there. The page is written from all that is kept.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import logging
import sys
import tempfile
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from apart import Samples, gathered, keep, run_apart
from more_programs import PROGRAMS, declare_operators
from opinfo import CELL, EagerParts, first_line
from zoo import CASES

HERE = Path(__file__).parent
TOLERANCE = 1e-4
"""The largest deviation from eager f32, relative to the largest magnitude of a result."""
VERDICTS = ("whole", "split", "wrong", "failed", "absent")


def made(name: str) -> tuple[Any, tuple[Any, ...]]:
    """A program, and the arguments of a call."""
    if name in PROGRAMS:
        return PROGRAMS[name][1]()
    case = CASES[name][1]()
    case.module.names = tuple(case.inputs)
    return case.module, tuple(case.inputs.values())


def verdict(name: str, device: str) -> tuple[str, str]:
    """What becomes of a program, and why."""
    torch.manual_seed(0)
    try:
        with suppress(ImportError):
            declare_operators()  # other libraries look whether torchvision is there
        module, arguments = made(name)
    except (ImportError, RuntimeError) as error:
        return "absent", first_line(error)
    torch._dynamo.reset()  # sizes of another program of the same class would stay open
    module = module.to(device).eval()
    given = torch.utils._pytree.tree_map_only(torch.Tensor, lambda v: v.to(device), arguments)
    split = EagerParts()
    logging.getLogger("strata").addHandler(split)
    try:
        with torch.no_grad():
            want = copy.deepcopy(module)(*given)
            got = torch.compile(module, backend="strata", fullgraph=True)(*given)
    except Exception as error:
        return "failed", first_line(error)
    found = difference(got, want)
    return ("wrong", found) if found else ("split", split.why[0]) if split.why else ("whole", "")


def difference(got: Any, want: Any) -> str:
    """What differs between results; empty if nothing does."""
    flat = torch.utils._pytree.tree_leaves
    pairs = list(zip(flat(got), flat(want), strict=True))
    for a, b in pairs:
        if isinstance(b, torch.Tensor):
            if a.shape != b.shape or a.dtype != b.dtype:
                return f"{a.dtype}{list(a.shape)} instead of {b.dtype}{list(b.shape)}"
            far = float((a.double() - b.double()).abs().max()) if b.numel() else 0.0
            if not far <= TOLERANCE * max(1.0, float(b.double().abs().max()) if b.numel() else 0.0):
                return f"a deviation of {far:.2g}"
        elif a != b:
            return f"{a} instead of {b}"
    return ""


def page(found: dict[str, Samples], device: str) -> str:
    libraries: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for name, samples in found.items():
        library = (PROGRAMS if name in PROGRAMS else CASES)[name][0]
        libraries[library].update(state for state, _ in samples)
    versions = ", ".join(filter(None, map(_version, ("torch", *sorted({*libraries} - {"torch"})))))
    where = "the CPU" if device == "cpu" else f"an {torch.cuda.get_device_name()}"
    lines = ["# Real programs", "",
             f"Made by `python benchmarks/torch/programs.py --device {device}`; do not edit.",
             "", f"Each is one graph through `torch.compile`, with random weights, against eager "
             f"mode on {where}. The script tells the words. {versions}.", "",
             f"| library | programs | {' | '.join(VERDICTS)} |", f"|{'---|' * 7}"]
    lines += [f"| {library} | {counts.total()} | {' | '.join(str(counts[v]) for v in VERDICTS)} |"
              for library, counts in sorted(libraries.items())]
    lines += ["", "| program | | |", "|---|---|---|"]
    lines += [f"| {name} | {state} | {why.translate(CELL)} |"
              for name, samples in found.items() for state, why in samples]
    return "\n".join(lines) + "\n"


def _version(library: str) -> str:
    try:
        return f"{library} {importlib.import_module(library).__version__}"
    except (ImportError, RuntimeError):
        return ""


def run(device: str, names: list[str], seconds: float, kept: Path, jobs: int) -> None:
    """Run what is not kept yet: each job has a share of the programs, and a file."""
    known = gathered(kept, f"{device}*.jsonl")
    names = [name for name in names if name not in known]
    command = [sys.executable, __file__, "--worker", "--device", device]
    with ThreadPoolExecutor(jobs) as pool:
        running = [pool.submit(run_apart, command, names[job::jobs], seconds,
                               kept / f"{device}.{job}of{jobs}.jsonl", chunk=10)
                   for job in range(jobs)]
    for one in running:
        one.result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--kept", type=Path,
                        default=Path(tempfile.gettempdir()) / "strata-programs")
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--page", action="store_true")
    parser.add_argument("-o", type=Path, default=HERE / "PROGRAMS.md")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    names = [n for n in given.only.split(",") if n] or [*PROGRAMS, *CASES]
    if given.worker:
        torch.set_num_threads(1)
        torch.backends.cudnn.allow_tf32 = False
        torch._logging.set_logs(all=logging.ERROR)
        keep(given.kept, names, lambda name: [verdict(name, given.device)])
        return
    given.kept.mkdir(parents=True, exist_ok=True)
    if not given.page:
        run(given.device, names, given.seconds, given.kept, given.jobs)
    given.o.write_text(page(gathered(given.kept, f"{given.device}*.jsonl"), given.device))


if __name__ == "__main__":
    main()
