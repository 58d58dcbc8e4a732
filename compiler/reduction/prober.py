"""Talks to the process that compiles and runs candidates, and restarts it if it dies or hangs."""

from __future__ import annotations

import json
import selectors
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from compiler.reduction.candidate import Candidate
from compiler.reduction.verdict import RIGHT, Verdict

START = 60.0
"""The additional seconds that a new process may take."""


class Gone(Exception):
    """The process did not answer: `kind` is crash or timeout."""

    def __init__(self, kind: str, text: str):
        super().__init__(text)
        self.kind = kind


@dataclass
class Prober:
    """`words`: the options, as `probe` reads them. `limit`: seconds for one candidate.

    `check`: a user's command to run instead; exit status 1 means that the candidate still fails.
    """

    words: Sequence[str]
    limit: float
    check: str = ""
    process: subprocess.Popen[str] | None = field(default=None, repr=False)
    asked: int = 0

    def __enter__(self) -> Self:
        self.scratch = tempfile.TemporaryDirectory(prefix="strata-reduce-")
        self.folder = Path(self.scratch.name)
        self.phases = self.folder / "phase"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()
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
            return Verdict(**self._ask({"do": "judge", "model": str(model),
                                        "inputs": str(inputs)}))
        except Gone as gone:
            return Verdict(gone.kind, "", f"{gone} in {self.phase}")

    def blame(self, candidate: Candidate) -> str:
        """The first wrong pass; empty if none is found, or if the process dies."""
        model = self.folder / "blamed.onnx"
        inputs = candidate.save(model)
        try:
            return str(self._ask({"do": "blame", "model": str(model),
                                  "inputs": str(inputs)})["pass"])
        except Gone:
            return ""

    def record(self, candidate: Candidate) -> dict[str, Any]:
        """Every value of the candidate by name; empty if it cannot be run."""
        from compiler.io.array_files import read_npz

        model, to = self.folder / "whole.onnx", self.folder / "recorded.npz"
        inputs = candidate.save(model)
        try:
            self._ask({"do": "record", "model": str(model), "inputs": str(inputs), "to": str(to)})
        except Gone:
            return {}
        return dict(read_npz(to)) if to.exists() else {}

    @property
    def phase(self) -> str:
        """The last phase of the process."""
        return self.phases.read_text(encoding="utf-8") if self.phases.exists() else "the start"

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

    # ------------------------------------------------------------------ the process
    def _ask(self, question: dict[str, str]) -> dict[str, Any]:
        """Raises Gone."""
        fresh = self.process is None
        process = self.process = self.process or self._start()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
        except OSError:
            raise self._gone(process) from None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(self.limit + (START if fresh else 0)):
                self.end()
                raise Gone("timeout", f"no answer within {self.limit:g} s")
        line = process.stdout.readline()
        if not line:
            raise self._gone(process)
        return json.loads(line)

    def _gone(self, process: subprocess.Popen[str]) -> Gone:
        status = process.wait()
        self.end()
        how = f"signal {-status}" if status < 0 else f"status {status}"
        return Gone("crash", f"the process ended with {how}")

    def _start(self) -> subprocess.Popen[str]:
        words = [sys.executable, "-m", "compiler.reduction.probe", *self.words,
                 "--phases", str(self.phases)]
        return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, text=True, encoding="utf-8")

    def end(self) -> None:
        """End the process, if there is one."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None
