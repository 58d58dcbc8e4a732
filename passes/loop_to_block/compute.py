"""Bodies of nests as operations on tiles: maps, accumulation, masking, dots."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.arith import CMPI_COMPARISON_OPERATIONS
from xdsl.dialects.builtin import FloatAttr, IntegerAttr
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from dialects.block import MapOp, YieldOp
from dialects.block import element_type as tile_element
from dialects.loop import IndexOp, NestOp
from dialects.strata import types as t
from dialects.strata.schedule import Schedule
from dialects.strata.types import TileType
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from dialects.walking import listed
from passes.loop_to_block.state import Tile
from passes.rewrites.loop.nests import data_inputs

Decided = Mapping[Operation, SSAValue]
"""Selections of a body whose outcome is known, and the value that they select."""

_FLOAT_COMBINE: dict[str, type[Operation]] = {
    "add": arith.AddfOp, "mul": arith.MulfOp, "max": arith.MaximumfOp, "min": arith.MinimumfOp,
}
_INT_COMBINE: dict[str, type[Operation]] = {
    "add": arith.AddiOp, "mul": arith.MuliOp, "max": arith.MaxSIOp, "min": arith.MinSIOp,
    "and": arith.AndIOp, "or": arith.OrIOp,
}
_WIDENS = frozenset[type]({arith.ExtFOp, arith.ExtSIOp, arith.ExtUIOp})


def combine(kind: str, a: SSAValue, b: SSAValue) -> Operation:
    """The scalar operation of a combiner."""
    table = _FLOAT_COMBINE if t.is_float(a.type) else _INT_COMBINE
    if a.type == t.i1 and kind in ("max", "min", "add", "mul"):  # truth values: or, and
        return arith.OrIOp(a, b) if kind in ("max", "add") else arith.AndIOp(a, b)
    return table[kind](a, b)  # type: ignore[call-arg]


def identity(kind: str, element: Attribute) -> float | int | bool:
    """The neutral element of a combiner."""
    if element == t.i1:
        return kind in ("and", "min", "mul")
    if kind in ("add", "or"):
        return 0.0 if t.is_float(element) else 0
    if kind == "mul":
        return 1.0 if t.is_float(element) else 1
    if kind == "and":
        return -1
    if t.is_float(element):
        return -np.inf if kind == "max" else np.inf
    info = np.iinfo(t.dtype_of(element))
    return int(info.min if kind == "max" else info.max)


def map_tiles(
    inputs: Sequence[Tile], dims: Sequence[Symbol], types: Sequence[TileType],
    build: Callable[[Block, Sequence[SSAValue]], Sequence[SSAValue]],
) -> MapOp:
    """A `block.map` over tiles broadcast to `dims`; `build` fills the body and returns its results.
    """
    block = Block(arg_types=[tile_element(i.value) for i in inputs])
    block.add_op(YieldOp.of(*build(block, block.args)))
    places = [[dims.index(a) for a in i.axes] for i in inputs]
    return MapOp.of([i.value for i in inputs], places, types, Region(block))


def append_body(
    nest: NestOp, block: Block, arguments: Sequence[SSAValue],
    indices: Mapping[Operation, SSAValue], decided: Decided | None = None,
) -> list[SSAValue]:
    """Copy a nest's scalar operations; `indices` maps its `loop.index` operations to values."""
    decided = decided or {}
    mapping: dict[SSAValue, SSAValue] = dict(
        zip(nest.body.block.args, arguments, strict=False))  # then come masks and accumulators
    for op in needed_ops(nest, decided):
        if isinstance(op, IndexOp):
            mapping[op.result] = indices[op]
        elif op in decided:
            mapping[op.results[0]] = mapping.get(decided[op], decided[op])
        else:
            copy = op.clone(mapping) if op.regions else op.clone_without_regions(mapping)
            copy.location = op.location
            block.add_op(copy)
    return [mapping.get(v, v) for v in nest.yielded]


def needed_ops(nest: NestOp, decided: Decided) -> list[Operation]:
    """The operations of a body except its yield and what decided selections make dead."""
    ops = listed(nest.body.block)[:-1]
    if decided.keys().isdisjoint(ops):
        return ops
    needed = set(nest.yielded)
    for op in reversed(ops):
        if not needed.isdisjoint(op.results):
            needed.update([decided[op]] if op in decided else op.operands)
    return [op for op in ops if not needed.isdisjoint(op.results)]


def index_ops(nest: NestOp, decided: Decided) -> list[IndexOp]:
    return [op for op in needed_ops(nest, decided) if isinstance(op, IndexOp)]


def select_identity(
    block: Block, valid: SSAValue, value: SSAValue, kind: str
) -> SSAValue:
    """`value` where `valid` holds, else the combiner's identity."""
    neutral = identity(kind, value.type)
    constant = scalar_constant(neutral, value.type)
    select = arith.SelectOp(valid, value, constant.results[0])
    block.add_ops([constant, select])
    return select.results[0]


