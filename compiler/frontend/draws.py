"""Random numbers of a program that nothing accompanies: Philox, by a seed that a call is given.

A program that draws takes one more input, `seed`: i64[]. Element k of a draw comes from the bits
for place k, the seed and the number of the draw in the program (dialects/semantics/philox.py).
Equal seeds therefore give equal numbers, on all targets; calls with other seeds draw others. Bits
become numbers as PyTorch's CPU generator makes them: the low bits of a word, as many as a
significand has, are the fraction of a uniform number in [0, 1).

A loop draws in each iteration by another seed, which is drawn by the number of the iteration.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from xdsl.ir import Attribute, BlockArgument

from compiler.frontend import formulas as f
from compiler.frontend.values import Value, combined, of_size
from dialects.graph.bits import BitcastOp, PhiloxOp, ShiftRightOp
from dialects.graph.constant import RangeOp
from dialects.strata import types as t
from dialects.strata.func import FuncOp
from dialects.symbolic.expr import Expr

if TYPE_CHECKING:
    from compiler.frontend.builder import Builder

SEED = "seed"
DIGITS: Mapping[Attribute, int] = {t.f64: 53, t.f32: 24, t.f16: 11, t.bf16: 8}
"""The significant bits of a float."""
_HALF = 32


class Draws:
    """The draws of a program, whose entry function is `function`."""

    def __init__(self, build: Builder, function: FuncOp):
        self.build, self.function = build, function
        self.count = 0
        self._seed: Value | None = None
        self._steps: list[Expr] = []

    @contextmanager
    def within(self, step: Expr) -> Generator[None]:
        """Draw in the iteration of this number, of a loop inside of those around."""
        self._steps.append(step)
        try:
            yield
        finally:
            self._steps.pop()

    # ------------------------------------------------------------------ bits
    def bits(self, shape: Sequence[Expr]) -> Value:
        """64 random bits for each element: i64 of a shape."""
        seed = self._given()
        for step in self._steps:
            seed = self._philox(of_size(self.build, step), seed)
        count = t.tensor(t.i64, shape).count
        places = self.build(RangeOp, start=0, step=1, count=count, to=t.i64)
        return self._philox(places.reshape(shape), seed)

    def _philox(self, place: Value, seed: Value) -> Value:
        self.count += 1
        return self.build(PhiloxOp, place, seed, draw=self.count - 1)

    def _given(self) -> Value:
        """The seed of a call, which becomes the last input at the first draw."""
        if self._seed is None:
            self._seed = self.build.value(self.function.add_input(SEED, t.tensor(t.i64, [])))
        return self._seed

    def finish(self) -> None:
        """After dead operations are removed: a program whose results depend on no draw, as that of
        a model in evaluation which draws for its training, takes no seed."""
        seed = self._seed and self._seed.ssa
        if isinstance(seed, BlockArgument) and not seed.uses:
            self.function.remove_input(seed)
            self._seed = None

    # ------------------------------------------------------------------ distributions
    def uniform(self, shape: Sequence[Expr], element: Attribute) -> Value:
        """Numbers in [0, 1) at equal distances, as many as the significand of the type tells."""
        return _fraction(self.bits(shape), element)

    def normal(self, shape: Sequence[Expr], element: Attribute) -> Value:
        """Normal numbers of mean 0 and deviation 1 as f64 or f32, by Box and Muller."""
        bits = self.bits(shape)
        if element == t.f64:
            angle, radius = _fraction(bits, t.f64), self.uniform(shape, t.f64)
        else:
            angle, radius = (_fraction(b, t.f32) for b in (bits, _upper(bits)))
        return f.sqrt(f.log1p(-radius) * -2.0) * f.cos(angle * (2 * math.pi))

    def integers(self, shape: Sequence[Expr], low: int, high: int) -> Value:
        """i64 in [low, high): the remainder of 32 bits, or of 64 where there are more numbers."""
        bits, count = self.bits(shape), high - low
        if count < 1 << _HALF:
            return (bits & ((1 << _HALF) - 1)) % count + low
        unsigned = self.build(BitcastOp, bits, to=t.ui64)
        return self.build(BitcastOp, unsigned % count, to=t.i64) + low


def _upper(bits: Value) -> Value:
    """The upper half of the bits."""
    return combined(ShiftRightOp, bits, _HALF)


def _fraction(bits: Value, element: Attribute) -> Value:
    digits = DIGITS[element]
    low = bits & ((1 << digits) - 1)
    return (low if digits > _HALF else low.cast(t.i32)).cast(element) * 2.0 ** -digits
