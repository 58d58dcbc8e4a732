"""The figures of a PyTorch program that consists of several compiled parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from compiler.diagnostics import Problem, StrataError, visible
from compiler.profiling.result import Launch, ProfileResult

if TYPE_CHECKING:
    from compiler.torch.inspected.recorded import RecordedPart, Recording
    from compiler.torch.messages.breaks import Break


@dataclass(frozen=True)
class PartProfile:
    """A part. `stage`: "inference", "forward" or "backward". `called`: how often a call of the
    program calls it. `result`: the figures of one call of the part."""

    stage: str
    called: int
    result: ProfileResult

    @property
    def json(self) -> dict[str, Any]:
        return {"stage": self.stage, "called": self.called, **self.result.json}


@dataclass(frozen=True)
class ProgramProfile:
    """The profiles of all compiled parts of a program, in the order in which they are compiled.

    `eager`: nodes that run eagerly between them, with the reason. `captured`: the number of graphs
    that PyTorch captured; `breaks`: why they end before the program does. What runs eagerly is not
    timed.
    """

    parts: Sequence[PartProfile]
    eager: Sequence[tuple[Sequence[str], str]]
    captured: int
    breaks: Sequence[Break]

    @property
    def wall_ms(self) -> float:
        """Milliseconds of all compiled parts in a call of the program."""
        return sum(part.called * part.result.wall_ms for part in self.parts)

    @property
    def launches(self) -> list[Launch]:
        """The launches of a call of each part."""
        return [launch for part in self.parts for launch in part.result.launches]

    @property
    def json(self) -> dict[str, Any]:
        return {"wall_ms": self.wall_ms, "captured": self.captured,
                "parts": [part.json for part in self.parts],
                "breaks": [found.json for found in self.breaks],
                "eager": [{"nodes": list(nodes), "reason": why} for nodes, why in self.eager]}

    @property
    def trace(self) -> dict[str, Any]:
        """One call of each part after the other, in Chrome's trace format; a process for each."""
        events: list[dict[str, Any]] = []
        at = 0.0
        for number, part in enumerate(self.parts):
            for event in part.result.trace["traceEvents"]:
                moved = {"ts": event["ts"] + at} if "ts" in event else {}
                events.append({**event, **moved, "pid": number})
            at += part.result.wall_ms * 1e3
        return {"traceEvents": events, "displayTimeUnit": "ms"}

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        texts = [line for part in self.parts for line in (*_lines(part), "")]
        count = f"{len(self.parts)} compiled part" + ("s" if len(self.parts) > 1 else "")
        lines = [*texts, f"{self.wall_ms:.4g} ms in {count}; what runs eagerly is not timed",
                 *(f"a graph ends at {found}" for found in self.breaks),
                 *(f"runs eagerly: {', '.join(nodes)}: {why}" for nodes, why in self.eager)]
        return [visible(line) for line in lines]


def _lines(part: PartProfile) -> list[str]:
    often = [f"called {part.called} times"] if part.called > 1 else []
    return [*part.result.lines(), *often]


def profile_parts(
    recording: Recording, measure: Callable[[RecordedPart], ProfileResult]
) -> ProgramProfile:
    """The profile of a recorded program. `measure`: the figures of a part. Raises StrataError for
    a program without compiled parts."""
    called = [part for part in recording.parts if part.calls]
    if not called:
        raise StrataError("there is nothing to profile: no part of the program is compiled", [
            Problem(f"{', '.join(nodes)}: {why}") for nodes, why in recording.eager] or [
            Problem("PyTorch captured no graph with tensors", hint=(
                "TORCH_LOGS=graph_breaks says why; profile compiled programs that it calls by "
                "themselves"))])
    parts = [PartProfile(part.stage, part.calls, replace(
        measure(part), model=f"part {number}, {part.stage}"))
        for number, part in enumerate(called, 1)]
    return ProgramProfile(parts, recording.eager, recording.captured, recording.breaks)