def scalar_constant(value: float | bool, type_: Attribute) -> arith.ConstantOp:
    if t.is_float(type_):
        return arith.ConstantOp(FloatAttr(float(value), type_))  # type: ignore[arg-type]
    return arith.ConstantOp(IntegerAttr(int(value), type_))  # type: ignore[arg-type]


def product_operands(nest: NestOp) -> tuple[int, int] | None:
    """The inputs (p, q) if the body is p * q, each possibly widened; None for anything else."""
    value = nest.yielded[0]
    multiply = value.owner
    if not isinstance(multiply, (arith.MulfOp, arith.MuliOp)) or len(nest.results) != 1:
        return None
    places = [_argument_behind(nest, operand) for operand in multiply.operands]
    if None in places or len(listed(nest.body.block)) > 4:
        return None
    return places[0], places[1]  # type: ignore[return-value]


def is_dot(nest: NestOp) -> bool:
    """Whether `block.dot` can compute a nest: a sum of products of two inputs, possibly widened."""
    return len(nest.inputs) == 2 and is_gathered_dot(nest)


def lies_in_matrices(nest: NestOp, schedule: Schedule) -> bool:
    """Whether a nest is summed in matrix registers."""
    return is_dot(nest) and any(a.name in schedule.matrix for a in nest.reduce_axes)


def is_gathered_dot(nest: NestOp) -> bool:
    """Like `is_dot`, but further inputs are allowed if they only index the factors."""
    factors = product_operands(nest)
    return nest.combiner_names[0] == "add" and factors is not None and (
        sorted(factors) == data_inputs(nest))


def is_guarded_dot(nest: NestOp) -> bool:
    """Whether a nest is a `block.dot` of products that count only where a factor is read inside.

        select(i - j >= 0 and i - j < 28, x[i - j] * w[j], 0)    where x[...] has the pad 0

    Everywhere else the factor is 0, so its products count as 0, unless the other factor is infinite
    or NaN.
    """
    choice = nest.yielded[0].owner
    if len(nest.inputs) != 2 or len(nest.results) != 1 or nest.combiner_names != ["add"] or (
            not isinstance(choice, arith.SelectOp) or not _is_zero(choice.rhs)):
        return False
    multiply, conditions = choice.lhs.owner, _conjuncts(choice.cond)
    if not isinstance(multiply, arith.MulfOp) or conditions is None:
        return False
    factors = [_argument_behind(nest, v) for v in multiply.operands]
    return sorted(f for f in factors if f is not None) == [0, 1] and (
        _padded_at(nest) >= conditions)


def _padded_at(nest: NestOp) -> set[Expr]:
    """Expressions that are negative only where some input is read outside and 0 there."""
    return {bound for value, map_, pad in zip(
                nest.inputs, nest.input_maps, nest.pad_values, strict=True) if pad == 0
            for e, size in zip(map_, t.shape_of(value), strict=True)
            for bound in (e, size - 1 - e)}


def _conjuncts(condition: SSAValue) -> set[Expr] | None:
    """Expressions that are all at least 0 exactly where a condition on indices holds; None for
    other conditions."""
    op = condition.owner
    if isinstance(op, arith.AndIOp):
        left, right = map(_conjuncts, op.operands)
        return None if left is None or right is None else left | right
    if isinstance(op, arith.ConstantOp):
        return set() if _integer(condition) else None
    if not isinstance(op, arith.CmpiOp):
        return None
    index, bound = _index(op.lhs), _integer(op.rhs)
    name = CMPI_COMPARISON_OPERATIONS[op.predicate.value.data]
    if index is None or bound is None or name not in ("sge", "slt"):
        return None
    return {index - bound if name == "sge" else bound - 1 - index}


def _index(value: SSAValue) -> Expr | None:
    """The index expression that a value is; None for others."""
    if isinstance(value.owner, arith.IndexCastOp):
        value = value.owner.input
    return value.owner.expr.data if isinstance(value.owner, IndexOp) else None


def _integer(value: SSAValue) -> int | None:
    """The integer that a value is; None for others."""
    op = value.owner
    if not isinstance(op, arith.ConstantOp) or not isinstance(op.value, IntegerAttr):
        return None
    return op.value.value.data


def _is_zero(value: SSAValue) -> bool:
    op = value.owner
    return isinstance(op, arith.ConstantOp) and isinstance(op.value, FloatAttr) and (
        op.value.value.data == 0)


def unsigned_factors(nest: NestOp) -> list[int]:
    """The inputs that the body p * q of a nest widens as unsigned integers."""
    arguments = list(nest.body.block.args)
    return [arguments.index(op.input) for op in nest.body.block.ops  # type: ignore[arg-type]
            if isinstance(op, arith.ExtUIOp) and op.input in arguments]


def _argument_behind(nest: NestOp, value: SSAValue) -> int | None:
    maker = value.owner
    if isinstance(maker, Operation) and type(maker) in _WIDENS:
        value = maker.operands[0]
    arguments = list(nest.body.block.args)
    return arguments.index(value) if value in arguments else None  # type: ignore[arg-type]
