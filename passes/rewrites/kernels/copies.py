"""Nests that copy operands of a kernel: into another order of dims, or with more elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.ir import SSAValue

from dialects.loop import Axis, NestOp, YieldOp
from dialects.strata.types import TensorType, shape_of, tensor
from dialects.symbolic.expr import Expr
from dialects.symbolic.ranges import lower_bound, upper_bound
from dialects.symbolic.symbol import Symbol


def copying(
    value: SSAValue, map_: Sequence[Expr], pad: float | bool | None, axes: Sequence[Axis],
    kept: Sequence[Expr],
) -> NestOp:
    """A nest that copies elements of `value`, read at `map_`, into a tensor over `axes`."""
    assert isinstance(value.type, TensorType)
    type_ = tensor(value.type.element, [a.extent for a in axes])
    nest = NestOp.of(axes, [value], [map_], [type_], [kept], pads=[pad], body=None)
    nest.body.block.add_op(YieldOp.of(nest.body.block.args[0]))
    return nest


def filled_up(axes: Sequence[Axis], multiple: int) -> list[Axis]:
    """The axes, the last one longer if its extent is no multiple."""
    last = axes[-1]
    return [*axes[:-1], Axis(last.name, last.extent.ceildiv(multiple) * multiple)] if (
        multiple > 1) else [*axes]


def renamed(copy: NestOp, map_: Sequence[Expr]) -> list[Expr]:
    """An index of a copy in the axes `i0`, `i1` ... of a kernel of its own."""
    names = {a.name: Expr.axis(f"i{k}") for k, a in enumerate(copy.axes)}
    return [e.substitute(names) for e in map_]


def known_sizes(sizes: Sequence[Expr]) -> tuple[int, ...]:
    """Sizes without symbols."""
    return tuple(int(s.evaluate({})) for s in sizes)


def size_symbols(copy: NestOp) -> set[Symbol]:
    """The size symbols of a copy."""
    exprs = [a.extent for a in copy.axes] + [e for m in copy.input_maps for e in m]
    exprs += [e for v in [*copy.inputs, *copy.results] for e in shape_of(v)]
    return set[Symbol]().union(*(e.symbols for e in exprs)) - {a.name for a in copy.axes}


def range_of(expr: Expr, extents: Mapping[Symbol, Expr]) -> tuple[Expr, Expr] | None:
    """The least and the largest value of an index, if both are known."""
    low, high = lower_bound(expr, extents), upper_bound(expr, extents)
    return None if low is None or high is None else (low, high)
