"""Online sums: they may accumulate while the maximum that they subtract is still being found.

    %m = nest (i, reduce j) ins(%x[i, j]) outs(max)
    %e = nest (i, j) ins(%x[i, j], %m[i]) {exp(x - m)}
    %l = nest (i, reduce j) ins(%e[i, j]) outs(add)
    %y = nest (i, d, reduce j) ins(%e[i, j], %v[j, d]) outs(add) {e * v}

exp(x - m) == exp(x - n) * exp(n - m). Consider a sum of such terms, each multiplied by something
that does not depend on m. For a larger maximum m, it equals its value for n times exp(n - m). So %l
and %y are *online* on %m: a single walk along j finds the maximum and both sums, and rescales the
sums whenever the maximum grows. A schedule asks for that (`online = 1`); what a kernel computes
does not depend on it. Source: M. Milakov, N. Gimelshein, Online normalizer calculation for softmax,
2018.
"""

from __future__ import annotations

from collections.abc import Collection

from xdsl.dialects import arith, math
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from dialects.loop import NestOp, scalar_type
from dialects.records import dataclass
from dialects.semantics.scalar import operations_for
from dialects.strata.types import f32, f64
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.kinds import is_contraction
from passes.analyses.loop.private import is_elsewhere
from passes.rewrites.loop.nests import Read, reads_of


@dataclass(frozen=True)
class Running:
    """The maximum that a sum is online on, and the function of the difference that is summed."""

    maximum: SSAValue
    function: type[math.ExpOp] | type[math.Exp2Op]


def running_maximum(nest: NestOp) -> Running | None:
    """The maximum that a reduction is online on; None if it is not online."""
    if not nest.is_reduction or nest.combiner_names != ["add"] or nest.is_scan:
        return None
    found = exponential(nest, nest.yielded[0])
    if found is None or scalar_type(nest.results[0]) != scalar_type(found.maximum) or (
            scalar_type(found.maximum) not in (f32, f64)):
        return None
    maker = found.maximum.owner
    assert isinstance(maker, NestOp)
    return found if _summed(maker) == _summed(nest) else None


def adds_logarithm(nest: NestOp, maximum: SSAValue) -> bool:
    """Whether a nest computes m + log(l) from a maximum m and a sum l that is online on it.

    A running maximum begins at the lowest finite number, which is not that of a row of -inf. But
    the sum of such a row is 0, so that this is -inf.
    """
    sums = [v for v in nest.inputs if isinstance(v.owner, NestOp)
            and (running := running_maximum(v.owner)) and running.maximum is maximum]
    made = nest.yielded[0].owner
    return bool(sums) and len(nest.results) == 1 and isinstance(made, arith.AddfOp) and any(
        isinstance(v.owner, math.LogOp) for v in made.operands)


def waits_for(nest: NestOp, axes: Collection[Symbol], running: Running | None) -> set[SSAValue]:
    """The reductions over the given axes that a nest needs finished, directly or indirectly."""
    found = {v for v in sources_of(nest) if isinstance(v.owner, NestOp) and not v.owner.is_scan
             and any(a.name in axes for a in v.owner.reduce_axes)}
    return found - ({running.maximum} if running else set())


def sources_of(nest: NestOp) -> set[SSAValue]:
    """All values that a nest is computed from."""
    found, todo = set[SSAValue](), list(nest.inputs)
    while todo:
        value = todo.pop()
        if value not in found and isinstance(value.owner, NestOp):
            todo += value.owner.inputs
        found.add(value)
    return found


def is_between_products(nest: NestOp) -> bool:
    """Whether a reduction reads scores of a contraction and leads to weights that another reads.

    It is that of a softmax, or runs along the last dim of scores. Statistics of a batch, which sum
    across memory or over several dims, are no part of such a chain.
    """
    summed = [a for a in nest.reduce_axes if a.extent.constant != 1]
    if len(summed) != 1:
        return False
    is_part = nest.combiner_names == ["max"] or any(
        summed[0].name in map_[-1].symbols for map_ in nest.input_maps if map_)
    has_scores, todo, seen = False, list(nest.inputs), set[SSAValue]()
    while todo:
        value = todo.pop()
        if value in seen or not isinstance(value.owner, NestOp):
            continue
        seen.add(value)
        is_maximum = value.owner.combiner_names == ["max"]
        has_scores, is_part = has_scores or is_contraction(value.owner), is_part or is_maximum
        if value.owner.is_elementwise or is_maximum:
            todo += value.owner.inputs
    return has_scores and is_part and _leads_to_product(nest)


