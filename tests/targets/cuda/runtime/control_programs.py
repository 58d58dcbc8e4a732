"""Programs that decide, on the CUDA target: lowered, what goes wrong in them, what is expected.

Used by the tests here, which need no GPU, and by `benchmarks/cuda/selftest.py`, which needs one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser

from dialects.context import make_context
from dialects.strata.types import Array
from dialects.strata.weights import WeightStore
from targets.base import TargetOptions
from targets.cuda import TARGET
from tests.control.programs import COUNTED, PREFIX, Program
from tests.lowering import assert_close, lower


def lowered(text: str) -> tuple[ModuleOp, WeightStore]:
    """A program at block level, for the CUDA target."""
    module = Parser(make_context(), text).parse_module()
    context = TARGET.bind(TargetOptions()).context()
    for _ in lower(module, context):
        pass
    return module, context.weights


def compare(outputs: Sequence[Array], program: Program, inputs: Sequence[Array]) -> None:
    """Raises AssertionError where outputs are not what the program means."""
    expected = program.expected(inputs)
    assert [(o.shape, o.dtype) for o in outputs] == [(e.shape, e.dtype) for e in expected]
    assert_close(outputs, expected, 1e-5, program.name)


HUGE = Program("huge", """
strata.func @main(%shape: i64[2]) -> (f32[h, w]) inputs ["shape"] outputs ["y"] {
  strata.size h, w = %shape
  %one = graph.constant {value = literal[1.0]} : f32[]
  %y = graph.broadcast %one {shape = [h, w]} : f32[h, w]
  strata.return %y
}
""", lambda shape: (np.ones(shape, np.float32),), [(np.array([4, 5]),)])

RAGGED = Program("ragged", """
strata.func @body(%h: f32[q]) -> (f32[q + 1], f32[q]) inputs ["h"] outputs ["h", "s"] {
  %one = graph.constant {value = literal[1.0]} : f32[1]
  %y = graph.concat %h, %one {axis = 0} : f32[q + 1]
  strata.return %y, %h
}
strata.func @main(%x: f32[n], %t: i64[]) -> (f32[p], f32[t, s]) inputs ["x", "t"]
    outputs ["h", "s"] {
  strata.size t = %t
  %h, %s = strata.loop @body at k trip t carried(%x) with() defines(p, s) : f32[p], f32[t, s]
  strata.return %h, %s
}
""", lambda x, t: (np.concatenate([x, np.ones(t, np.float32)]), x[None]),
    [(np.zeros(2, np.float32), np.array(1))])


def _sized(program: Program, size: int) -> list[Array]:
    return [np.ones((5, 3), np.float32), np.full(program.inputs[0][1].shape, size, np.int64)]


REFUSALS: Sequence[tuple[Program, Sequence[Array], str]] = [
    *((program, _sized(program, size), message) for program, size, message in [
        (PREFIX, -1, "a size computed at node 'n2' is -1; it must be from 0 to 281474976710656"),
        (PREFIX, 2**50, "is 1125899906842624"),
        (PREFIX, 9, "needs m <= n, which is 9 <= 5 with m = 9, n = 5"),
        (COUNTED, -5, "is -5")]),
    *((HUGE, [np.array(shape)],
       "sizes are too large at node 'n4', which computes numbers beyond 64")
      for shape in [(2**40, 2**40), (2**46, 2**16)]),
    *((HUGE, [np.array(shape)], f"not enough memory at node 'n4', which needs {needed} bytes")
      for shape, needed in [((2**48, 3), "too many"), ((2**24, 2**20), 2**46)]),
    (RAGGED, [np.zeros(2, np.float32), np.array(3)],
     "the values that the loop at node 'n7' stacks have different shapes"),
]
"""Programs, inputs that they refuse, and with what words."""
