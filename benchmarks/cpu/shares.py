"""Shares of the roofline that kernels reach at sizes that nobody tuned: what has the most to gain.

    python benchmarks/cpu/shares.py --seed N --features avx2 [--classes top,norm] [--count 2]

draws rows as sampled.py does, compiles each for one thread of a processor with these features, and
compares its processor time with the least that its FLOPs and bytes take on this machine, at the
rates of its own products and copies with the same features. Data in a cache may move faster than
memory, so that a share may be above 1. Operations that are no FLOPs, such as comparisons, count as
none: the share of a sort is of its bytes. Rows gather in `--results`; the page is SHARES.md. It
says why a row is far from the roofline: most of its time is that of a call of the smallest program,
which is measured beside it, or its class has a reason in `REASONS`. Other rows have none yet, and
the exit status is then 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from statistics import geometric_mean, median
from typing import Any

import torch
from sampled import HERE, LONGEST, exported
from suite import processor
from suites.contests import kept
from suites.sampled import keys_of, parser_of

import compiler
from compiler.explaining.collect import Explanation
from compiler.frontend import model_of
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from compiler.profiling.roofline import Roofline, measured
from dialects.host import LaunchOp, host_function
from dialects.host.ops import CopyOp
from dialects.strata.binding import bind_sizes
from dialects.strata.types import Array, BufferType, buffer_type, byte_width
from dialects.symbolic.size_products import product

LOW = 0.25
"""Rows below this share are listed."""
REASONS = {
    "cross entropy": "each element is an exponential, whose operations count as no FLOPs",
    "sort": "four or five rounds through the row, in each of which scalars find their places",
}
"""Why kernels of a class stay far below the roofline of FLOPs and bytes."""
CALLED = 0.5
"""The share of a row's time from which on a call of the smallest program explains it."""


def as_stored(array: Array) -> Array:
    """An array of channels last as programs see it, with its dims in the order of memory."""
    return array if array.flags.c_contiguous else array.transpose(0, 2, 3, 1)


def smallest_call(options: argparse.Namespace) -> float:
    """The milliseconds of a call of a program that adds one to a number."""
    class Next(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    given = torch.zeros(1)
    exe = compiler.compile(torch.export.export(Next(), (given,), strict=False), target="cpu",
                           threads=1, features=options.features)
    return 1e3 * seconds_of(lambda: exe(given.numpy()), options.seconds)


def reason(found: dict[str, Any], call: float) -> str:
    """Why a row is far from the roofline, as far as that is known; `call`: milliseconds."""
    if call >= CALLED * found["ms"]:
        return f"a call of the smallest program takes {call:.3g} ms"
    return REASONS.get(found["class"], "")


def page(records: dict[str, dict[str, Any]], opening: str, call: float) -> str:
    """The table of classes, and the rows that are far from the roofline, with reasons."""
    by_class: dict[str, list[float]] = defaultdict(list)
    for found in records.values():
        if "share" in found:
            by_class[found["class"]].append(found["share"])
    lines = ["# Shares of the roofline at sizes that nobody tuned", "", opening, "",
             "| class | rows | share | least |", "|---|---|---|---|"]
    lines += [f"| {name} | {len(shares)} | {geometric_mean(shares):.2f} | {min(shares):.2f} |"
              for name, shares in sorted(by_class.items(), key=lambda item: min(item[1]))]
    low = sorted((f for f in records.values() if f.get("share", 1.0) < LOW),
                 key=lambda f: f["share"])
    failed = [f for f in records.values() if "problem" in f]
    return "\n".join([*lines, "", f"Rows below {LOW}:", "",
                      *(f"- {f['share']:.3f} {f['class']}: {f['name']}: {f['ms']:.3g} ms: "
                        f"{reason(f, call) or 'no reason is known'}" for f in low),
                      *(f"- {f['class']}: no result: {f['problem']}" for f in failed), ""])


def main() -> int:
    parser = parser_of(__doc__, "cpu_shares", 600.0, 0.3, HERE / "SHARES.md")
    parser.add_argument("--features", default="avx2")
    options = parser.parse_args()
    torch.set_num_threads(1)
    limits = measured(CompileOptions(target="cpu", threads=1, features=options.features))
    known, until = kept(options.results), time.monotonic() + options.budget
    for key in keys_of(options):
        name = f"{options.features}/{options.seed}/{key}"
        if name in known or time.monotonic() > until:
            continue
        try:
            with torch.no_grad():
                known[name] = share(key, options, limits)
        except Exception as error:
            told = " ".join(str(error).split())[:LONGEST]
            known[name] = {"class": key.split("/")[0], "problem": told}
        print(name, known[name], flush=True)
        options.results.parent.mkdir(parents=True, exist_ok=True)
        options.results.write_text(json.dumps(known))
    call = smallest_call(options)
    sets = ", ".join(sorted({k.split("/")[0] for k in known}))
    seeds = ", ".join(sorted({k.split("/")[1] for k in known}))
    options.output.write_text(page(known, (
        f"Made by `python benchmarks/cpu/shares.py`; do not edit. On {processor()}, one thread of "
        f"f32, features {sets}, seeds {seeds}; {limits.flops / 1e9:.0f} GFLOP/s and "
        f"{limits.bytes / 1e9:.1f} GB/s of its own products and copies."), call))
    return int(any("problem" in f or (f["share"] < LOW and not reason(f, call))
                   for f in known.values()))


def share(key: str, options: argparse.Namespace, limits: Roofline) -> dict[str, Any]:
    """The record of a row: its name, milliseconds, and share of the roofline."""
    row = exported(key, options.seed)
    chosen = CompileOptions(target="cpu", threads=1, features=options.features)
    work = Explanation(target="cpu")
    compilation = Compiler(model_of(row.program), chosen, [work])
    compilation.begin()
    state = compilation.prepare()
    exe = compiler.compile(row.program, target="cpu", threads=1, features=options.features)
    arrays = [t.numpy() for t in row.own]
    function = host_function(state.module)
    types = [a.type for a in function.input_arguments if isinstance(a.type, BufferType)]
    sizes = dict(bind_sizes(types, [as_stored(a) for a in arrays], function.input_names))
    least = 0.0
    for op in state.module.walk():
        if isinstance(op, LaunchOp):
            moved, flops = work.work_of(op, sizes)
            least += limits.seconds(flops, moved)
        elif isinstance(op, CopyOp):
            least += limits.seconds(0, sum(
                product(t.shape).evaluate(sizes) * byte_width(t.element)
                for t in map(buffer_type, op.operands)))
    took = seconds_of(lambda: exe(*arrays), options.seconds)
    return {"class": key.split("/")[0], "name": row.name, "ms": 1e3 * took, "share": least / took}


def seconds_of(call: Callable[[], object], seconds: float) -> float:
    """The median processor time of calls, which go on for so many seconds."""
    times: list[float] = []
    until = time.monotonic() + seconds
    while len(times) < 5 or time.monotonic() < until:
        start = time.thread_time()
        call()
        times.append(time.thread_time() - start)
    return median(times)


if __name__ == "__main__":
    sys.exit(main())
