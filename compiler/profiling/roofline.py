"""The roofline of this machine, measured with compiled programs on the same number of threads.

Products of f32 matrices give the FLOPs per second, and doubling an array larger than all caches the
bytes per second. Where a machine multiplies narrower floats faster, as tensor cores do,
a product of such matrices gives a second number, for kernels that multiply nothing wider. A kernel
cannot be faster than its FLOPs at that rate, nor than its bytes, unless its data are in a cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from compiler.frontend import MemoryModel
from compiler.io.signature import signature_of
from compiler.pipeline.driver import Compiler

if TYPE_CHECKING:
    from compiler.options import CompileOptions


def _product(side: int, element: str) -> str:
    return f"""builtin.module {{
  strata.func @main(%a: {element}[{side}, {side}], %b: {element}[{side}, {side}])
      -> ({element}[{side}, {side}]) inputs ["a", "b"] outputs ["y"] {{
    %y = graph.matmul %a, %b : {element}[{side}, {side}]
    strata.return %y
  }}
}}
"""


def _doubled(length: int) -> str:
    return f"""builtin.module {{
  strata.func @main(%x: f32[{length}]) -> (f32[{length}]) inputs ["x"] outputs ["y"] {{
    %y = graph.add %x, %x : f32[{length}]
    strata.return %y
  }}
}}
"""


@dataclass(frozen=True)
class Roofline:
    """FLOPs and bytes per second. `narrow`: FLOPs per second of kernels whose products have narrow
    factors only; 0 where that was not measured."""

    flops: float
    bytes: float
    narrow: float = 0.0

    def seconds(self, flops: float, moved: float, narrow: bool = False) -> float:
        """The least time for this work."""
        return max(flops / self._rate(narrow), moved / self.bytes)

    def bound(self, flops: float, moved: float, narrow: bool = False) -> str:
        """What limits this work: `flops` or `bytes`."""
        return "flops" if flops / self._rate(narrow) >= moved / self.bytes else "bytes"

    def _rate(self, narrow: bool) -> float:
        return self.narrow if narrow and self.narrow else self.flops


def measured(options: CompileOptions, narrow: bool = False) -> Roofline:
    """The roofline for programs that are compiled with these options. `narrow`: also for narrow
    factors."""
    plain = replace(options, shapes={}, dims={}, constants={}, passes="default", schedule=None,
                    mesh="", rank=None,
                    weights=None, dump_dir=None, start=None, specialize=None, plugins=(),
                    strategy="whole-graph", with_groups=(), without_groups=())
    return _Limits(plain).roofline(narrow)


class _Limits:
    def __init__(self, options: CompileOptions) -> None:
        self.options = options

    def roofline(self, narrow: bool) -> Roofline:
        parts = Compiler(MemoryModel("roofline.mlir", b""), self.options).parts
        probe = parts.running.probe
        wanted = probe.narrow if narrow else ""
        doubled = self._seconds(_doubled(probe.length))
        return Roofline(
            self._rate(probe.sides, "f32"), 2 * 4 * probe.length / doubled,
            self._rate(probe.sides, wanted) if wanted else 0.0)

    def _rate(self, sides: Sequence[int], element: str) -> float:
        """The FLOPs per second of the fastest product."""
        return max(2 * side**3 / self._seconds(_product(side, element)) for side in sides)

    def _seconds(self, text: str) -> float:
        """The least seconds of a run on ones."""
        compilation = Compiler(MemoryModel("roofline.mlir", text.encode()), self.options)
        state = compilation.prepare()
        with compilation.guard("roofline", state=state):
            running = compilation.parts.running
            program = running.load(state.module, state.context.weights)
            inputs = [np.ones([s.constant or 1 for s in t.shape], t.dtype)
                      for t in signature_of(state.module).input_types]
            return running.seconds(program, inputs)
