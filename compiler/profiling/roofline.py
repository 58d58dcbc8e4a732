"""The roofline of this machine, measured with compiled programs on the same number of threads.

A large product of f32 matrices gives the FLOPs per second, and doubling an array larger than all
caches the bytes per second. A kernel cannot be faster than its FLOPs at the first rate, nor than
its bytes at the second one, unless its data are in a cache or its numbers are narrower than f32.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from compiler.executable import compile_with
from compiler.frontend import MemoryModel

if TYPE_CHECKING:
    from compiler.options import CompileOptions

SIDE, LENGTH = 1024, 1 << 24
"""The rows and columns of the matrices, and the elements of the array."""
ROUNDS = 6
_PRODUCT = f"""builtin.module {{
  strata.func @main(%a: f32[{SIDE}, {SIDE}], %b: f32[{SIDE}, {SIDE}]) -> (f32[{SIDE}, {SIDE}])
      inputs ["a", "b"] outputs ["y"] {{
    %y = graph.matmul %a, %b : f32[{SIDE}, {SIDE}]
    strata.return %y
  }}
}}
"""
_DOUBLED = f"""builtin.module {{
  strata.func @main(%x: f32[{LENGTH}]) -> (f32[{LENGTH}]) inputs ["x"] outputs ["y"] {{
    %y = graph.add %x, %x : f32[{LENGTH}]
    strata.return %y
  }}
}}
"""


@dataclass(frozen=True)
class Roofline:
    """FLOPs and bytes per second."""

    flops: float
    bytes: float

    def seconds(self, flops: float, moved: float) -> float:
        """The least time for this work."""
        return max(flops / self.flops, moved / self.bytes)


def measured(options: CompileOptions) -> Roofline:
    """The roofline for programs that are compiled with these options."""
    plain = replace(options, shapes={}, dims={}, constants={}, passes="default", schedule=None,
                    weights=None, dump_dir=None, start=None, specialize=None, plugins=())
    product = _best(plain, _PRODUCT, [np.ones((SIDE, SIDE), np.float32)] * 2)
    doubled = _best(plain, _DOUBLED, [np.ones(LENGTH, np.float32)])
    return Roofline(2 * SIDE**3 / product, 2 * 4 * LENGTH / doubled)


def _best(options: CompileOptions, text: str, inputs: list[np.ndarray]) -> float:
    """The least seconds of a run."""
    program = compile_with(MemoryModel("roofline.mlir", text.encode()), options)
    program.run(inputs)
    times: list[float] = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        program.run(inputs)
        times.append(time.perf_counter() - started)
    return min(times)
