"""Collapsing axes of a kernel: fewer, longer axes, and views around its call.

Dims of size 1 are dropped. Two axes are merged if all references of the kernel walk them as
adjacent whole dims.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from xdsl.ir import SSAValue

from dialects.loop import Axis, CallOp, IndexOp, KernelOp, NestOp, ViewOp, YieldOp
from dialects.strata.types import TensorType, shape_of, tensor
from dialects.symbolic.expr import Expr
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import set_location
from passes.rewrites.loop.nests import carry, gathered_inputs

Shapes = dict[SSAValue, list[list[int]]]
"""Per tensor of a kernel: its new dims, each a run of consecutive old dims."""


def collapse(kernel: KernelOp, call: CallOp) -> None:
    """Drop the unit dims of a kernel that one call runs, and merge adjacent axes. The results of
    the call are replaced by views of what the new call returns."""
    kept = _read_outside(kernel) | _scattered(kernel)
    runs: dict[SSAValue, list[list[int]]] = {
        v: [[d] for d, s in enumerate(shape_of(v)) if s.constant != 1 or (v, d) in kept]
        for v in _tensors(kernel)}
    walks = _Walks.of(kernel)
    merged: list[list[Symbol]] = [[name] for name in walks.extents]
    while (pair := _find_pair(walks, merged, runs)) is not None:
        _merge(walks, merged, runs, *pair)
    if len(merged) < len(walks.extents) or any(
            len(dims) < len(shape_of(v)) for v, dims in runs.items()):
        _rebuild(kernel, merged, runs)
        _update_call(kernel, call)


class _Walks(NamedTuple):
    """How a kernel's nests walk its tensors: collected once, queried for each pair of axes."""

    extents: Mapping[Symbol, Expr]
    nests: Sequence[Mapping[Symbol, bool]]
    """Per nest, its axes and whether each is a reduce axis."""
    computed_with: frozenset[Symbol]
    """Axes whose values the bodies use."""
    references: Sequence[tuple[SSAValue, tuple[Expr, ...]]]

    @staticmethod
    def of(kernel: KernelOp) -> _Walks:
        nests = kernel.nests
        used = [op.expr.data.symbols for n in nests for op in n.body.block.ops
                if isinstance(op, IndexOp)]
        return _Walks(
            kernel.axes, [{a.name: a.reduce for a in n.axes} for n in nests],
            frozenset[Symbol]().union(*used), list(_references(kernel)))


def _tensors(kernel: KernelOp) -> list[SSAValue]:
    return [*kernel.body.block.args, *(r for n in kernel.nests for r in n.results)]


def _references(kernel: KernelOp) -> Iterator[tuple[SSAValue, tuple[Expr, ...]]]:
    for nest in kernel.nests:
        yield from zip(nest.inputs, nest.input_maps, strict=True)
        yield from zip(nest.results, nest.output_maps, strict=True)
        yield from zip(nest.into, nest.output_maps, strict=False)


def _read_outside(kernel: KernelOp) -> set[tuple[SSAValue, int]]:
    """Dims in which a padded read may go out of bounds; these must keep their own index."""
    return {(v, d) for nest in kernel.nests
            for v, m, p in zip(nest.inputs, nest.input_maps, nest.pad_values, strict=True)
            if p is not None for d, e in enumerate(m) if e.constant != 0}


def _scattered(kernel: KernelOp) -> set[tuple[SSAValue, int]]:
    """Dims whose index a scatter reads from an input; a scatter must keep them."""
    return {(v, d) for nest in kernel.nests if nest.is_scatter
            for v in (*nest.results, *nest.into)
            for d, e in enumerate(nest.output_maps[0]) if gathered_inputs([e])}


def _find_pair(
    walks: _Walks, merged: Sequence[Sequence[Symbol]], runs: Shapes
) -> tuple[int, int] | None:
    """The positions of two runs of axes that everything in the kernel walks as one."""
    for i, first in enumerate(merged):
        for j, second in enumerate(merged):
            if i != j and _are_neighbours(walks, first, second, runs):
                return i, j
    return None


def _are_neighbours(
    walks: _Walks, first: Sequence[Symbol], second: Sequence[Symbol], runs: Shapes
) -> bool:
    names = {*first, *second}
    if any(len({axes[name] for name in names & axes.keys()}) > 1 for axes in walks.nests):
        return False
    if any(len(names & axes.keys()) not in (0, len(names)) for axes in walks.nests):
        return False
    if names & walks.computed_with:
        return False
    touched: dict[SSAValue, set[int]] = {}
    for value, map_ in walks.references:
        at = _position(value, map_, first, second, runs, walks.extents)
        if at is None:
            return False
        touched.setdefault(value, set()).add(at)
    return all(len(places) == 1 for places in touched.values())


