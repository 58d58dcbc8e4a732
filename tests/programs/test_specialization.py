"""Programs of their own for sizes that come often: when they are made, and that nobody notices."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import compiler
from compiler.diagnostics import StrataError
from compiler.options import Specialize
from compiler.specialization import (
    WATCHED,
    Specialization,
    Specializer,
    Specializing,
)
from dialects.symbolic.symbol import Symbol
from targets.base import Executable as Program
from tests.control.programs import BRANCHES, GROWING, LOOP_IN_LOOP, PROGRAMS, STEPS
from tests.control.programs import Program as Control
from tests.models import tiny_bert, tiny_cnn, tiny_lstm
from tests.models.onnx_graph import Sizes
from tests.programs.specialized import (
    AT_ONCE,
    LENGTHS,
    Make,
    assert_same,
    check_rows,
    numbers,
    save,
    states,
)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled code that the tests of this file share."""
    return tmp_path_factory.mktemp("code")


# ---------------------------------------------------------------------- results
@pytest.mark.parametrize(("tiny", "cases"), [
    (tiny_bert, LENGTHS), (tiny_cnn, tiny_cnn.CASES), (tiny_lstm, tiny_lstm.CASES),
], ids=["bert", "cnn", "lstm"])
def test_results_stay_the_same(
    tiny: ModuleType, cases: Sequence[Sizes], tmp_path: Path, cache: Path
) -> None:
    """Each set of sizes is answered by the general program, and then by its own."""
    exe = compiler.compile(save(tiny, tmp_path), cache=cache, specialize=AT_ONCE)
    for sizes in cases:
        inputs = tiny.make_inputs(sizes)
        expected = exe(**inputs)
        assert_same(exe(**inputs), expected)
        made = exe.specializations[-1]
        assert (made.state, made.calls, made.remark) == ("ready", 1, "")
        assert made.sizes.items() <= sizes.items()
    assert len(exe.specializations) == len(cases)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_control_flow_and_late_sizes(program: Control, tmp_path: Path) -> None:
    check_control(program, tmp_path, "reference")


@pytest.mark.parametrize("program", [BRANCHES, STEPS, GROWING, LOOP_IN_LOOP],
                         ids=lambda p: p.name)
def test_control_flow_as_native_code(program: Control, tmp_path: Path) -> None:
    check_control(program, tmp_path, "cpu")


def check_control(program: Control, folder: Path, target: str) -> None:
    path = folder / "program.mlir"
    path.write_text(program.text)
    exe = compiler.compile(path, target=target, cache="off", threads=1, specialize=AT_ONCE)
    for inputs in [*program.inputs, *program.inputs]:
        assert_same(exe.run(inputs), program.expected(inputs))
    assert {s.state for s in exe.specializations} == {"ready"}
    assert sum(s.calls for s in exe.specializations) >= len(program.inputs)


def test_many_threads_and_sizes(rows: Make) -> None:
    """Programs come and go while threads call; no answer is wrong."""
    exe = rows(Specialize(after=3, most=2), "cpu")
    wrong: list[BaseException] = []

    def call(seed: int) -> None:
        try:
            for n in np.random.default_rng(seed).integers(0, 6, 150):
                check_rows(exe, int(n))
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=call, args=[seed]) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert sum(s.state == "ready" for s in exe.specializations) <= 2
    until(lambda: any(s.state == "ready" for s in exe.specializations))
    ready = next(s for s in exe.specializations if s.state == "ready")
    check_rows(exe, ready.sizes["rows.n"])
    assert sum(s.calls for s in exe.specializations) >= ready.calls + 1


def until(holds: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


# ---------------------------------------------------------------------- when
def test_a_program_is_made_after_so_many_calls(rows: Make) -> None:
    exe = rows(Specialize(after=3, background=False))
    for _ in range(2):
        check_rows(exe, 5)
        check_rows(exe, 7)
    assert exe.specializations == []
    check_rows(exe, 5)
    assert exe.specializations == [Specialization({"rows.n": 5}, 0, "ready")]
    check_rows(exe, 5)
    check_rows(exe, 9)
    assert exe.specializations == [Specialization({"rows.n": 5}, 1, "ready")]


def test_the_program_used_longest_ago_makes_room(rows: Make) -> None:
    exe = rows(Specialize(after=1, most=2, background=False))
    for n in (3, 5, 3, 7):
        check_rows(exe, n)
    assert states(exe) == [(5, "dropped", 0), (3, "ready", 1), (7, "ready", 0)]
    check_rows(exe, 5)  # the second time it takes twice as many calls
    assert states(exe)[-1] == (5, "dropped", 0)
    check_rows(exe, 5)
    assert states(exe) == [(3, "dropped", 1), (7, "ready", 0), (5, "ready", 0)]


def test_counts_are_bounded(rows: Make) -> None:
    exe = rows(Specialize(after=2, most=1, background=False))
    for n in range(WATCHED + 20):
        exe(numbers(n))
    check_rows(exe, 0)  # its first call is forgotten, that of the last size is not
    assert exe.specializations == []
    check_rows(exe, WATCHED + 19)
    assert [s.state for s in exe.specializations] == ["ready"]


def test_calls_go_on_while_a_thread_compiles(
    rows: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, compile_ = threading.Event(), Specializer.compile

    def wait(self: Specializer, sizes: Mapping[Symbol, int]) -> Program:
        go_on.wait()
        return compile_(self, sizes)

    monkeypatch.setattr(Specializer, "compile", wait)
    exe = rows(Specialize(after=1))
    for _ in range(3):
        check_rows(exe, 5)
        check_rows(exe, 7)  # one at a time: these wait
    assert states(exe) == [(5, "compiling", 0)]
    go_on.set()
    until(lambda: states(exe) == [(5, "ready", 0)])


def test_no_open_sizes_and_no_wish(bert: Path) -> None:
    fixed = compiler.compile(bert, target="reference", dims={"batch": 1, "seq": 4},
                             specialize=AT_ONCE)
    open_ = compiler.compile(bert, target="reference")
    for exe in (fixed, open_):
        exe(**tiny_bert.make_inputs({"batch": 1, "seq": 4}))
        assert exe.specializations == []
        assert not isinstance(exe.loaded, Specializing)


@pytest.mark.parametrize("options", [{"after": 0}, {"most": 0}])
def test_nonsense_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(StrataError, match="from 1 on"):
        Specialize(**options)
