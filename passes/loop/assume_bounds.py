"""`loop-assume-bounds`: write down what nests rely on about run-time sizes.

    %y = nest (i0: n, i1: 64) ins(%x[i0, i1], %b[i0])            %x: f32[n, 64], %b: f32[m]
    ->  strata.assume n <= m                                      (checked before every run)

Enters: nests as lowering made them. Where sizes are expressions, the model's own words do not
always prove that every read stays inside its tensor: two sizes that an operator wants equal may
come from different inputs. Each such read becomes an assumption on the sizes, at its node, so that
contradicting inputs are an error and never a read of foreign memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from dialects.expr import Expr
from dialects.func import AssumeOp
from dialects.loop import NestOp, extents_of
from dialects.ranges import is_at_most, upper_bound
from dialects.syntax import set_location
from dialects.types import TensorType
from passes.base import StrataContext, StrataPass
from passes.loop.nests import reads_of
from passes.rewriting import functions


@dataclass(frozen=True)
class LoopAssumeBounds(StrataPass):
    """Turn reads that sizes alone keep inside into assumptions."""

    name = "loop-assume-bounds"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        for func in functions(module):
            seen: set[tuple[Expr, Expr]] = set()
            for nest in [op for op in func.body.block.ops if isinstance(op, NestOp)]:
                for pair in doubtful(nest):
                    if pair not in seen:
                        seen.add(pair)
                        assume = AssumeOp.of(*pair)
                        set_location(assume, nest)
                        func.body.block.insert_op_before(assume, nest)


def doubtful(nest: NestOp) -> Iterator[tuple[Expr, Expr]]:
    """(low, high) with low <= high still to be seen, for reads and stores of a nest."""
    references = [(r.value, r.map) for r in reads_of(nest) if r.pad is None]
    references += list(zip(nest.results, nest.output_maps, strict=True))
    extents = extents_of(nest.axes)
    for value, map_ in references:
        assert isinstance(value.type, TensorType)
        for expr, size in zip(map_, value.type.shape, strict=True):
            highest = upper_bound(expr, extents)
            if highest is None or any(_is_gathered(s) for s in highest.symbols):
                continue
            if not is_at_most(highest + 1, size):
                yield highest + 1, size


def _is_gathered(symbol: str) -> bool:
    return symbol.startswith("in") and symbol[2:].isdigit()