def _position(
    value: SSAValue, map_: Sequence[Expr], first: Sequence[Symbol], second: Sequence[Symbol],
    runs: Shapes, extents: Mapping[Symbol, Expr],
) -> int | None:
    """Where a reference walks `first` and then `second` as whole adjacent dims.

    The position among the tensor's runs; -1 if the reference uses neither; None otherwise.
    """
    names = {*first, *second}
    if not any(e.symbols & names for e in map_):
        return -1
    shape = shape_of(value)
    whole = [[axis if (axis := map_[d].as_symbol) and shape[d] == extents.get(axis) else None
              for d in run] for run in runs[value]]
    for k in range(len(whole) - 1):
        if whole[k] == list(first) and whole[k + 1] == list(second):
            others = [e for d, e in enumerate(map_) if d not in (*runs[value][k],
                                                                 *runs[value][k + 1])]
            return None if any(e.symbols & names for e in others) else k
    return None


def _merge(
    walks: _Walks, merged: list[list[Symbol]], runs: Shapes, i: int, j: int
) -> None:
    for value, map_ in walks.references:
        at = _position(value, map_, merged[i], merged[j], runs, walks.extents)
        if at is not None and at >= 0:
            runs[value][at:at + 2] = [[*runs[value][at], *runs[value][at + 1]]]
    merged[i] = [*merged[i], *merged[j]]
    del merged[j]


def _rebuild(kernel: KernelOp, merged: Sequence[Sequence[Symbol]], runs: Shapes) -> None:
    """Rebuild the nests over merged axes and tensors with merged dims."""
    extents = kernel.axes
    first = {names[0]: names for names in merged}
    block = kernel.body.block
    old_arguments, old_ops = list(block.args), list(block.ops)
    values: dict[SSAValue, SSAValue] = {}
    for argument in old_arguments:
        new_argument = block.insert_arg(_run_type(argument, runs), len(block.args))
        new_argument.name_hint = argument.name_hint
        values[argument] = new_argument
    for nest in [op for op in old_ops if isinstance(op, NestOp)]:
        axes = [Axis(a.name, product(extents[n] for n in first[a.name]), a.reduce)
                for a in nest.axes if a.name in first]
        new = carry(nest, NestOp.of(
            axes, [values[v] for v in nest.inputs],
            [_runs_of(v, m, runs) for v, m in zip(nest.inputs, nest.input_maps, strict=True)],
            [_run_type(r, runs) for r in nest.results],
            [_runs_of(r, m, runs) for r, m in zip(nest.results, nest.output_maps, strict=True)],
            combiners=nest.combiner_names, pads=nest.pad_values,
            into=[values[v] for v in nest.into], body=nest.detach_region(0)))
        values |= zip(nest.results, new.results, strict=True)
        block.add_op(new)
    block.add_op(YieldOp.of(*(values[v] for v in old_ops[-1].operands)))
    set_location(kernel, kernel)
    for op in reversed(old_ops):
        op.detach()
        op.erase()
    for argument in old_arguments:
        block.erase_arg(argument)


def _runs_of(value: SSAValue, map_: Sequence[Expr], runs: Shapes) -> list[Expr]:
    """The index map over merged dims: the first axis of a run now walks the whole run."""
    return [map_[run[0]] for run in runs[value]]


def _run_type(value: SSAValue, runs: Shapes) -> TensorType:
    assert isinstance(value.type, TensorType)
    shape = value.type.shape
    return tensor(value.type.element, [product(shape[d] for d in run) for run in runs[value]])


def _update_call(kernel: KernelOp, call: CallOp) -> None:
    """Pass views with the new shapes to the kernel, and view its results with the old shapes."""
    block = call.parent_block()
    assert block is not None
    inputs: list[SSAValue] = []
    for value, argument in zip(call.inputs, kernel.body.block.args, strict=True):
        inputs.append(_viewed(value, shape_of(argument), call))
    types = [v.type for v in kernel.yielded if isinstance(v.type, TensorType)]
    new = CallOp.of(call.kernel.data, inputs, call.sizes.data, types)
    new.location = call.location
    block.insert_op_before(new, call)
    for old, result in zip(call.results, new.results, strict=True):
        result.name_hint = old.name_hint
        old.replace_all_uses_with(_viewed(result, shape_of(old), call))
    call.detach()
    call.erase()


def _viewed(value: SSAValue, shape: Sequence[Expr], before: CallOp) -> SSAValue:
    if shape_of(value) == tuple(shape):
        return value
    view = ViewOp.of(value, shape)
    view.location = before.location
    block = before.parent_block()
    assert block is not None
    block.insert_op_before(view, before)
    return view.result