def _leads_to_product(nest: NestOp) -> bool:
    """Whether elementwise nests turn a nest's result into a factor of a contraction."""
    todo, seen = [nest], set[NestOp]()
    while todo:
        readers = {use.operation for r in todo.pop().results for use in r.uses}
        for reader in readers:
            if isinstance(reader, NestOp) and is_contraction(reader):
                return True
            if isinstance(reader, NestOp) and reader.is_elementwise and reader not in seen:
                seen.add(reader)
                todo.append(reader)
    return False


def _summed(nest: NestOp) -> set[Symbol]:
    return {a.name for a in nest.reduce_axes}


def exponential(nest: NestOp, value: SSAValue) -> Running | None:
    """Match a value of a nest's body as exp(x - m) times something that does not depend on m."""
    maker = value.owner
    if isinstance(maker, Block):
        return _exponential_read(argument_read(nest, value))
    match maker:
        case math.ExpOp() | math.Exp2Op():
            return _difference(nest, maker)
        case arith.ExtFOp() | arith.TruncFOp():
            return exponential(nest, maker.operands[0])
        case arith.MulfOp():
            return _product(nest, maker.lhs, maker.rhs) or _product(nest, maker.rhs, maker.lhs)
        case arith.SelectOp():
            chosen = maker.lhs if is_zero(maker.rhs) else maker.rhs if is_zero(maker.lhs) else None
            found = None if chosen is None else exponential(nest, chosen)
            return None if found is None or _depends(nest, maker.cond, found.maximum) else found
        case _:
            return None


def argument_read(nest: NestOp, value: SSAValue) -> Read:
    """The read that an argument of a nest's body stands for."""
    assert isinstance(value, BlockArgument)
    return reads_of(nest)[value.index]


def elementwise_maker(read: Read) -> tuple[NestOp, SSAValue] | None:
    """The elementwise nest that computes a read value at the same place, and the value in its body.
    """
    maker = read.value.owner
    if not isinstance(maker, NestOp) or not maker.is_elementwise or read.pad is not None:
        return None
    number = maker.number_of(read.value)
    if is_elsewhere(read, maker.output_maps[number]):
        return None
    return maker, maker.yielded[number]


def is_zero(value: SSAValue) -> bool:
    return isinstance(value.owner, arith.ConstantOp) and (
        getattr(value.owner.value, "value").data == 0)  # noqa: B009


def _exponential_read(read: Read) -> Running | None:
    made = elementwise_maker(read)
    return None if made is None else exponential(*made)


def _difference(nest: NestOp, op: math.ExpOp | math.Exp2Op) -> Running | None:
    difference = op.operand.owner
    if not isinstance(difference, arith.SubfOp) or not isinstance(difference.rhs.owner, Block):
        return None
    maximum = argument_read(nest, difference.rhs).value
    maker = maximum.owner
    if not isinstance(maker, NestOp) or not maker.is_reduction or maker.is_scan or (
            maker.combiner_names != ["max"]):
        return None
    return None if _depends(nest, difference.lhs, maximum) else Running(maximum, type(op))


def _product(nest: NestOp, value: SSAValue, other: SSAValue) -> Running | None:
    found = exponential(nest, value)
    return None if found is None or _depends(nest, other, found.maximum) else found


def _depends(nest: NestOp, value: SSAValue, on: SSAValue) -> bool:
    """Whether a value of a nest's body depends on a tensor."""
    ops: list[Operation] = list(operations_for(nest.body.block, [value]))
    read = {value, *(o for op in ops for o in op.operands)}
    tensors = [argument_read(nest, a).value for a in nest.body.block.args if a in read]
    return on in tensors or any(
        isinstance(v.owner, NestOp) and on in sources_of(v.owner) for v in tensors)
