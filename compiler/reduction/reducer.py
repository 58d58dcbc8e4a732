"""Tries smaller models as long as they fail in the same way, and keeps the smallest."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from compiler.reduction.candidate import Candidate
from compiler.reduction.ddmin import ddmin
from compiler.reduction.graphs import simpler, with_nodes, with_outputs
from compiler.reduction.shrink import array_names, simpler_numbers, smaller_dims

if TYPE_CHECKING:
    from dialects.strata.types import Array


class OutOfTime(Exception):
    """The time is up; the best candidate so far is the result."""


@dataclass
class Reducer:
    """`fails`: whether a candidate fails like the first one. `record`: records its values.

    `best` is the smallest failing model so far. `deadline`: a time of `time.monotonic`.
    """

    best: Candidate
    fails: Callable[[Candidate], bool]
    record: Callable[[Candidate], Mapping[str, Array]]
    deadline: float
    report: Callable[[str], None] = print
    tried: dict[bytes, bool] = field(default_factory=dict[bytes, bool])

    def run(self) -> Candidate:
        """Reduce until nothing more can be removed, or the time is up."""
        try:
            while self._pass():
                pass
        except OutOfTime:
            self.report("the time is up")
        return self.best

    def _pass(self) -> bool:
        """Try all kinds of edits once; return whether any helped."""
        before = self._size(self.best)
        for step in (self._outputs, self._nodes, self._simpler, self._dims, self._numbers):
            step()
            self.report(f"{self.best.nodes} nodes, {self.best.elements} elements left")
        return self._size(self.best) < before

    @staticmethod
    def _size(candidate: Candidate) -> tuple[int, int, int]:
        return candidate.nodes, candidate.elements, candidate.model.ByteSize()

    def _accepts(self, candidate: Candidate | None) -> bool:
        """Whether a candidate fails; if so, it becomes the best one. Raises OutOfTime."""
        if candidate is None:
            return False
        if time.monotonic() > self.deadline:
            raise OutOfTime
        key = _digest(candidate)
        if key not in self.tried:
            self.tried[key] = self.fails(candidate)
        if self.tried[key]:
            self.best = candidate
        return self.tried[key]

    # ------------------------------------------------------------------ kinds of edits
    def _outputs(self) -> None:
        start = self.best
        names = [info.name for info in start.model.graph.output]
        ddmin(names, lambda some: self._accepts(with_outputs(start, some)))
        self._accepts(with_outputs(self.best, [o.name for o in self.best.model.graph.output]))

    def _nodes(self) -> None:
        start = self.best
        if len(start.model.graph.node) < 2:
            return
        values = dict(self.record(start))
        ddmin(range(len(start.model.graph.node)),
              lambda some: self._accepts(with_nodes(start, some, values)))

    def _simpler(self) -> None:
        self._until_none(simpler)
        self._accepts(with_outputs(self.best, [o.name for o in self.best.model.graph.output]))

    def _dims(self) -> None:
        self._until_none(smaller_dims)

    def _numbers(self) -> None:
        for name in array_names(self.best):
            any(self._accepts(edit) for edit in simpler_numbers(self.best, name))

    def _until_none(self, edits: Callable[[Candidate], Iterator[Candidate]]) -> None:
        """Accept the first edit that still fails, and repeat until there is none."""
        while any(self._accepts(edit) for edit in edits(self.best)):
            pass


def _digest(candidate: Candidate) -> bytes:
    digest = hashlib.sha256(candidate.model.SerializeToString())
    for name, array in sorted(candidate.named_inputs().items()):
        digest.update(name.encode() + str((array.dtype, array.shape)).encode() + array.tobytes())
    return digest.digest()
