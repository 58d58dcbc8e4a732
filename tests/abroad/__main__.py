"""Run the samples of all operations on all machines that are emulated here.

QEMU runs code for ARM and RISC-V, and Node runs WebAssembly; ziglang compiles the C around it. The
outputs must be those of this process. A call goes on where the one before it ended, unless a source
has changed since; `--seconds` ends it before the next program.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from tests.abroad.batches import BATCHES, Workshop, examine, machines_here
from tests.abroad.record import ROOT, Record, sources_digest
from tests.targets.cpu.artifact.abroad import Abroad

RECORD = ROOT / ".pytest_cache" / "abroad.json"


def main() -> int:
    options = _options()
    machines = [m for m in machines_here() if all(w in m.name for w in options.machine)]
    if not machines:
        print("no such machine can be emulated here: programs need ziglang, and qemu-user or Node")
        return 0
    batches = options.batch or range(len(BATCHES))
    record, end = Record(options.record, sources_digest()), time.monotonic() + options.seconds
    names = {m: f"{m.name}{', open sizes' if options.open else ''}" for m in machines}
    wrong = sum(_check(number, names, record, end, options.open) for number in batches)
    left = sum(not record.has(name, n) for n in batches for name in names.values())
    print(*record.skipped(), sep="\n")
    print(f"{len(machines)} machines, {len(batches)} batches of samples: "
          f"{len(machines) * len(batches) - left} pairs are right, {left} are left, "
          f"{wrong} samples were wrong")
    return int(wrong > 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.abroad", description=__doc__)
    parser.add_argument("--seconds", type=float, default=float("inf"),
                        help="start no program after this time")
    parser.add_argument("--machine", action="append", default=[], metavar="WORD",
                        help="only machines with this word in their name, such as aarch64 or sve")
    parser.add_argument("--batch", type=int, action="append", metavar="N",
                        choices=range(len(BATCHES)), help=f"only this one of {len(BATCHES)}")
    parser.add_argument("--open", action="store_true", help="with open sizes instead of constants")
    parser.add_argument("--record", type=Path, default=RECORD, metavar="FILE",
                        help=f"what was right before; {RECORD.relative_to(ROOT)} by default")
    return parser.parse_args()


def _check(
    number: int, machines: Mapping[Abroad, str], record: Record, end: float, symbolic: bool
) -> int:
    """Run a batch on the machines of which it is not recorded. Returns how many samples are wrong.

    `machines`: with their names in the record. `end`: the time on the clock after which no machine
    is begun.
    """
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="strata-abroad-") as folder:
        workshop, batch = Workshop(Path(folder), symbolic), BATCHES[number]
        for machine, name in machines.items():
            began = time.monotonic()
            if record.has(name, number) or began > end:
                continue
            verdict = examine(batch, partial(workshop.differences, machine))
            print(f"{name}, batch {number}: {verdict.right} right, {len(verdict.wrong)} wrong, "
                  f"{len(verdict.skipped)} skipped, {time.monotonic() - began:.1f} s",
                  *verdict.wrong, sep="\n  ", flush=True)
            wrong += len(verdict.wrong)
            if not verdict.wrong:
                record.add(name, number, verdict.skipped)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
