"""Control flow and late sizes: every level and every target computes what the program means."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.util import find_spec

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser
from xdsl.utils.exceptions import VerifyException

from dialects.context import make_context
from dialects.graph.interpret import EvaluationError
from dialects.strata.assumptions import SizeError
from dialects.strata.types import Array
from dialects.strata.weights import WeightStore
from dialects.verifying import verify
from passes.base import StrataContext
from targets.base import Executable, TargetOptions, find_target
from targets.reference.interpret import interpret
from tests.control.programs import (
    BRANCHES,
    COUNTED,
    GROWING,
    PREFIX,
    PROGRAMS,
    TWO_SIZES,
    Program,
)
from tests.lowering import STEPS, assert_close, check_levels, lower
from tests.targets.cpu.cpu_kernels import feature_set

CPU = find_target("cpu")
each_program = pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)


def parse(text: str) -> ModuleOp:
    module = Parser(make_context(), text).parse_module()
    verify(module)
    return module


def context(target: str, options: TargetOptions | None = None) -> StrataContext:
    return find_target(target).bind(options or TargetOptions()).context()


def compiled(program: Program, **options: object) -> Executable:
    chosen = TargetOptions(**options)  # type: ignore[arg-type]
    module, strata = parse(program.text), context("cpu", chosen)
    list(lower(module, strata))
    return CPU.bind(chosen).running.load(module, strata.weights)


def check(outputs: Sequence[Array], program: Program, inputs: Sequence[Array], where: str) -> None:
    expected = program.expected(inputs)
    assert [(o.shape, o.dtype) for o in outputs] == [(e.shape, e.dtype) for e in expected], where
    assert_close(outputs, expected, 1e-5, where)


# ---------------------------------------------------------------------- levels and targets
@each_program
def test_the_graph_means_what_python_says(program: Program) -> None:
    module = parse(program.text)
    for inputs in program.inputs:
        check(interpret(module, WeightStore(), inputs), program, inputs, "graph")


@each_program
@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_every_level_computes_the_same(program: Program, target: str) -> None:
    for inputs in program.inputs[:3]:
        module, strata = parse(program.text), context(target)
        check_levels(module, strata, inputs, program.expected(inputs), 1e-5, set())


@each_program
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("features", [None, feature_set("avx2")])
def test_native_code(program: Program, threads: int, features: str | None) -> None:
    """All inputs on one compiled program, twice: what a call leaves does not touch the next."""
    executable = compiled(program, threads=threads, features=features)
    for inputs in (*program.inputs, *program.inputs):
        check(executable.run(inputs), program, inputs, f"{threads} threads")


@each_program
@pytest.mark.slow
@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
def test_triton_interpreter(program: Program) -> None:
    from targets.cuda.build.interpreter import InterpretedExecutable

    module, strata = parse(program.text), context("cuda")
    list(lower(module, strata))
    executable = InterpretedExecutable(module, strata.weights)
    for inputs in program.inputs[:2]:
        check(executable.run(inputs), program, inputs, "Triton's interpreter")


@each_program
def test_text_round_trips_at_every_level(program: Program) -> None:
    module = parse(program.text)
    for step in lower(module, context("cpu")):
        again = Parser(make_context(), str(module)).parse_module()
        assert str(again) == str(module), step


# ---------------------------------------------------------------------- what goes wrong
BAD_SIZES = [
    (PREFIX, -1, "a size computed at node 'n2' is -1; it must be from 0 to 281474976710656"),
    (PREFIX, 2**50, "is 1125899906842624"),
    (PREFIX, 9, "needs m <= n, which is 9 <= 5 with m = 9, n = 5"),
    (COUNTED, -5, "is -5"),
]


@pytest.mark.parametrize(("program", "size", "message"), BAD_SIZES)
def test_a_bad_size_is_an_error_and_the_program_stays_usable(
    program: Program, size: int, message: str
) -> None:
    executable = compiled(program)
    good = program.inputs[0]
    x = np.ones((5, 3), np.float32)
    bad = [x, np.full(good[1].shape, size, np.int64)]
    with pytest.raises(SizeError, match=re.escape(message)):
        executable.run(bad)
    check(executable.run(good), program, good, "after an error")
    with pytest.raises((SizeError, EvaluationError)):
        interpret(parse(program.text), WeightStore(), bad)


def test_two_sizes_that_do_not_fit_their_tensor() -> None:
    executable = compiled(TWO_SIZES)
    with pytest.raises(SizeError, match=r"h\*w == n"):
        executable.run([np.zeros(6, np.float32), np.array([2, 4])])


def test_memory_that_is_not_there_is_an_error() -> None:
    """Both sizes are allowed; their product wraps around in 64 bits."""
    program = Program("huge", """
