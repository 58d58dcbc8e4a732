"""The report as text: the same facts as the page, without the texts of levels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from compiler.explaining.report import figure

Facts = dict[str, Any]
SHOWN = 12
"""How many kernels, reasons and passes are shown."""
_BAR = 32


def lines_of(facts: Facts) -> list[str]:
    parts = (_head, _failure, _kernels, _memory, _fusion, _comparison, _passes, _environment)
    return [line for part in parts for line in part(facts)]


def _head(facts: Facts) -> Iterator[str]:
    kernels, profile = facts["kernels"], facts["profile"]
    yield (f"{facts['model']} for {facts['target']}: {len(facts['nodes'])} nodes, "
           f"{len(kernels)} kernels, {sum(k['launches'] for k in kernels)} launches, "
           f"{figure(sum(k['bytes'] for k in kernels))}B moved, "
           f"{figure(sum(k['flops'] for k in kernels))}FLOP")
    if profile:
        yield f"{profile['wall_ms']:.4g} ms a call on {profile['where']}"
        yield from profile["notes"]
    yield from facts["notes"]


def _failure(facts: Facts) -> Iterator[str]:
    if failure := facts["failure"]:
        yield from ("", f"failed in {failure['where']}", *failure["message"].split("\n"))


def _kernels(facts: Facts) -> Iterator[str]:
    rows = sorted(facts["kernels"], key=lambda k: (-(k["ms"] or 0), -k["bytes"]))
    most = max((_weight(k) for k in rows), default=0)
    if rows:
        yield from ("", "kernels: ms, share of the limit, bytes, FLOPs")
    for row in rows[:SHOWN]:
        ms = f"{row['ms']:9.4f} {row['of_roofline']:5.0%}" if row["ms"] is not None else " " * 15
        yield (f"{ms} {figure(row['bytes']):>9}B {figure(row['flops']):>9} "
               f"{_bar(_weight(row), most)} {row['name']}: {_some(facts, row['nodes'])}")
    yield from _rest(rows)


def _weight(kernel: Facts) -> float:
    return kernel["ms"] if kernel["ms"] is not None else kernel["bytes"]


def _memory(facts: Facts) -> Iterator[str]:
    memory = facts["memory"]
    if not memory:
        return
    yield from ("", f"memory: an arena of {figure(memory['arena'])}B for buffers of "
                    f"{figure(memory['all_buffers'])}B; live bytes over "
                    f"{len(memory['timeline'])} steps")
    live = [step["live"] for step in memory["timeline"]]
    if any(live):
        yield f"  {_line(live)}"
        peak = memory["peak"]
        yield (f"  at most {figure(peak['live'])}B, at step {peak['step'] + 1}, {peak['launch']}: "
               f"{', '.join(peak['nodes'][:3])}")


def _fusion(facts: Facts) -> Iterator[str]:
    for title, fused in (("not fused", False), ("fused", True)):
        reasons = Counter(p["group"] for p in facts["pairs"] if p["fused"] == fused)
        if reasons:
            yield from ("", title)
        for reason, count in reasons.most_common(SHOWN):
            yield f"  {count} x {reason}"
        yield from _rest([*reasons])


def _comparison(facts: Facts) -> Iterator[str]:
    if found := facts["comparison"]:
        from compiler.measuring.contrast_table import lines_of as table

        yield from ("", *table({"cannot_run": "", "rounds": 0, **found}))


def _passes(facts: Facts) -> Iterator[str]:
    rows = sorted(facts["passes"], key=lambda row: -row["seconds"])
    if rows:
        yield from ("", f"passes: {sum(row['seconds'] for row in rows):.2f} s, the slowest first")
    for row in rows[:SHOWN]:
        counts = ", ".join(f"{row[what]} {what}" for what in (
            "removed", "added", "changed", "moved") if row.get(what))
        yield f"  {row['seconds']:7.3f} s {row['level']:>6} {row['name']}: {counts or '-'}"
    yield from _rest(rows)


def _environment(facts: Facts) -> Iterator[str]:
    yield from ("", "environment", *(f"  {line}" for line in facts["environment"]))
    yield from (f"  {line}" for line in (facts["command"],) if line)


def _rest(rows: Sequence[Any]) -> Iterator[str]:
    if len(rows) > SHOWN:
        yield f"  and {len(rows) - SHOWN} more"


def _some(facts: Facts, nodes: Sequence[int]) -> str:
    more = f" and {len(nodes) - 3} more" if len(nodes) > 3 else ""
    return ", ".join(facts["nodes"][k]["name"] for k in nodes[:3]) + more


def _bar(value: float, most: float) -> str:
    return "█" * round(_BAR / 2 * value / most) if most else ""


def _line(values: Sequence[int]) -> str:
    """Values over time in one line of blocks, each column the most of its steps."""
    width = min(len(values), 2 * _BAR)
    columns = [max(values[k * len(values) // width:
                          max((k + 1) * len(values) // width, k * len(values) // width + 1)])
               for k in range(width)]
    return "".join("▁▂▃▄▅▆▇█"[round(7 * c / max(values))] for c in columns)
