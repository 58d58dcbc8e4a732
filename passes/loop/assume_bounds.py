"""`loop-assume-bounds`: record what nests assume about run-time sizes.

    %y = nest (i0: n, i1: 64) ins(%x[i0, i1], %b[i0])            %x: f32[n, 64], %b: f32[m]
    ->  strata.assume n == m                                      (checked before every run)

Enters: nests as lowering made them. Where sizes are expressions, the model alone does not always
prove that every read stays inside its tensor: two sizes that an operator needs to be equal may come
from different inputs. Each such read becomes an assumption on the sizes, located at its node, so
that contradictory inputs are an error and never an out-of-bounds read. A size may be 0 but never
negative: a filter that is larger than its image is an error, too. What holds for all sizes is not
stated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from xdsl.dialects.builtin import ModuleOp
from xdsl.rewriter import InsertPoint, Rewriter

from dialects.loop import NestOp, extents_of
from dialects.strata.sizes import AssumeOp
from dialects.strata.types import TensorType
from dialects.symbolic.expr import Expr, minimum
from dialects.symbolic.inequalities import Prover
from dialects.symbolic.ranges import (
    divisors,
    is_at_most,
    is_nonnegative,
    lower_bound,
    upper_bound,
)
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import set_location
from passes.base import StrataContext, StrataPass
from passes.rewrites.loop.nests import gathered_inputs, reads_of
from passes.rewriting import functions

Need: TypeAlias = tuple[Expr, str, Expr]
"""(left, relation, right), the relation being `<=` or `==`."""


_SIZES = (1, 2, 3, 8)
"""The sizes beside a size of 0 with which a need is tried where a nest is empty."""


class LoopAssumeBounds(StrataPass):
    """Turn reads whose bounds depend on sizes into assumptions."""

    name = "loop-assume-bounds"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        prover = Prover({})
        for func in functions(module):
            stated: set[object] = set()
            for op in list(func.body.block.ops):
                if isinstance(op, AssumeOp):
                    stated.add(_either_way((op.left.data, op.relation.data, op.right.data)))
                if isinstance(op, NestOp):
                    needs = {_either_way(n): n for n in needs_of(op)}
                    _assume([n for known, n in needs.items()
                             if known not in stated and not _is_certain(n, prover)], op)
                    stated.update(needs)


def _assume(needs: Iterable[Need], nest: NestOp) -> None:
    """State needs before the nest that has them."""
    for need in needs:
        assume = AssumeOp.of(*need)
        set_location(assume, nest)
        Rewriter.insert_op(assume, InsertPoint.before(nest))


def _is_certain(need: Need, prover: Prover) -> bool:
    """Whether a need holds for all sizes from 0 up: min(2, n) <= n."""
    left, relation, right = need
    return relation == "<=" and prover.is_nonnegative(right - left)


def _either_way(need: Need) -> object:
    """The need in a form that does not depend on the order of equal sizes."""
    left, relation, right = need
    return frozenset((left, right)) if relation == "==" else need


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
    reads, positive = reads_of(nest), positive_symbols(a.extent for a in nest.axes)
    references = [(r.value, r.map, len(reads) > 1 and not gathered_inputs(r.map))
                  for r in reads if r.pad is None]
    references += [(r, m, False) for r, m in zip(nest.results, nest.output_maps, strict=True)]
    extents = extents_of(nest.axes)
    for value, map_, shared in references:
        assert isinstance(value.type, TensorType)
        for expr, size in zip(map_, value.type.shape, strict=True):
            yield from _needs_of_index(expr, size, extents, positive, shared)


def _needs_of_index(
    expr: Expr, size: Expr, extents: Mapping[Symbol, Expr], positive: frozenset[Symbol],
    shared: bool,
) -> Iterator[Need]:
    """What must be checked about one index; `shared`: whether its axis walks several tensors."""
    highest = upper_bound(expr, extents)
    if highest is None or gathered_inputs([highest]):
        if gathered_inputs([expr]) and not _is_within(Expr.of(0), size, positive):
            yield minimum(product(extents.values()), 1), "<=", size
        return
    same = shared and expr.as_symbol is not None and not _is_shorter(highest, size)
    if same and highest + 1 != size:
        yield highest + 1, "==", size
    elif Expr.of(0) not in extents.values():
        if not _is_within(highest, size, positive):
            yield _where_anything_runs(highest + 1, size, list(extents.values()))
        lowest = None if expr.linear(extents) is None else lower_bound(expr, extents)
        if lowest is not None and not is_nonnegative(lowest, positive):
            lacking = Expr(tuple((m, -c) for m, c in lowest.terms if c < 0))
            yield _where_anything_runs(lacking, lowest + lacking, list(extents.values()))


def _where_anything_runs(needed: Expr, size: Expr, extents: Sequence[Expr]) -> Need:
    """needed <= size, weakened where that may fail although a nest of these extents is empty."""
    runs = minimum(product(extents), 1)
    for sizes in _points({s for e in (needed, size, *extents) for s in e.symbols}):
        values = [_value(e, sizes) for e in (runs, needed, size)]
        if None not in values and values[0] == 0 and values[1] > values[2]:  # type: ignore[operator]
            return needed * runs, "<=", size
    return needed, "<=", size


def _points(symbols: Iterable[Symbol]) -> Iterator[dict[Symbol, int]]:
    """Sizes at which a nest may be empty: all are 0, or any one of them is."""
    names = sorted(symbols)
    yield dict.fromkeys(names, 0)
    for name in names:
        for size in _SIZES:
            yield {**dict.fromkeys(names, size), name: 0}


def _value(expr: Expr, sizes: Mapping[Symbol, int]) -> int | None:
    """The value of an expression; None if it divides by 0."""
    try:
        return int(expr.evaluate(sizes))
    except ZeroDivisionError:
        return None


def _is_shorter(highest: Expr, size: Expr) -> bool:
    """Whether an axis certainly ends before the end of the tensor that it walks. An empty one walks
    nothing, or what should be empty, too."""
    return highest.constant != -1 and is_at_most(highest + 2, size)


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
