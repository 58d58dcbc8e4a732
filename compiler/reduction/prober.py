"""Talks to the process that compiles and runs candidates, and restarts it if it dies or hangs."""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from compiler.reduction.candidate import Candidate
from compiler.reduction.process import Gone, Process
from compiler.reduction.verdict import RIGHT, Verdict


@dataclass
class Prober:
    """`words`: the options, as `probe` reads them. `limit`: seconds for one candidate.

    `check`: a user's command to run instead; exit status 1 means that the candidate still fails.
    """

    words: Sequence[str]
    limit: float
    check: str = ""
    process: Process = field(init=False, repr=False)
    asked: int = 0

    def __enter__(self) -> Self:
        self.scratch = tempfile.TemporaryDirectory(prefix="strata-reduce-")
        self.folder = Path(self.scratch.name)
        self.process = Process("compiler.reduction.probe", self.words, self.folder / "phase",
                               self.limit)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.end()
        self.scratch.cleanup()

    # ------------------------------------------------------------------ questions
    def judge(self, candidate: Candidate) -> Verdict:
        """The verdict on a candidate."""
        self.asked += 1
        model = self.folder / "candidate.onnx"
        inputs = candidate.save(model)
        if self.check:
            return self._checked(model, inputs)
        try:
            return Verdict(**self.process.ask(
                {"do": "judge", "model": str(model), "inputs": str(inputs)}))
        except Gone as gone:
            return Verdict(gone.kind, "", f"{gone} in {self.phase}")

    def blame(self, candidate: Candidate) -> str:
        """The first wrong pass; empty if none is found, or if the process dies."""
        model = self.folder / "blamed.onnx"
        inputs = candidate.save(model)
        try:
            return str(self.process.ask(
                {"do": "blame", "model": str(model), "inputs": str(inputs)})["pass"])
        except Gone:
            return ""

    def record(self, candidate: Candidate) -> dict[str, Any]:
        """Every value of the candidate by name; empty if it cannot be run."""
        from compiler.io.array_files import read_npz

        model, to = self.folder / "whole.onnx", self.folder / "recorded.npz"
        inputs = candidate.save(model)
        try:
            self.process.ask({"do": "record", "model": str(model), "inputs": str(inputs),
                              "to": str(to)})
        except Gone:
            return {}
        return dict(read_npz(to)) if to.exists() else {}

    @property
    def phase(self) -> str:
        """The last phase of the process."""
        return self.process.phase

    def _checked(self, model: Path, inputs: Path) -> Verdict:
        """The verdict of the user's command: exit status 1 means that it fails still."""
        words = shlex.split(self.check)
        if "{}" in self.check:
            words = [w.replace("{}", str(model)).replace("{inputs}", str(inputs)) for w in words]
        else:
            words.append(str(model))
        try:
            done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL, timeout=self.limit, check=False)
        except subprocess.TimeoutExpired:
            return Verdict("timeout", "", f"the command ran longer than {self.limit:g} s")
        if done.returncode == 1:
            return Verdict("check", "", "the command exits with 1")
        return Verdict(RIGHT, "", f"the command exits with {done.returncode}")
