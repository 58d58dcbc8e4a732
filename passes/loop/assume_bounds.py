"""`loop-assume-bounds`: record what nests assume about run-time sizes.

    %y = nest (i0: n, i1: 64) ins(%x[i0, i1], %b[i0])            %x: f32[n, 64], %b: f32[m]
    ->  strata.assume n == m                                      (checked before every run)

Enters: nests as lowering made them. Where sizes are expressions, the model alone does not always
prove that every read stays inside its tensor: two sizes that an operator needs to be equal may come
from different inputs. Each such read becomes an assumption on the sizes, located at its node, so
that contradictory inputs are an error and never an out-of-bounds read. A size may be 0 but never
negative: a filter that is larger than its image is an error, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.dialects.builtin import ModuleOp

from dialects.loop import NestOp, extents_of
from dialects.strata.sizes import AssumeOp
from dialects.strata.types import TensorType
from dialects.symbolic.expr import Expr, minimum
from dialects.symbolic.ranges import divisors, is_at_most, is_nonnegative, upper_bound
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import set_location
from passes.base import StrataContext, StrataPass
from passes.rewrites.loop.nests import gathered_inputs, reads_of
from passes.rewriting import functions

Need: TypeAlias = tuple[Expr, str, Expr]
"""(left, relation, right), the relation being `<=` or `==`."""


@dataclass(frozen=True)
class LoopAssumeBounds(StrataPass):
    """Turn reads whose bounds depend on sizes into assumptions."""

    name = "loop-assume-bounds"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        for func in functions(module):
            seen: set[Need] = set()
            for nest in [op for op in func.body.block.ops if isinstance(op, NestOp)]:
                for need in [n for n in needs_of(nest) if n not in seen]:
                    seen.add(need)
                    assume = AssumeOp.of(*need)
                    set_location(assume, nest)
                    func.body.block.insert_op_before(assume, nest)


def needs_of(nest: NestOp) -> Iterator[Need]:
    """What must be checked at run time about the reads and stores of a nest.

    If an axis walks several tensors from end to end, each of them must be as long as the axis: the
    operator needs equal sizes, unless the axis certainly stops before the tensor's end. Any other
    read or store, including a gather's, must stay inside. Where an axis is empty, nothing is read
    or stored. An index that is read from a tensor stays inside as long as the dim is not empty.
    """
    for axis in nest.axes:
        if _may_be_negative(axis.extent):
            yield Expr.of(0), "<=", axis.extent
    empty = any(a.extent.constant == 0 for a in nest.axes)
    reads, positive = reads_of(nest), positive_symbols(a.extent for a in nest.axes)
    references = [(r.value, r.map, len(reads) > 1 and not gathered_inputs(r.map))
                  for r in reads if r.pad is None]
    references += [(r, m, False) for r, m in zip(nest.results, nest.output_maps, strict=True)]
    extents = extents_of(nest.axes)
    for value, map_, shared in references:
        assert isinstance(value.type, TensorType)
        for expr, size in zip(map_, value.type.shape, strict=True):
            highest = upper_bound(expr, extents)
            if highest is None or gathered_inputs([highest]):
                if gathered_inputs([expr]) and not _is_within(Expr.of(0), size, positive):
                    yield minimum(product(extents.values()), 1), "<=", size
                continue
            same = shared and expr.as_symbol is not None and not _is_shorter(highest, size)
            if same and highest + 1 != size:
                yield highest + 1, "==", size
            elif not empty and not _is_within(highest, size, positive):
                yield highest + 1, "<=", size


def _is_shorter(highest: Expr, size: Expr) -> bool:
    """Whether an axis certainly ends before the end of the tensor that it walks."""
    return is_at_most(highest + 2, size)


def _may_be_negative(size: Expr) -> bool:
    """Whether `size` can be negative for sizes of at least 1, or where all of them are 0."""
    if not is_nonnegative(size):
        return True
    return not list(divisors(size)) and size.evaluate(dict.fromkeys(size.symbols, 0)) < 0


def positive_symbols(extents: Iterable[Expr]) -> frozenset[Symbol]:
    """The sizes that are at least 1 wherever no extent is 0: the factors of extents."""
    products = [e.terms[0][0] for e in extents if len(e.terms) == 1]
    return frozenset(a for product in products for a in product if isinstance(a, Symbol))


def _is_within(highest: Expr, size: Expr, positive: frozenset[Symbol]) -> bool:
    """Whether highest < size is certain; sizes that are not `positive` may be 0."""
    return is_at_most(highest + 1, size, positive)
