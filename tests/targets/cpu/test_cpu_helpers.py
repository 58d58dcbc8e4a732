"""Processes that compile LLVM text share the work, and none of it is lost with one of them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from targets.cpu.build import helpers, worker
from targets.cpu.build.cache import ObjectCache
from targets.cpu.build.jit import compile_texts
from targets.cpu.machine import Machine, machine_of

FUNCTION = "define i64 @f{number}(i64 %x) {{\n{lines}  ret i64 %v{last}\n}}\n"


def text(number: int, length: int) -> str:
    """A function of so many instructions."""
    lines = "".join(f"  %v{k} = mul i64 %{'x' if k == 0 else f'v{k - 1}'}, {k + number}\n"
                    for k in range(length))
    return FUNCTION.format(number=number, lines=lines, last=length - 1)


TEXTS = [text(k, 20 + 60 * (k % 5)) for k in range(24)]
WIDE = ["@d = constant [9000 x i64] [" + ", ".join(f"i64 {j + k}" for j in range(9000)) + "]\n"
        for k in range(12)]
"""Texts and code that are longer than what a pipe holds."""


@pytest.fixture
def machine() -> Machine:
    """This one, as if it had three cores."""
    return replace(machine_of(), cores=3)


@pytest.mark.parametrize("texts", [TEXTS, WIDE, TEXTS + WIDE], ids=["functions", "wide", "both"])
def test_all_texts_are_compiled_by_processes_and_here(
    texts: list[str], machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [worker.compile_text(t, *machine.code_generator) for t in texts]
    received = list[bytes]()
    receive = helpers.Helper.receive

    def counted(self: helpers.Helper) -> bytes:
        received.append(code := receive(self))
        return code

    monkeypatch.setattr(helpers.Helper, "receive", counted)
    helpers.foresee(2)
    assert compile_texts([*texts, texts[0]], machine, ObjectCache(None)) == [*expected, expected[0]]
    assert received and set(received) <= {*expected}
    assert not helpers.are_foreseen()


@pytest.mark.parametrize("after", [0, 1, 3])
def test_what_a_process_had_when_it_ended_is_compiled_here(
    after: int, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, send = threading.Event(), helpers.Helper.send
    sent = list[int]()

    def failing(self: helpers.Helper, text: str, machine: Machine) -> None:
        sent.append(self._process.pid)
        if sent.count(self._process.pid) > after:
            os.kill(self._process.pid, signal.SIGKILL)
            ended.set()
        send(self, text, machine)

    monkeypatch.setattr(helpers.Helper, "send", failing)
    helpers.foresee(2)

    def texts() -> Iterator[str]:
        yield from TEXTS
        assert ended.wait(60)

    done = list[int]()
    codes = compile_texts(texts(), machine, ObjectCache(None), done.append)
    assert codes == [worker.compile_text(t, *machine.code_generator) for t in TEXTS]
    assert max(done) == len(TEXTS)


def test_the_longest_text_is_compiled_first(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that no long one is begun when all others are done."""
    lengths, compile_text = list[int](), worker.compile_text

    def counted(text: str, *arguments: object) -> bytes:
        lengths.append(len(text))
        return compile_text(text, *machine.code_generator)

    monkeypatch.setattr(worker, "compile_text", counted)
    alone = replace(machine, cores=1)
    codes = compile_texts(TEXTS, alone, ObjectCache(None))
    assert lengths == sorted(map(len, TEXTS), reverse=True)
    assert codes == [compile_text(t, *machine.code_generator) for t in TEXTS]
