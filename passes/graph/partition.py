"""graph-partition: make the program of one rank, with collective operations, from annotations.

    %w = graph.shard_as %w0 {axes = "_,tp"}      %w = graph.constant ... : f32[64, 128]
    %h = graph.matmul %x, %w                     %h = graph.matmul %x, %w : f32[n, 128]
    %r = graph.relu %h                     -->   %r = graph.relu %h
    %y = graph.matmul %r, %v                     %p = graph.matmul %r, %v1
                                                 %y = graph.all_reduce %p {reduce = "sum", ...}

Enters: a program with annotations (`graph-annotate-shards`), on tensors that every rank has. They
propagate in the order of the operations (`passes/analyses/graph/shardings.py`), and where operands
need another sharding they are exchanged. Inputs and outputs stay whole. With a rank, constants hold
only its parts; without one, every rank takes them with `graph.shard`, and the program is the same
on all. Does nothing without a mesh.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

import numpy as np
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Attribute, Operation, SSAValue

from dialects.graph import ConstantOp, TransposeOp
from dialects.graph.base import Build, GraphOp, ShapeError, ints_of
from dialects.graph.collective import (
    AllGatherOp,
    AllReduceOp,
    CollectiveOp,
    ShardAsOp,
    ShardOp,
)
from dialects.ranks.attributes import GroupAttr
from dialects.ranks.mesh import Mesh
from dialects.records import dataclass
from dialects.strata.func import FuncOp
from dialects.strata.types import TensorType
from passes.analyses.graph.shardings import (
    Answer,
    Asked,
    Sharding,
    answer,
    local_shape,
    whole,
    with_sizes,
)
from passes.base import StrataContext, StrataPass
from passes.rewriting import erase_unused, functions


@dataclass(frozen=True)
class GraphPartition(StrataPass):
    """Divide tensors among ranks as annotations say. `mesh`: instead of the compilation's."""

    name = "graph-partition"

    mesh: str = ""

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        mesh = Mesh.parse(self.mesh) if self.mesh else context.mesh
        if mesh is None:
            return
        for func in functions(module):
            partition = Partition(func, mesh, context)
            partition.run()
            erase_unused(func.body.block, context)
            context.remark(self, func, f"divided for {mesh}: {partition.told}")


