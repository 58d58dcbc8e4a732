"""Tries a peer in a process of its own, so that one that crashes takes nothing along.

The process is a fork of this one. It loads the peer, calls it once, and reports what went wrong. It
computes on one thread, because OpenMP's threads do not survive a fork.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from compiler.diagnostics import Problem, StrataError, cut, kind_and_text, without_controls

Load = Callable[[], Callable[[], Sequence[Any]]]
SECONDS = 1800.0
"""The time that a peer may take to load a model and call it once."""
_HEADER = 8
"""The bytes before a report, which say how long it is."""
_PAUSE = 0.2
"""How often to look whether the child is still there, in seconds."""


def trial(name: str, load: Load, seconds: float = SECONDS) -> StrataError | None:
    """Why a peer cannot run the model; None if it can."""
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as output, open(reading, "rb", buffering=0) as pipe:
        child = _forked()
        if not child:
            os.close(reading)
            _run(name, load, writing, output.fileno())
        os.close(writing)
        try:
            told = _read(pipe.fileno(), child, seconds)
        finally:
            os.kill(child, signal.SIGKILL)  # it has reported, or never will
            status = os.waitpid(child, 0)[1]
        if told:
            report = json.loads(told)
            if report is None:
                return None
            message, problems = report
            return StrataError(message, [_problem(**facts) for facts in problems])
        output.seek(0)
        return _ended(name, status, told is None, output.read().decode(errors="replace"))


def _problem(nodes: Sequence[str], **facts: str) -> Problem:
    return Problem(**facts, nodes=tuple(nodes))


def _forked() -> int:
    with warnings.catch_warnings():  # Python warns of threads, none of which the child needs
        warnings.simplefilter("ignore")
        return os.fork()


def _run(name: str, load: Load, writing: int, output: int) -> None:
    """Load and call the peer in the child, and report how that went; never returns."""
    report: object = None
    try:
        os.dup2(output, 1)
        os.dup2(output, 2)
        load()()
    except StrataError as error:
        report = without_controls(error.message), [
            {key: without_controls(text) if isinstance(text, str) else text
             for key, text in problem._asdict().items()} for problem in error.problems]
    except BaseException as error:  # a runtime of others has many kinds, of no common class
        problem = Problem(kind_and_text(error))
        report = f"{name} cannot run the model", [problem._asdict()]
    text = json.dumps(report).encode()
    os.write(writing, len(text).to_bytes(_HEADER, "big") + text)
    os._exit(0)


def _read(reading: int, child: int, seconds: float) -> bytes | None:
    """What the child reports: nothing if it died, and None if it takes too long.

    Processes of its own may hold the pipe open when it is dead.
    """
    found, until = bytearray(), time.monotonic() + seconds
    while time.monotonic() < until:
        dead = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        ready, _, _ = select.select([reading], [], [], 0.0 if dead else _PAUSE)
        piece = os.read(reading, 1 << 16) if ready else b""
        found += piece
        if len(found) >= _HEADER and len(found) >= _HEADER + int.from_bytes(found[:_HEADER], "big"):
            return bytes(found[_HEADER:])
        if not piece and (ready or dead):
            return b""
    return None


def _ended(name: str, status: int, too_long: bool, output: str) -> StrataError:
    if too_long:
        what = "it takes too long to load"
    elif os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        what = f"it was ended by {signal.Signals(number).name} (signal {number})"
    else:
        what = f"it exited with status {os.waitstatus_to_exitcode(status)}"
    last = cut((without_controls(output).strip().splitlines() or [""])[-1], 200)
    return StrataError(f"{name} crashes on the model", [Problem(
        what, hint=f"its last words were: {last}" if last else "")])
