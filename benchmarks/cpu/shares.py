"""Shares of the roofline that kernels reach at sizes that nobody tuned: what has the most to gain.

    python benchmarks/cpu/shares.py --seed N --features avx2 [--classes top,norm] [--count 2]

draws rows as sampled.py does, compiles each for one thread of a processor with these features, and
compares its processor time with the least that its FLOPs and bytes take on this machine, at the
rates of its own products and copies with the same features. Data in a cache may move faster than
memory, so that a share may be above 1. Operations that are no FLOPs, such as comparisons, count as
none: the share of a sort is of its bytes. Rows gather in `--results`; the page is SHARES.md.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
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
from dialects.strata.binding import bind_sizes
from dialects.strata.types import Array, BufferType

LOW = 0.25
"""Rows below this share are listed."""


def as_stored(array: Array) -> Array:
    """An array of channels last as programs see it, with its dims in the order of memory."""
    return array if array.flags.c_contiguous else array.transpose(0, 2, 3, 1)


def page(records: dict[str, dict[str, Any]], opening: str) -> str:
    """The table of classes, and the rows that are far from the roofline."""
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
                      *(f"- {f['share']:.3f} {f['class']}: {f['name']}: {f['ms']:.3g} ms"
                        for f in low),
                      *(f"- {f['class']}: no result: {f['problem']}" for f in failed), ""])


def main() -> None:
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
    sets = ", ".join(sorted({k.split("/")[0] for k in known}))
    seeds = ", ".join(sorted({k.split("/")[1] for k in known}))
    options.output.write_text(page(known, (
        f"Made by `python benchmarks/cpu/shares.py`; do not edit. On {processor()}, one thread of "
        f"f32, features {sets}, seeds {seeds}; {limits.flops / 1e9:.0f} GFLOP/s and "
        f"{limits.bytes / 1e9:.1f} GB/s of its own products and copies.")))


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
    times: list[float] = []
    until = time.monotonic() + options.seconds
    while len(times) < 5 or time.monotonic() < until:
        start = time.thread_time()
        exe(*arrays)
        times.append(time.thread_time() - start)
    return {"class": key.split("/")[0], "name": row.name, "ms": 1e3 * median(times),
            "share": least / median(times)}


if __name__ == "__main__":
    main()
