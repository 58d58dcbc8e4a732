"""The roles of a contraction's axes, by which of its factors and result they index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import BlockArgument

from dialects.loop import KernelOp, NestOp
from dialects.strata.types import TensorType
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.runs import result_order, running_axis
from passes.rewrites.loop.nests import axes_of_input, data_inputs
from targets.cuda.scheduling.tiles import width_of


@dataclass(frozen=True)
class Roles:
    """A contraction's axes: in both factors and the result, in one factor, or summed."""

    batch: tuple[Symbol, ...]
    rows: tuple[Symbol, ...]
    columns: tuple[Symbol, ...]
    reduce: tuple[Symbol, ...]


def stored_by(kernel: KernelOp, nest: NestOp) -> NestOp:
    """The nest whose result decides which axes are the columns of a contraction.

    For a plain product that is the last nest of its epilogue; a convolution decides on its own.
    """
    last = kernel.yielded[0].owner
    walked = {a.name for a in nest.parallel_axes}
    if not isinstance(last, NestOp) or has_windows(nest):
        return nest
    return last if {a.name for a in last.parallel_axes} >= walked else nest


def has_windows(nest: NestOp) -> bool:
    """Whether summed axes and a factor's own axes together index one of its dims."""
    summed = {a.name for a in nest.reduce_axes}
    used = [symbols_of(m) for m in nest.input_maps]
    own = {a.name for a in nest.parallel_axes if not all(a.name in u for u in used)}
    return any(e.symbols & summed and e.symbols & own for m in nest.input_maps for e in m)


def roles_of(nest: NestOp, stored: NestOp | None = None) -> Roles:
    """The roles. Columns run along the memory of the stored result; they index the right factor."""
    order = [a for a in result_order(stored or nest) if any(
        a == x.name for x in nest.parallel_axes)]
    last = order[-1] if order else ""
    factors = [axes_of_input(nest, k) for k in data_inputs(nest)]
    right = [f for f in factors if last in f]
    left = [f for f in factors if last not in f]
    batch = [a for a in order if all(a in f for f in factors)]
    columns = [a for a in order if a not in batch and all(a in f for f in right)
               and not any(a in f for f in left)]
    rows = [a for a in order if a not in batch and a not in columns]
    return Roles(tuple(batch), tuple(rows), tuple(columns),
                 tuple(a.name for a in nest.reduce_axes))


def epilogue_bytes(kernel: KernelOp, nest: NestOp, roles: Roles) -> int:
    """The bytes per result that a kernel stores after a contraction, and that its epilogue reads.
    """
    own = {*roles.rows, *roles.columns}
    read = {v: width_of(v) for n in kernel.nests if n is not nest
            for v, map_ in zip(n.inputs, n.input_maps, strict=True)
            if isinstance(v, BlockArgument) and own <= symbols_of(map_)}
    return sum(read.values()) + sum(map(width_of, kernel.yielded))


def factor_width(nest: NestOp) -> int:
    """The bytes of an element of the wider factor."""
    return max(width_of(nest.inputs[k]) for k in data_inputs(nest))


def reads_vectors(kernel: KernelOp, nest: NestOp, roles: Roles) -> bool:
    """Whether the epilogue reads a number per column, regardless of the row, such as a bias."""
    maps = [symbols_of(map_) for n in kernel.nests if n is not nest
            for v, map_ in zip(n.inputs, n.input_maps, strict=True) if isinstance(v, BlockArgument)]
    return any(m & {*roles.columns} and not m & {*roles.rows} for m in maps)


def symbols_of(map_: Sequence[Expr]) -> set[Symbol]:
    """The symbols that an index map uses."""
    return set[Symbol]().union(*(e.symbols for e in map_))


def memory_axis(nest: NestOp, position: int) -> Symbol | None:
    """The only axis with stride 1 in an input's memory; dims of one element do not count."""
    type_ = nest.inputs[position].type
    assert isinstance(type_, TensorType)
    pairs = zip(nest.input_maps[position], type_.shape, strict=True)
    found = running_axis([e for e, size in pairs if size.constant != 1], nest.axes)
    return found[0] if len(found) == 1 else None
