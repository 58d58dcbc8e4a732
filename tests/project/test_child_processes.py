"""Every child process of a test has a time limit, and takes Ctrl-C."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import processes

TESTS = Path(__file__).parents[1]
STARTS = {
    "subprocess": ("run", "call", "check_call", "check_output", "Popen", "getoutput",
                   "getstatusoutput"),
    "os": ("fork", "forkpty", "system", "popen", "posix_spawn", "posix_spawnp"),
    "pty": ("fork", "spawn")}
LIMITED = ("run", "call", "check_call", "check_output")
"""Those that take a time limit themselves."""
SLEEPS = [sys.executable, "-c", "import time; time.sleep(60)"]


def unlimited(tree: ast.Module) -> Iterator[int]:
    """The lines that start a process without a time limit."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and set(STARTS.get(node.module or "", ())) & {
                alias.name for alias in node.names}:
            yield node.lineno
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)):
            continue
        name = node.func.attr
        limited = name in LIMITED and any(k.arg == "timeout" for k in node.keywords)
        if name in STARTS.get(node.func.value.id, ()) and not limited:
            yield node.lineno


@pytest.mark.parametrize(("text", "found"), [
    ("subprocess.run(['a'])", True), ("subprocess.run(['a'], timeout=3)", False),
    ("subprocess.Popen(['a'])", True), ("os.fork()", True), ("processes.run(['a'])", False),
    ("from subprocess import run", True), ("x = 'subprocess.run(1)'", False)])
def test_what_is_found(text: str, found: bool) -> None:
    assert bool(list(unlimited(ast.parse(text)))) == found


def test_no_test_starts_a_process_without_a_limit() -> None:
    found = [f"{path.relative_to(TESTS)}:{line}" for path in sorted(TESTS.rglob("*.py"))
             if path != TESTS / "processes.py"
             for line in unlimited(ast.parse(path.read_text("utf-8")))]
    assert not found, f"use tests/processes.py: {', '.join(found)}"


# ---------------------------------------------------------------------- the limits
def test_a_run_that_takes_too_long_fails() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        processes.run(SLEEPS, limit=0.2, capture_output=True)


def test_a_child_that_is_read_takes_no_longer() -> None:
    """Its output ends, though nothing waits for it with a limit."""
    with pytest.raises(subprocess.TimeoutExpired), processes.start(
            SLEEPS, limit=0.2, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.read() == b""


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_forked_child_ends() -> None:
    child = processes.fork(limit=0.2)
    if not child:
        time.sleep(60)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGALRM


def test_children_take_interrupts_where_tests_ignore_them() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        done = processes.run([sys.executable, "-c", "import signal; raise KeyboardInterrupt if "
                              "signal.getsignal(2) == signal.default_int_handler else OSError"],
                             capture_output=True, text=True)
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert "KeyboardInterrupt" in done.stderr
