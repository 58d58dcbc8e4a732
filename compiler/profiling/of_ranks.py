"""The profiles of several ranks as one: a table of the slowest, and a trace of all of them."""

from __future__ import annotations

from typing import Any, NamedTuple

from compiler.profiling.result import ProfileResult
from targets.communication import all_of


class Merged(NamedTuple):
    """What `profile` shows: lines, JSON, and a trace in Chrome's format."""

    lines: list[str]
    json: dict[str, Any]
    trace: dict[str, Any]


def of_ranks(own: ProfileResult) -> Merged:
    """The profile of all ranks, which all call this; of one process, its own."""
    found: list[Merged] = [Merged(*m) for m in all_of((own.lines(), own.json, own.trace))]
    if len(found) == 1:
        return found[0]
    times = [m.json["plain_ms"] for m in found]
    slowest = times.index(max(times))
    told = ", ".join(f"rank {k} {ms:.4g}" for k, ms in enumerate(times))
    head = f"{len(found)} ranks, ms without the clock: {told}; the table is that of rank {slowest}"
    return Merged([head, *found[slowest].lines],
                  {**found[slowest].json, "ranks": [m.json for m in found]},
                  {**own.trace, "traceEvents": _events([m.trace for m in found])})


def _events(traces: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events of all ranks, each rank a process of the trace."""
    events: list[dict[str, Any]] = [{**event, "pid": rank} for rank, trace in enumerate(traces)
              for event in trace["traceEvents"]]
    for event in events:
        if event["name"] == "process_name":
            event["args"] = {"name": f"rank {event['pid']}: {event['args']['name']}"}
    return events
