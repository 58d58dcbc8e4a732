"""The figures of a profile: as JSON, as text, and as a trace that Perfetto and Chrome show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from compiler.diagnostics import visible
from compiler.explaining.report import figure
from compiler.profiling.roofline import Roofline
from targets.profiles import Timings

SHOWN = 3
"""How many nodes of a kernel are shown by name."""
LISTED = 0.99
"""The share of all kernels' time that the kernels take which the text lists."""
FEW = 4
"""Fewer kernels than these are listed, too."""


@dataclass(frozen=True)
class Launch:
    """A launch: mean milliseconds, bytes and FLOPs of a run, and how often a run makes it.

    `live`: the bytes of intermediate values that memory holds at this launch. `narrow`: whether its
    products have narrow factors only. `code`: facts of its code, such as registers and spills.
    """

    kernel: str
    nodes: Sequence[str]
    ms: float
    runs: float
    bytes: float
    flops: float
    live: int = 0
    narrow: bool = False
    code: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True)
class ProfileResult:
    """A profile of a model. Milliseconds are means over the timed runs.

    `wall_ms`: a run of the program that times launches; `plain_ms`: of the program as it is
    compiled otherwise. `host_ms`: the gaps between launches; `call_ms`: the call around them.
    `rest_ms` is what the other clock, that of `wall_ms`, tells more or less than all of these.
    """

    model: str
    times: Timings
    arena: int
    launches: Sequence[Launch]
    roofline: Roofline

    @property
    def wall_ms(self) -> float:
        return self.times.wall * 1e3

    @property
    def plain_ms(self) -> float:
        return self.times.plain * 1e3

    @property
    def host_ms(self) -> float:
        return self.times.host * 1e3

    @property
    def overhead(self) -> float | None:
        """The share of the time that timing adds; None where `overhead_told` says why not."""
        return None if self.times.disturbed else self.wall_ms / self.plain_ms - 1

    @property
    def overhead_told(self) -> str:
        """The share of the time that timing adds, in words, or why it is not known."""
        if self.overhead is not None:
            return f"{100 * self.overhead:.1f}%"
        return ("not measurable: other programs had the processor, which changes both times by "
                "more than the clock costs")

    @property
    def call_ms(self) -> float:
        return self.times.call * 1e3

    @property
    def rest_ms(self) -> float:
        """What is not accounted for, of the wall."""
        return self.wall_ms - self.host_ms - self.call_ms - sum(x.ms for x in self.launches)

    @property
    def gaps(self) -> list[dict[str, Any]]:
        """The rows that no kernel is in. With the kernels they add up to the wall."""
        rows = (("launch gaps", self.times.between, self.host_ms),
                ("call", self.times.outside, self.call_ms),
                ("rest", "not accounted for", self.rest_ms))
        return [{"name": name, "what": what, "ms": ms, "share": ms / self.wall_ms}
                for name, what, ms in rows]

    def of_roofline(self, ms: float, flops: float, moved: float, narrow: bool = False) -> float:
        """The least time for the work, as a share of the time taken."""
        return self.roofline.seconds(flops, moved, narrow) * 1e3 / ms if ms > 0 else 0.0

    # ------------------------------------------------------------------ JSON
    @property
    def json(self) -> dict[str, Any]:
        return {
            "model": self.model, "wall_ms": self.wall_ms, "plain_ms": self.plain_ms,
            "overhead": self.overhead, "overhead_told": self.overhead_told,
            "host_ms": self.host_ms, "call_ms": self.call_ms,
            "calls": self.times.calls, "where": self.times.where, "notes": list(self.times.notes),
            "arena": self.arena, "launches": sum(x.runs for x in self.launches),
            "roofline": {"flops_per_s": self.roofline.flops, "bytes_per_s": self.roofline.bytes,
                         "narrow_flops_per_s": self.roofline.narrow or None},
            "kernels": self._kernels(), "gaps": self.gaps, "nodes": self._nodes(),
            "memory": self.memory}

    @property
    def memory(self) -> list[dict[str, Any]]:
        """Memory over time: the milliseconds at which each launch ends, and what is live in it."""
        ends = accumulate(launch.ms for launch in self.launches)
        return [{"kernel": x.kernel, "nodes": list(x.nodes), "until_ms": end, "live": x.live}
                for x, end in zip(self.launches, ends, strict=True)]

    def _kernels(self) -> list[dict[str, Any]]:
        """The kernels, the slowest first, each with all of its launches."""
        found: dict[str, list[Launch]] = {}
        for launch in self.launches:
            found.setdefault(launch.kernel, []).append(launch)
        rows = [self._kernel(name, launches) for name, launches in found.items()]
        return sorted(rows, key=lambda row: -row["ms"])

    def _kernel(self, name: str, launches: list[Launch]) -> dict[str, Any]:
        ms, moved, flops = (sum(values) for values in zip(
            *((x.ms, x.bytes, x.flops) for x in launches), strict=True))
        return {"name": name, "ms": ms, "share": ms / self.wall_ms, "bytes": moved,
                "flops": flops,
                "of_roofline": self.of_roofline(ms, flops, moved, launches[0].narrow),
                "bound": self.roofline.bound(flops, moved, launches[0].narrow),
                "launches": sum(x.runs for x in launches), "narrow": launches[0].narrow,
                "nodes": list(dict.fromkeys(n for x in launches for n in x.nodes)),
                **{key: max(x.code.get(key, 0) for x in launches) for key in launches[0].code}}

    def _nodes(self) -> list[dict[str, Any]]:
        """The nodes: the time of the launches that compute them, and with how many others."""
        found: dict[str, list[Launch]] = {}
        for launch in self.launches:
            for node in launch.nodes:
                found.setdefault(node, []).append(launch)
        rows = [{"name": name, "ms": sum(x.ms for x in launches),
                 "kernels": list(dict.fromkeys(x.kernel for x in launches)),
                 "shared_with": max(len(x.nodes) for x in launches) - 1}
                for name, launches in found.items()]
        return sorted(rows, key=lambda row: -float(str(row["ms"])))

    @property
    def trace(self) -> dict[str, Any]:
        """A run of mean times in Chrome's trace format: launches one after another."""
        events: list[dict[str, Any]] = [
            {"name": "process_name", "ph": "M", "pid": 0, "tid": 0,
             "args": {"name": f"{self.model}: mean of {self.times.calls} runs"}},
            {"name": "call", "ph": "X", "pid": 0, "tid": 0, "ts": 0.0, "dur": self.wall_ms * 1e3,
             "args": {"host_ms": self.host_ms, "call_ms": self.call_ms}}]
        at = 0.0
        for launch in self.launches:
            events.append({"name": launch.kernel, "ph": "X", "pid": 0, "tid": 1, "ts": at * 1e3,
                           "dur": launch.ms * 1e3, "cat": "kernel", "args": {
                               "nodes": list(launch.nodes), "bytes": launch.bytes,
                               "flops": launch.flops, "runs": launch.runs, **launch.code,
                               "of_roofline": self.of_roofline(
                                   launch.ms, launch.flops, launch.bytes, launch.narrow)}})
            events.append({"name": "live bytes", "ph": "C", "pid": 0, "ts": at * 1e3,
                           "args": {"bytes": launch.live}})
            at += launch.ms
        return {"traceEvents": events, "displayTimeUnit": "ms"}

    # ------------------------------------------------------------------ text
    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """What people read."""
        times, roof = self.times, self.roofline
        rows = self._kernels()
        coded = any("registers" in row for row in rows)
        columns = f" {'regs':>4} {'spill':>6}" if coded else ""
        narrow = f" ({figure(roof.narrow)}FLOP/s for narrow factors)" if roof.narrow else ""
        plain = f"; without the clock {self.plain_ms:.4g} ms (overhead {self.overhead_told})"
        head = [
            f"{self.model}: {self.wall_ms:.4g} ms a call on {times.where}, mean of "
            f"{times.calls}{plain}", *times.notes,
            f"roofline: {figure(roof.flops)}FLOP/s{narrow}, {figure(roof.bytes)}B/s; "
            "above 100% where data are in caches or numbers are narrow",
            f"{'ms':>9} {'share':>6} {'limit by':>11} {'bytes':>9} {'FLOP':>9} {'runs':>5}"
            f"{columns}  kernel"]
        listed = _listed(rows)
        table = [*(self._line(row, coded) for row in rows[:listed]), *_together(rows[listed:])]
        rest = [f"{_whole(row['ms'], 4):9.4f} {_whole(row['share'], 3):6.1%}  {row['name']}: "
                f"{row['what']}" for row in self.gaps]
        return [visible(line) for line in (*head, *table, *rest, self._memory_line())]

    def _line(self, row: dict[str, Any], coded: bool) -> str:
        code = (f" {row.get('registers', '?'):>4} {figure(row['spills']) + 'B':>6}"
                if "registers" in row else " " * 12)
        return (f"{row['ms']:9.4f} {row['share']:6.1%} {row['of_roofline']:5.0%} {row['bound']} "
                f"{figure(row['bytes']):>9} {figure(row['flops']):>9} {row['launches']:5.4g}"
                f"{code if coded else ''}  {row['name']}: {_some(row['nodes'])}")

    def _memory_line(self) -> str:
        line = f"memory: an arena of {figure(self.arena)}B for all buffers"
        if not any(x.live for x in self.launches):
            return line
        peak = max(self.launches, key=lambda x: x.live)
        return (f"{line}; at most {figure(peak.live)}B are live, first in {peak.kernel}: "
                f"{_some(peak.nodes)}")


def _listed(rows: Sequence[Mapping[str, Any]]) -> int:
    """How many of the slowest kernels take nearly all of the time of all."""
    times = [*accumulate(row["ms"] for row in rows)]
    enough = sum(t < LISTED * times[-1] for t in times) + 1
    return len(rows) if len(rows) - enough < FEW else enough


def _together(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line for the kernels that are not listed; none if there are none."""
    ms, share = (sum(row[key] for row in rows) for key in ("ms", "share"))
    return [f"{ms:9.4f} {share:6.1%}  {len(rows)} more kernels (--json has all)"] if rows else []


def _whole(number: float, digits: int) -> float:
    """A number that is rounded, without the sign of a negative zero."""
    return round(number, digits) + 0.0


def _some(nodes: Sequence[str]) -> str:
    more = f" and {len(nodes) - SHOWN} more" if len(nodes) > SHOWN else ""
    return ", ".join(nodes[:SHOWN]) + more
