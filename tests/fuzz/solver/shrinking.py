"""Makes failing drawn models small, by the edits of `compiler.reduction` and our own judge.

Candidates are judged in a process of their own, since they may end it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from compiler.reduction.candidate import Candidate
from compiler.reduction.reducer import Reducer
from compiler.reduction.verdict import blame, shape_of
from tests.fuzz.solver.draft import Array
from tests.fuzz.solver.pool import Outcome, Worker

SECONDS, EACH = 90.0, 30.0
"""How long one model may be reduced, and one candidate be judged."""


@dataclass(frozen=True)
class Task:
    """What the process is to do: `judge`, `record` or `blame`."""

    do: str
    model: bytes
    feed: Mapping[str, Array]
    special: bool


def work(task: Task) -> Any:
    """Do it: an Outcome, the arrays by name, or the name of a pass."""
    from tests.fuzz.solver.generate import Generated
    from tests.fuzz.solver.judge import judge

    proto = onnx.load_from_string(task.model)
    feed = dict(task.feed)
    if task.do == "record":
        return _recorded(proto, feed)
    if task.do == "blame":
        return _blamed(task)
    found = judge(Generated(-1, proto, [feed], task.special))
    return Outcome(-1, found.kind, found.text)


def _recorded(proto: onnx.ModelProto, feed: dict[str, Array]) -> dict[str, Array]:
    from compiler.reduction.recording import with_all_outputs
    from tests.fuzz.solver.peers import run_peer, session_of

    told = with_all_outputs(proto)
    session = session_of(told)
    found = None if session is None or isinstance(session, str) else run_peer(session, feed)
    names = [info.name for info in told.graph.output]
    arrays = found if found is not None else _by_reference(told, feed)
    return {n: a for n, a in zip(names, arrays, strict=False) if isinstance(a, np.ndarray)}


def _by_reference(told: onnx.ModelProto, feed: Mapping[str, Array]) -> list[Array]:
    from compiler.frontend import ImportOptions, MemoryModel, load_model
    from targets.reference.interpret import interpret, model_function

    try:
        model = load_model(MemoryModel("all.onnx", told.SerializeToString()), ImportOptions())
        names = model_function(model.module).input_names
        return interpret(model.module, model.weights, [feed[n] for n in names])
    except Exception:  # then parts of the model that need its values cannot be tried
        return []


def _blamed(task: Task) -> str:
    from compiler.options import CompileOptions
    from compiler.reduction.verdict import Question

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "small.onnx"
        path.write_bytes(task.model)
        return blame(path, task.feed, Question(
            CompileOptions(cache="off", threads=1, tuned="off"), {}, tolerance=1e-6))


@dataclass
class Shrinker:
    """One failing model. `kind`, `text`: how it fails."""

    kind: str
    text: str
    special: bool
    folder: str
    worker: Worker | None = field(default=None)

    def run(self, proto: onnx.ModelProto, feed: Mapping[str, Array]) -> tuple[Candidate, str]:
        """The small model, and the first wrong pass where that is known."""
        reducer = Reducer(Candidate(proto, feed), self.fails, self.record,
                          time.monotonic() + SECONDS, lambda text: None)
        try:
            small = reducer.run()
            found = self._ask("blame", small) if self.kind == "wrong" else ""
            return small, found if isinstance(found, str) else ""
        finally:
            if self.worker is not None:
                self.worker.end()

    def fails(self, candidate: Candidate) -> bool:
        found = self._ask("judge", candidate)
        if not isinstance(found, Outcome) or found.kind != self.kind:
            return False
        told = self.kind in ("fault", "refused", "reference")
        return not told or shape_of(found.text) == shape_of(self.text)

    def record(self, candidate: Candidate) -> Mapping[str, Array]:
        found = self._ask("record", candidate)
        return found if isinstance(found, dict) else {}

    def _ask(self, do: str, candidate: Candidate) -> Any:
        """The answer; an Outcome of kind crash or timeout where there is none."""
        if self.worker is None:
            self.worker = Worker(work, self.folder)
        self.worker.give(Task(do, candidate.model.SerializeToString(), candidate.named_inputs(),
                              self.special))
        if not self.worker.connection.poll(EACH):
            self.worker.end()
            self.worker = None
            return Outcome(-1, "timeout")
        answer = self.worker.take()
        if isinstance(answer, Outcome) and answer.kind == "crash":
            self.worker.end()
            self.worker = None
        return answer