strata.func @main(%shape: i64[2]) -> (f32[h, w]) inputs ["shape"] outputs ["y"] {
  strata.size h, w = %shape
  %one = graph.constant {value = literal[1.0]} : f32[]
  %y = graph.broadcast %one {shape = [h, w]} : f32[h, w]
  strata.return %y
}
""", lambda shape: (np.ones(shape, np.float32),), [(np.array([2, 3]),)])
    executable = compiled(program)
    for shape in ((2**40, 2**40), (2**46, 2**16), (2**48, 3)):
        with pytest.raises(ValueError, match=r"not enough memory|sizes are too large"):
            executable.run([np.array(shape)])
    check(executable.run([np.array([4, 5])]), program, [np.array([4, 5])], "after an error")


def test_values_of_different_shapes_cannot_be_stacked() -> None:
    program = """
strata.func @body(%h: f32[q]) -> (f32[q + 1], f32[q]) inputs ["h"] outputs ["h", "s"] {
  %one = graph.constant {value = literal[1.0]} : f32[1]
  %y = graph.concat %h, %one {axis = 0} : f32[q + 1]
  strata.return %y, %h
}
strata.func @main(%x: f32[n]) -> (f32[p], f32[3, s]) inputs ["x"] outputs ["h", "s"] {
  %h, %s = strata.loop @body at k trip 3 carried(%x) with() defines(p, s) : f32[p], f32[3, s]
  strata.return %h, %s
}
"""
    executable = compiled(Program("ragged", program, lambda x: (x,), []))
    with pytest.raises(ValueError, match="have different shapes"):
        executable.run([np.zeros(2, np.float32)])
    with pytest.raises(EvaluationError, match="have different shapes"):
        interpret(parse(program), WeightStore(), [np.zeros(2, np.float32)])


def test_memory_does_not_grow_from_call_to_call() -> None:
    from targets.cpu.runtime.executable import CpuExecutable

    executable = compiled(GROWING)
    for _ in range(3):
        executable.run(GROWING.inputs[3])
        assert isinstance(executable, CpuExecutable)
        assert [state.heap.has_blocks for state in executable.calls.idle] == [False]


# ---------------------------------------------------------------------- verification
INVALID = [
    ("strata.size m = %f", "C1"),
    ("strata.size m, q = %n", "C2"),
    ("%y = strata.if %n then @f else @f (%x) : f32[4]", "C4"),
    ("%y = strata.if %c then @f else @f (%n) : f32[4]", "C1"),
    ("%y = strata.if %c then @f else @f (%x) : f32[4, 4]", "C2"),
    ("%y = strata.if %c then @f else @f (%x) defines(z) : f32[4]", "C3: the size z"),
    ("%y = strata.loop @f at k carried(%x) with() : f32[4]", "C4"),
    ("%y = graph.range {start = 0, step = 1, count = m, to = i64} : i64[m]", "defines the size m"),
]


@pytest.mark.parametrize(("line", "message"), INVALID)
def test_invalid_text(line: str, message: str) -> None:
    text = f"""
strata.func @f(%a: f32[4]) -> (f32[4]) inputs ["a"] outputs ["b"] {{
  strata.return %a
}}
strata.func @main(%x: f32[4], %n: i64[1], %f: f32[1], %c: i1[]) -> () inputs ["x", "n", "f", "c"]
    outputs [] {{
  {line}
  strata.return
}}
"""
    with pytest.raises(VerifyException, match=message):
        parse(text)


# ---------------------------------------------------------------------- passes
def test_what_nothing_uses_is_erased() -> None:
    """A size, a decision and the functions that only it called."""
    text = BRANCHES.text.replace("strata.return %r, %z", "strata.return %x, %w").replace(
        "-> (f32[n, 4], f32[z])\n    inputs [\"x\", \"w\", \"k\"", "-> (f32[n, 4], f32[4])\n"
        "    inputs [\"x\", \"w\", \"k\"")
    module = parse(text)
    list(lower(module, context("cpu"), STEPS[: STEPS.index("graph-to-loop")]))
    assert "strata.if" not in str(module)
    assert "strata.size" not in str(module)
    assert "@negative" not in str(module)


def test_a_kernel_waits_for_the_sizes_it_uses() -> None:
    """Nests before and behind a size may not become one kernel."""
    module = parse(PREFIX.text)
    for _ in lower(module, context("cpu"), STEPS[:-1]):
        verify(module)
    text = str(module)
    assert text.index("strata.size m") < text.index("host.launch")
