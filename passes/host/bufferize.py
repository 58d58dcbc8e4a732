"""host-bufferize: turn tensors into buffers, and the function into the host program.

    strata.func @main(%x: f32[b, 64])             host.func @main(%x: f32[b, 64], %y: f32[b, 8])
      %h = loop.call @k0(%x) : f32[b, 64]           %h = host.alloc : f32[b, 64]
      %y = loop.call @k1(%h) : f32[b, 8]    -->     host.launch @k0(%x, %h)
      strata.return %y                              host.launch @k1(%h, %y)

Enters: a function of constants, calls, collectives, views and empties; no nest is left outside a
kernel. Leaves: one buffer per tensor, without a place in memory, and launches in the order of the
calls.

A returned tensor is computed directly in the output argument. Where that is impossible (an input or
constant that is returned, or a tensor that is returned twice), it is copied there at the end. An
output whose size is not known on entry has no argument, and neither have outputs of functions that
others call: their buffers are returned. A kernel that keeps the rest of a tensor (`into`) gets one
buffer for that argument and for its result: the tensor's own buffer if it is not needed afterwards,
otherwise a copy. Views share the memory of their source, and so does the
result of an all-reduce or a broadcast whose operand is not needed afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from dialects import host
from dialects.graph.collective import CollectiveOp
from dialects.graph.constant import ConstantOp
from dialects.graph.foreign import ForeignKernelOp
from dialects.loop import CallOp, EmptyOp, KernelOp, ViewOp
from dialects.strata.control import ControlOp
from dialects.strata.func import FuncOp, ReturnOp
from dialects.strata.requirements import RequireOp
from dialects.strata.sizes import AssumeOp, SizeOp, defined_sizes
from dialects.strata.types import BufferType, TensorType, buffer_of
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import identifier, location_name
from passes.analyses.host.storage import Storage, assign_storage, kernels_of, root, separate_reads
from passes.base import PassError, StrataContext, StrataPass
from passes.rewrites.early_checks import check_early
from passes.rewriting import functions

KNOWN = (ConstantOp, CallOp, CollectiveOp, ForeignKernelOp, ViewOp, EmptyOp, AssumeOp, RequireOp,
         SizeOp, ControlOp, ReturnOp)


class HostBufferize(StrataPass):
    """Give every tensor a buffer."""

    name = "host-bufferize"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        self._check(context, module)
        separate_reads(module)
        for func in functions(module):
            _Bufferizer(func, kernels_of(module)).run()

    def _check(self, context: StrataContext, module: ModuleOp) -> None:
        kernels = kernels_of(module)
        faults: list[tuple[str, str]] = []
        for op in (op for func in functions(module) for op in func.body.block.ops):
            if not isinstance(op, KNOWN):
                fault = f"{op.name} has no buffers: lower it to kernels first"
                faults.append((location_name(op), fault))
            elif isinstance(op, ForeignKernelOp) and not context.facts.launches_foreign:
                faults.append((location_name(op), f"the kernel {op.kernel.data} is written in the "
                               f"language of another target than {context.facts.target}"))
            elif isinstance(op, CallOp) and op.kernel.data not in kernels:
                faults.append((location_name(op), f"there is no loop.kernel @{op.kernel.data}"))
        if faults:
            raise PassError(self.name, faults)


class _Bufferizer:
    """Builds the host function for one tensor function."""

    def __init__(self, func: FuncOp, kernels: dict[str, KernelOp]):
        self.func = func
        self.storage = assign_storage(func, kernels)
        sizes = _size_names(func)
        types = [_buffer_type(v) for v in func.return_op.operands]
        is_main = func.sym_name.data == "main"
        self.returned = [None if is_main and _symbols_of(type_) <= {*sizes} else type_
                         for type_ in types]
        outputs = [type_ for type_, r in zip(types, self.returned, strict=True) if r is None]
        self.driver = host.FuncOp.of(
            func.sym_name.data, func.input_names, func.output_names,
            [*map(_buffer_type, func.body.block.args), *outputs], sizes, self.returned)
        self.block: Block = self.driver.body.block
        self.buffers: dict[SSAValue, SSAValue] = {}
        self.memory: dict[Storage, SSAValue] = {}
        self.at: Operation = func
        """The operation being converted, whose location new operations take."""

    def run(self) -> None:
        self.driver.location = self.func.location
        self._bind_arguments()
        for op in self.func.body.block.ops:
            self.at = op
            self._convert(op)
        self._drop_unused()
        check_early(self.driver)
        parent = self.func.parent
        assert parent is not None
        parent.insert_op_before(self.driver, self.func)
        parent.erase_op(self.func)

    def _drop_unused(self) -> None:
        """Erase views and empties that no longer have users."""
        for op in reversed(list(self.block.ops)):
            if op.results and op.results[0].first_use is None and not isinstance(op, ControlOp):
                self.block.erase_op(op)

    def _bind_arguments(self) -> None:
        inputs = self.driver.input_arguments
        for old, new in zip(self.func.body.block.args, inputs, strict=True):
            new.name_hint = old.name_hint
            self.buffers[old] = new
        for value, output, name in self._output_arguments():
            output.name_hint = identifier(name)
            storage = self.storage[value]
            if storage.is_fresh and storage not in self.memory:
                output.name_hint = value.name_hint or output.name_hint
                self.memory[storage] = output

    def _output_arguments(self) -> Iterator[tuple[SSAValue, BlockArgument, str]]:
        """(returned tensor, argument, name) for each output that is an argument."""
        arguments = iter(self.driver.output_arguments)
        for value, returned, name in zip(
                self.func.return_op.operands, self.returned, self.func.output_names, strict=True):
            if returned is None:
                yield value, next(arguments), name

    def _convert(self, op: Operation) -> None:
        match op:
            case ConstantOp():
                self._define(op.result, host.ConstantOp.of(op.value, _buffer_type(op.result)))
            case CallOp():
                self._launch(op)
            case CollectiveOp():
                self._make(op.result)
                self._add(host.CollectiveOp.of(
                    op.KIND, self.buffers[op.x], self.buffers[op.result], op.properties))
            case ForeignKernelOp():
                self._foreign(op)
            case ViewOp():
                self.buffers[op.result] = self._shaped(self.buffers[op.source], op.result)
            case EmptyOp():
                self._make(op.result)
            case AssumeOp():
                self._add(op.copied())
            case RequireOp():
                self._add(op.moved(self.buffers[op.values]))
            case SizeOp():
                self._add(SizeOp.of(defined_sizes(op), self.buffers[op.source]))
            case ControlOp():
                self._control(op)
            case _:
                self._return()

    def _define(self, value: SSAValue, op: Operation) -> None:
        self.buffers[value] = self._add(op).results[0]
        self.buffers[value].name_hint = value.name_hint

    def _add(self, op: Operation) -> Operation:
        op.location = self.at.location
        self.block.add_op(op)
        return op

    def _make(self, value: SSAValue) -> None:
        """Define the buffer of a value that is computed here: its storage's, or a new one."""
        storage = self.storage[value]
        if storage not in self.memory:
            self._define(value, host.AllocOp.of(_buffer_type(value)))
            self.memory[storage] = self.buffers[value]
        self.buffers[value] = self._shaped(self.memory[storage], value)

    def _shaped(self, buffer: SSAValue, value: SSAValue) -> SSAValue:
        """The buffer, viewed in the shape of a value."""
        type_ = _buffer_type(value)
        if buffer.type == type_:
            return buffer
        view = self._add(host.ViewOp.of(buffer, type_)).results[0]
        view.name_hint = value.name_hint
        return view

    def _launch(self, op: CallOp) -> None:
        arguments = [self.buffers[v] for v in op.inputs]
        for result in op.results:
            self._make(result)
            into = self.storage[result].into.get(result)
            if into is not None:
                self._fill(op.inputs[into], result)
                arguments[into] = self.buffers[result]
        results = [self.buffers[r] for r in op.results]
        self._add(host.LaunchOp.of(op.kernel.data, [*arguments, *results], op.sizes.data))

    def _fill(self, kept: SSAValue, result: SSAValue) -> None:
        """Initialize the result's buffer with a copy, unless it is the same or starts undefined."""
        if self.storage[kept] is not self.storage[result] and not isinstance(
                root(kept).owner, EmptyOp):
            self._add(host.CopyOp.of(self.buffers[kept], self.buffers[result]))

    def _foreign(self, op: ForeignKernelOp) -> None:
        """Results that start with the elements of an operand are computed over it, or a copy."""
        for result, kept in zip(op.results, op.kept.data, strict=True):
            self._make(result)
            if (number := kept.constant or 0) >= 0:
                self._fill(op.inputs[number], result)
        reads = op.reads.data.constant or 0
        buffers = [self.buffers[v] for v in (*op.inputs[:reads], *op.results)]
        self._add(host.ForeignLaunchOp.of(buffers, len(op.results), op.properties))

    def _control(self, op: ControlOp) -> None:
        """Convert a call to one on buffers; this function owns its results."""
        new = self._add(type(op).create(
            operands=[self.buffers[v] for v in op.operands],
            result_types=[_buffer_type(r) for r in op.results],
            properties={**op.properties}))
        for old, result in zip(op.results, new.results, strict=True):
            self.buffers[old], result.name_hint = result, old.name_hint

    def _return(self) -> None:
        for value, output, _ in self._output_arguments():
            if self.memory.get(self.storage[value]) is not output:
                self._add(host.CopyOp.of(self.buffers[value], output))
        given: set[Storage] = set()
        values = [self._given_away(value, given) for value, returned in zip(
            self.func.return_op.operands, self.returned, strict=True) if returned is not None]
        self._add(host.ReturnOp.of(*values))

    def _given_away(self, value: SSAValue, given: set[Storage]) -> SSAValue:
        """A value's buffer, if this function owns it and has not returned it yet; else a copy."""
        storage = self.storage[value]
        is_own = storage.is_owned or (storage.is_fresh and not isinstance(
            self.memory.get(storage), BlockArgument))
        if is_own and storage not in given:
            given.add(storage)
            return self.buffers[value]
        copy = self._add(host.AllocOp.of(_buffer_type(value))).results[0]
        self._add(host.CopyOp.of(self.buffers[value], copy))
        return copy


def _buffer_type(value: SSAValue) -> BufferType:
    assert isinstance(value.type, TensorType)
    return buffer_of(value.type)


def _symbols_of(type_: BufferType) -> set[Symbol]:
    """The size symbols of a shape, even where another dim is empty."""
    return {symbol for size in type_.shape for symbol in size.symbols}


def _size_names(func: FuncOp) -> list[Symbol]:
    """The size symbols of the arguments and of the caller, in order of appearance."""
    sizes: list[Expr] = [e for a in func.body.block.args for e in _shape(a)]
    names = [name for e in sizes for name in sorted(e.symbols)]
    return list(dict.fromkeys([*names, *func.caller_sizes]))


def _shape(argument: BlockArgument) -> tuple[Expr, ...]:
    return argument.type.shape if isinstance(argument.type, TensorType) else ()