@dataclass
class Partition:
    """One function. `parts`: what holds each value on this rank, in each sharding so far."""

    func: FuncOp
    mesh: Mesh
    context: StrataContext
    shardings: dict[SSAValue, Sharding] = field(default_factory=dict[SSAValue, Sharding])
    parts: dict[SSAValue, dict[Sharding, SSAValue]] = field(
        default_factory=dict[SSAValue, "dict[Sharding, SSAValue]"])
    exchanged: int = 0
    divided: int = 0

    @property
    def axes(self) -> Mapping[str, int]:
        return dict(self.mesh.axes)

    @property
    def told(self) -> str:
        return f"{self.exchanged} exchanges, {self.divided} divided operations"

    def run(self) -> None:
        for argument in self.func.body.block.args:
            self._keep(argument, argument, _whole(argument))
        for op in list(self.func.body.block.ops):
            self._convert(op)

    def _keep(self, value: SSAValue, made: SSAValue, sharding: Sharding) -> None:
        self.shardings[value] = sharding
        self.parts.setdefault(value, {})[sharding] = made

    def _convert(self, op: Operation) -> None:
        given = tuple(self.shardings[v] for v in op.operands)
        found = answer(Asked(op, given, self.axes)) if isinstance(op, GraphOp) and not isinstance(
            op, CollectiveOp) else None
        is_divided = found is not None and any(any(s) for s in (*found.operands, found.result))
        if found is None or not is_divided:
            op.operands = [self._as(v, _whole(v), op) for v in op.operands]
            for result in op.results:
                self._keep(result, result, _whole(result))
            return
        assert isinstance(op, GraphOp)
        self._divide(op, found)

    def _divide(self, op: GraphOp, found: Answer) -> None:
        """Compute this rank's part, and reduce it among ranks."""
        operands = [self._as(v, s, op) for v, s in zip(op.operands, found.operands, strict=True)]
        [type_] = op.result_tensors
        shape = local_shape(type_.shape, found.result, self.axes)
        properties = with_sizes(op.properties, found.sizes, shape)
        made = operands[0]
        if not isinstance(op, ShardAsOp):
            types = [_tensor(v) for v in operands]
            [inferred] = type(op).infer(types, properties)
            if inferred.shape != shape:
                raise ShapeError(f"{op.name} gives {inferred.short} for the part of {type_.short}")
            made = Build(op).insert(type(op).create(
                operands=operands, result_types=[inferred], properties=properties)).results[0]
            made.name_hint = op.results[0].name_hint
        for axis, reduction in found.reduced.items():
            made = self._exchange(op, AllReduceOp, made, axis, reduce=StringAttr(reduction))
        self.divided += 1
        self._keep(op.results[0], made, found.result)

    # ------------------------------------------------------------------ other shardings
    def _as(self, value: SSAValue, wanted: Sharding, before: Operation) -> SSAValue:
        """A value in a sharding, exchanged or cut where it has another one."""
        parts = self.parts[value]
        if wanted not in parts:
            start = self.shardings[value]
            made = parts[start]
            for dim, (old, new) in enumerate(zip(start, wanted, strict=True)):
                if old and old != new:
                    made = self._along(before, AllGatherOp, made, dim, old)
            for dim, (old, new) in enumerate(zip(start, wanted, strict=True)):
                if new and old != new:
                    made = self._cut(before, made, dim, new)
            parts[wanted] = made
        return parts[wanted]

    def _cut(self, before: Operation, value: SSAValue, dim: int, axis: str) -> SSAValue:
        """This rank's part of a value that all ranks have; of a weight, if the rank is known, only
        the part is kept."""
        owner, rank = value.owner, self.context.rank
        if rank is not None and isinstance(owner, ConstantOp) and not owner.varies:
            return self._part_of_weight(before, owner, dim, axis, rank)
        if isinstance(owner, TransposeOp):
            perm = ints_of(owner.properties, "perm")
            source = self._cut(before, owner.x, perm[dim], axis)
            return Build(before)(TransposeOp, source, perm=list(perm))
        return self._along(before, ShardOp, value, dim, axis)

    def _part_of_weight(
        self, before: Operation, op: ConstantOp, dim: int, axis: str, rank: int
    ) -> SSAValue:
        store, count = self.context.weights, self.mesh.size(axis)
        place = self.mesh.group(axis).members(rank).index(rank)

        def part(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> np.ndarray[
                tuple[int, ...], np.dtype[np.generic]]:
            return np.ascontiguousarray(np.split(array, count, dim)[place])

        made = op.derived(store, f".{axis}{place}", f"part {place} of {count} along {dim}", part)
        return Build(before).insert(made).results[0]

    def _along(
        self, before: Operation, kind: type[CollectiveOp], value: SSAValue, dim: int, axis: str
    ) -> SSAValue:
        """A collective operation on the first dim, for any dim."""
        build, rank = Build(before), _tensor(value).rank
        order = [dim, *(k for k in range(rank) if k != dim)]
        if dim:
            value = build(TransposeOp, value, perm=order)
        made = self._exchange(before, kind, value, axis)
        return build(TransposeOp, made, perm=[order.index(k) for k in range(rank)]) if dim else made

    def _exchange(
        self, before: Operation, kind: type[CollectiveOp], value: SSAValue, axis: str,
        **attributes: Attribute,
    ) -> SSAValue:
        self.exchanged += kind is not ShardOp
        return Build(before)(kind, value, group=GroupAttr(self.mesh.group(axis)), **attributes)


def _tensor(value: SSAValue) -> TensorType:
    assert isinstance(value.type, TensorType)
    return value.type


def _whole(value: SSAValue) -> Sharding:
    return whole(value.type) if isinstance(value.type, TensorType) else ()
