"""Which tensors of a function share memory, before buffers exist.

A view shares its source's memory. A kernel that writes `into` a tensor and keeps the rest computes
its result in that tensor's memory, if the tensor is not needed afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import BlockArgument, Operation, SSAValue, Use

from dialects.graph.collective import CollectiveOp
from dialects.graph.foreign import ForeignKernelOp
from dialects.loop import CallOp, EmptyOp, KernelOp, NestOp, ViewOp
from dialects.ranks.collectives import ALL_REDUCE, BROADCAST
from dialects.records import dataclass
from dialects.strata.control import ControlOp
from dialects.strata.func import FuncOp
from passes.rewriting import functions


@dataclass(eq=False)
class Storage:
    """The memory of some tensors.

    `is_fresh`: it belongs to no input, constant or called function. `is_owned`: a called function
    has returned it. `into`: for results computed over a tensor of a call, the number of that
    argument.
    """

    is_fresh: bool
    is_owned: bool = False
    into: dict[SSAValue, int] = field(default_factory=dict[SSAValue, int])


def kernels_of(module: ModuleOp) -> dict[str, KernelOp]:
    return {op.sym_name.data: op for op in module.body.block.ops if isinstance(op, KernelOp)}


def assign_storage(func: FuncOp, kernels: dict[str, KernelOp]) -> dict[SSAValue, Storage]:
    """The storage of every tensor of a function."""
    positions = {op: k for k, op in enumerate(func.body.block.ops)}
    storage: dict[SSAValue, Storage] = {
        a: Storage(is_fresh=False) for a in func.body.block.args}
    for op in func.body.block.ops:
        if isinstance(op, ViewOp):
            storage[op.result] = storage[op.source]
        elif isinstance(op, CallOp):
            _assign_call(op, kernels[op.kernel.data], storage, positions)
        elif isinstance(op, CollectiveOp):
            storage[op.result] = _of_collective(op, storage[op.x], positions)
        elif isinstance(op, ForeignKernelOp):
            _assign_foreign(op, storage, positions)
        else:
            storage |= {r: Storage(isinstance(op, EmptyOp), isinstance(op, ControlOp))
                        for r in op.results}
    return storage


def _of_collective(
    op: CollectiveOp, source: Storage, positions: dict[Operation, int]
) -> Storage:
    """That of the operand if the result has its elements' places and nothing needs it afterwards.
    """
    is_last = _last_use(root(op.x), positions) <= positions[op]
    in_place = op.KIND in (ALL_REDUCE, BROADCAST) and source.is_fresh and is_last
    return source if in_place else Storage(is_fresh=True)


def _assign_foreign(
    op: ForeignKernelOp, storage: dict[SSAValue, Storage], positions: dict[Operation, int]
) -> None:
    """A result that starts with an operand's elements has its place, if nothing else needs it."""
    sources = [storage[v] for v in op.inputs]
    for result, kept in zip(op.results, op.kept.data, strict=True):
        storage[result] = Storage(is_fresh=True)
        number = -1 if kept.constant is None else kept.constant
        if number < 0:
            continue
        value, own = op.inputs[number], sources[number]
        is_last = _last_use(root(value), positions) <= positions[op]
        if own.is_fresh and is_last and sources.count(own) == 1:
            storage[result] = own


def _assign_call(
    op: CallOp, kernel: KernelOp, storage: dict[SSAValue, Storage],
    positions: dict[Operation, int],
) -> None:
    sources = [storage[v] for v in op.inputs]
    for result, value in zip(op.results, kernel.yielded, strict=True):
        argument = kept_argument(value)
        own = Storage(is_fresh=True)
        if argument is not None:
            kept = op.inputs[argument.index]
            free = storage[kept].is_fresh and sources.count(storage[kept]) == 1
            if free and _last_use(root(kept), positions) <= positions[op]:
                own = storage[kept]
                sources.append(own)  # the next result cannot have it too
            own.into[result] = argument.index
        storage[result] = own


def kept_argument(value: SSAValue) -> BlockArgument | None:
    """The kernel argument whose elements a result keeps wherever no nest writes."""
    while not isinstance(value, BlockArgument):
        owner = value.owner
        if isinstance(owner, ViewOp):
            value = owner.source
        elif isinstance(owner, NestOp) and owner.into:
            value = owner.into[0]
        else:
            return None
    return value


def root(value: SSAValue) -> SSAValue:
    """The tensor that a chain of views shows."""
    while isinstance(value.owner, ViewOp):
        value = value.owner.source
    return value


def _last_use(value: SSAValue, positions: dict[Operation, int]) -> int:
    """The position of the last operation that reads a tensor, directly or through views."""
    last = -1
    for use in value.uses:
        user = use.operation
        is_view = isinstance(user, ViewOp)
        last = max(last, _last_use(user.result, positions) if is_view else positions[user])
    return last


# ---------------------------------------------------------------------- other reads than `into`
def separate_reads(module: ModuleOp) -> None:
    """Separate the argument that a result is computed over from all other uses of it.

        kernel(%a) { nest ins(%a) into(%a) }    -->    kernel(%a, %b) { nest ins(%a) into(%b) }

    Otherwise the kernel would read elements that it has overwritten. Calls pass the tensor twice.
    """
    calls: dict[str, list[CallOp]] = {}
    for op in (op for f in functions(module) for op in f.body.block.ops):
        if isinstance(op, CallOp):
            calls.setdefault(op.kernel.data, []).append(op)
    for name, kernel in kernels_of(module).items():
        for argument in kernel.body.block.args:
            for use in list(argument.uses):
                if _is_kept(use) and argument.has_more_than_one_use():
                    _add_twin(kernel, argument, use)
                    _pass_twice(calls.get(name, []), argument.index)


def _is_kept(use: Use) -> bool:
    """Whether a use of a tensor only writes over it, possibly through a view."""
    user = use.operation
    if isinstance(user, ViewOp):
        return all(map(_is_kept, user.result.uses))
    return isinstance(user, NestOp) and use.index >= len(user.inputs)


def _add_twin(kernel: KernelOp, argument: BlockArgument, use: Use) -> None:
    block = kernel.body.block
    twin = block.insert_arg(argument.type, len(block.args))
    twin.name_hint = argument.name_hint
    use.operation.operands[use.index] = twin


def _pass_twice(calls: Sequence[CallOp], index: int) -> None:
    for call in calls:
        call.operands = [*call.operands, call.operands[index]]
