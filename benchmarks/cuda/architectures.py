"""Kernels at sizes that nobody tuned, compiled for every GPU that the compiler knows; none is run.

    python benchmarks/cuda/architectures.py --seed N [--classes product,norm] [--count 1]

draws rows as sampled.py does, and compiles each for all architectures, which needs no GPU. It
records what a thread and a program of each kernel take: registers, bytes of spilled registers, and
shared memory. Rows gather in `--results`; the page is ARCHITECTURES.md beside this file. The exit
status is 1 if a row has no code for an architecture, or takes more shared memory than there is.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import torch

from compiler.api import model_of_argument
from compiler.options import CompileOptions as ModelOptions
from compiler.pipeline.driver import Compiler
from dialects.block import KernelOp
from targets.cuda.build.compile import CompileOptions, Job, compile_kernels, resources
from targets.cuda.build.worker import Worker, worker
from targets.cuda.emit import EmitOptions, emit_kernel
from targets.cuda.machine import is_nvidia, machine_of

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "shared"))
ARCHITECTURES = ("sm_80", "sm_89", "sm_90", "sm_100", "sm_120", "gfx942")
RUN = ("sm_90",)
"""Those on which kernels have run; the others are compiled only."""
LONGEST = 200
"""So many characters of an error are told."""
Record = dict[str, Any]


# ---------------------------------------------------------------------- one row
def record_of(key: str, known: Record, options: argparse.Namespace, compiler: Worker) -> Record:
    """What a row's kernels take on each architecture that is not known yet."""
    from draws import classes

    name = key.split("/")[0]
    draw = classes()[name](Random(f"{options.seed}/{key}"))
    program = exported(draw, getattr(torch, options.dtype))
    found: Record = dict(known.get("needs", {}))
    for arch in ARCHITECTURES:
        if not isinstance(found.get(arch), list):
            try:
                found[arch] = needs(program, arch, compiler)
            except Exception as error:  # one architecture must not lose the others
                found[arch] = " ".join(f"{type(error).__name__}: {error}".split())[:LONGEST]
    return {"class": name, "name": draw.name, "needs": found}


def exported(draw: Any, kind: torch.dtype) -> torch.export.ExportedProgram:
    class Row(torch.nn.Module):
        def forward(self, *given: torch.Tensor) -> Any:
            return draw.call(*given)

    with torch.no_grad():
        return torch.export.export(Row(), tuple(draw.make(kind)), strict=False)


def needs(
    program: torch.export.ExportedProgram, arch: str, compiler: Worker
) -> list[tuple[int, int, int]]:
    """Registers, bytes spilled and bytes of shared memory of each kernel."""
    target = "cuda" if is_nvidia(arch) else "hip"
    options = ModelOptions(target=target, features=arch, cache="off", tuned="off")
    module = Compiler(model_of_argument(program), options, []).lower("block").module
    jobs = [Job(emit_kernel(op, EmitOptions(ptx=is_nvidia(arch))), tuple(range(len(op.buffers))))
            for op in module.body.block.ops if isinstance(op, KernelOp)]
    found: list[tuple[int, int, int]] = []
    for binary in compile_kernels(jobs, CompileOptions(arch, processes=1), compiler):
        need = resources(binary)
        assert need is not None, "Triton's wheel tells what code takes"
        found.append((need.registers, need.local, binary.shared))
    return found


# ---------------------------------------------------------------------- the page
def page(records: Mapping[str, Record], told: str) -> str:
    lines = ["# Code for every GPU", "",
             "Made by `python benchmarks/cuda/architectures.py`; do not edit. " + told, "",
             f"Only {' and '.join(RUN)} has run these kernels; for the others they are compiled "
             "and were never run.", "",
             "| architecture | rows | without code | kernels | that spill | most registers | "
             "most spilled | most shared memory | there is | beyond it |",
             "|---|---|---|---|---|---|---|---|---|---|"]
    lines += [_summary(arch, records) for arch in ARCHITECTURES]
    lines += ["", "The most that a kernel of a row takes: registers of a thread, bytes that it "
              "spills, KiB of shared memory of a program.", "",
              f"| class | row | {' | '.join(ARCHITECTURES)} |",
              f"|---|---|{'---|' * len(ARCHITECTURES)}"]
    lines += [f"| {r['class']} | {r['name']} | {' | '.join(_cell(r, a) for a in ARCHITECTURES)} |"
              for r in sorted(records.values(), key=lambda r: (r["class"], r["name"]))]
    faults = [f"- {arch}, {r['class']}: {r['name']}: {r['needs'][arch]}" for arch in ARCHITECTURES
              for r in records.values() if isinstance(r["needs"].get(arch), str)]
    return "\n".join([*lines, *(["", "Without code:", "", *faults] if faults else []), ""])


def _kernels(arch: str, records: Sequence[Record]) -> list[Sequence[int]]:
    return [k for r in records if isinstance(r["needs"].get(arch), list) for k in r["needs"][arch]]


def _beyond(arch: str, records: Sequence[Record]) -> int:
    """How many kernels take more shared memory than a program can have."""
    return sum(k[2] > machine_of(arch).shared for k in _kernels(arch, records))


def _summary(arch: str, records: Mapping[str, Record]) -> str:
    rows = [r for r in records.values() if arch in r["needs"]]
    kernels = _kernels(arch, rows)
    faults = sum(isinstance(r["needs"][arch], str) for r in rows)
    most = [max((k[n] for k in kernels), default=0) for n in range(3)]
    cells = [arch, len(rows), faults, len(kernels), sum(k[1] > 0 for k in kernels), most[0],
             f"{most[1]} bytes", f"{most[2] / 1024:.0f} KiB",
             f"{machine_of(arch).shared // 1024} KiB", _beyond(arch, rows)]
    return f"| {' | '.join(map(str, cells))} |"


def _cell(record: Record, arch: str) -> str:
    kernels = _kernels(arch, [record])
    if not kernels:
        return "none" if arch in record["needs"] else ""
    registers, spilled, shared = (max(k[n] for k in kernels) for n in range(3))
    return f"{registers}, {spilled}, {shared / 1024:.0f}"


def main() -> int:
    from suites.contests import kept
    from suites.sampled import keys_of, parser_of, seeds_of

    parser = parser_of(__doc__, "architectures", 600.0, 0.0, HERE / "ARCHITECTURES.md")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16", "float32"))
    options = parser.parse_args()
    known: dict[str, Record] = kept(options.results)
    until, compiler = time.monotonic() + options.budget, worker()
    for key in keys_of(options):
        name = f"{options.seed}/{key}"
        made = known.get(name, {}).get("needs", {})
        if all(isinstance(made.get(arch), list) for arch in ARCHITECTURES):
            continue
        if time.monotonic() > until:
            break
        known[name] = record_of(key, known.get(name, {}), options, compiler)
        print(name, known[name], flush=True)
        options.results.parent.mkdir(parents=True, exist_ok=True)
        options.results.write_text(json.dumps(known))
    compiler.close()
    options.output.write_text(page(known, f"{options.dtype}, seeds {seeds_of(known)}."))
    rows = list(known.values())
    return int(any(isinstance(n, str) for r in rows for n in r["needs"].values()) or any(
        _beyond(arch, rows) for arch in ARCHITECTURES))


if __name__ == "__main__":
    sys.exit(main())
