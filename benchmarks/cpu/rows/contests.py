"""One model in a contest of runtimes: what most rows are made of.

With one thread, what counts is the median of a call's CPU time, in which a busy machine shows
least; with several it is wall time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import compiler
from compiler.frontend import MemoryModel
from compiler.frontend.torch.capture import Captured
from compiler.measuring.contest import Contest, Run, rounds_within
from compiler.measuring.measure import captured_model, request_of
from compiler.peers import load_peer, peer_names
from rows import Figures, Missing, Setting, milliseconds

Array = np.ndarray[Any, np.dtype[Any]]
Inputs = Mapping[str, Array]
OURS = "strata"
STRANGE = 1e-2
"""From which difference on outputs are told to differ."""
LONGEST_NOTE = 160


class Race:
    """Our program of a model, and whoever else runs."""

    def __init__(self, model: str | Path, inputs: Inputs, setting: Setting,
                 precision: str = "f32", captured: Captured | None = None):
        """`captured`: the model, if it is one of PyTorch that no file has."""
        self.setting, self.contest = setting, Contest(setting.threads)
        if captured is None:
            captured = captured_model(str(model))
            source = model if captured is None else MemoryModel(str(model), captured.program)
        else:
            source = captured.program
        exe = compiler.compile(source, target="cpu", threads=setting.threads, precision=precision)
        arrays = [inputs[n] for n in exe.input_names] if set(exe.input_names) <= set(inputs) \
            else list(inputs.values())
        strided = not all(a.flags.c_contiguous for a in arrays)
        run = (lambda: exe(*arrays)) if strided else (lambda: exe.run(arrays))
        self.contest.add(OURS, run, 0.0)
        self._request = request_of(exe, arrays, str(model), captured)

    def add(self, name: str, run: Run) -> None:
        """Something that is measured beside."""
        self.contest.add(name, run, 0.0)

    def add_peer(self, name: str, twin: str | None = None) -> None:
        """A peer, on the same model or on a twin of it for its framework."""
        assert name in peer_names()
        request = self._request
        if twin is not None:
            request = replace(request, model=twin, captured=captured_model(twin))
        self.contest.add_peer(name, lambda: load_peer(name, request))

    def times(self) -> dict[str, float]:
        """Milliseconds of everyone's call."""
        runs = {name: e.run for name, e in self.contest.entrants.items()}
        rounds = rounds_within(runs, self.setting.seconds)
        rows = self.contest.rows(rounds)
        self._differences = {row["name"]: row["difference"] for row in rows}
        key = "cpu_ms" if self.setting.threads == 1 else "median_ms"
        return {row["name"]: row[key] for row in rows}

    def notes(self, peers: Sequence[str]) -> tuple[str, ...]:
        """Who could not take part, and whose results differ."""
        file = self._request.model
        absent = [' '.join(str(error).replace(file, Path(file).name).split())[:LONGEST_NOTE]
                  for error in self.contest.problems.values()]
        strange = [f"differs from {name} by {self._differences[name]:.0e}" for name in peers
                   if not self._differences.get(name, 0.0) <= STRANGE]
        return (*absent, *strange)

    def against_best(self, peers: Sequence[str]) -> Figures:
        """The fastest peer's time over ours."""
        times = self.times()
        present = [name for name in peers if name in times]
        notes = self.notes(present)
        if not present:
            raise Missing("; ".join(notes))
        ratio = min(times[name] for name in present) / times[OURS]
        return Figures(milliseconds(times[OURS]),
                       {name: milliseconds(times[name]) for name in present}, ratio, notes)


def duel(model: str | Path, inputs: Inputs, setting: Setting, peers: Mapping[str, str | None],
         precision: str = "f32") -> Figures:
    """A model against the best of some peers; a peer may have a twin of the model."""
    race = Race(model, inputs, setting, precision)
    for name, twin in peers.items():
        race.add_peer(name, twin)
    return race.against_best(list(peers))


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
