"""The meaning of the host level, in NumPy: allocate, view, copy, launch and call, in order.

Uninitialized and freed memory is filled with 0xFF bytes: NaN for floats, -1 for integers. Buffers
with an offset share one real arena, so a plan in which live buffers overlap yields wrong numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from math import prod

import numpy as np
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Operation, SSAValue

from dialects import block, loop
from dialects.block.interpret import interpret_kernel
from dialects.host.collective import CollectiveOp
from dialects.host.foreign import ForeignLaunchOp
from dialects.host.func import FuncOp, ReturnOp, host_function, host_functions
from dialects.host.ops import AllocOp, ConstantOp, CopyOp, FreeOp, LaunchOp, OtherOp, PartOp, ViewOp
from dialects.loop.interpret import evaluate_kernel
from dialects.ranks.peers import Peers, sole
from dialects.records import dataclass
from dialects.semantics.carriers import Carrier, as_array, as_in, carrier_of
from dialects.semantics.evaluation import EvaluationContext
from dialects.strata.binding import EvaluationError, bind_sizes
from dialects.strata.control import ControlOp, IfOp, LoopOp
from dialects.strata.requirements import RequireOp, TrapOp
from dialects.strata.sizes import AssumeOp, SizeOp
from dialects.strata.types import Array, BufferType, tensor_of
from dialects.strata.weights import WeightStore
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import location_name

RunKernel = Callable[[Operation, Sequence[Array], dict[Symbol, int]], None]
"""run_kernel(kernel, buffers, sizes) fills the output buffers, which come last."""
Carry = Callable[[Array], Array]
"""carry(memory) is a view of the same memory with another arithmetic."""


def _as_is(memory: Array) -> Array:
    return memory


def interpret_host(
    module: Operation, inputs: Sequence[Array], weights: WeightStore,
    run_kernel: RunKernel | None = None, carry: Carry | None = None, peers: Peers | None = None,
) -> list[Array]:
    """Run the module's `host.func` and return its outputs, in order, as new arrays.

    `inputs` are in the function's order and of its dtypes; their shapes bind the size symbols.
    `run_kernel` replaces the NumPy interpretation of kernels; `carry` gives the arrays of buffers
    another arithmetic (`dialects.semantics.carriers`); `peers` are the other ranks. Raises
    EvaluationError for inputs that do not fit, and for a failing operation, naming it and its model
    node.
    """
    function = host_function(module)
    run = run_kernel or partial(execute_kernel, peers=peers)
    program = _Program.of(module, weights, run, carry or _as_is, peers)
    return program.call(function, inputs, _bind_inputs(function, inputs))


def _bind_inputs(function: FuncOp, inputs: Sequence[Array]) -> dict[Symbol, int]:
    names, arguments = function.input_names, function.input_arguments
    if len(inputs) != len(names):
        raise EvaluationError(f"takes {len(names)} inputs ({', '.join(names)}), not {len(inputs)}")
    types = [a.type for a in arguments if isinstance(a.type, BufferType)]
    for name, type_, array in zip(names, types, inputs, strict=True):
        if array.dtype != type_.dtype:
            raise EvaluationError(f"input {name!r} must be {type_.dtype}, not {array.dtype}")
    return bind_sizes([tensor_of(type_) for type_ in types], inputs, names)


def execute_kernel(
    kernel: Operation, buffers: Sequence[Array], sizes: dict[Symbol, int],
    peers: Peers | None = None,
) -> None:
    """Run a kernel of the block or loop level with the NumPy interpreters. `peers`: the other
    ranks."""
    if isinstance(kernel, block.KernelOp):
        interpret_kernel(kernel, buffers, sizes, peers=peers)
        return
    if isinstance(kernel, ForeignLaunchOp):
        own = kernel.handed_over()
        if isinstance(own, (block.KernelOp, loop.KernelOp)):
            given = [size.evaluate(sizes) for size in kernel.own_sizes]
            execute_kernel(own, buffers, dict(zip(own.size_names, given, strict=True)))
            return
        raise EvaluationError(f"the kernel {kernel.kernel.data} is written in a target's own "
                              "language, and has no meaning in NumPy")
    assert isinstance(kernel, loop.KernelOp)
    count = len(kernel.body.block.args)
    like = carrier_of(buffers)
    context = EvaluationContext(sizes, carry=None if like is None else lambda a: as_in(a, like))
    results = evaluate_kernel(kernel, context, *buffers[:count])
    for buffer, result in zip(buffers[count:], results, strict=True):
        buffer[...] = result


@dataclass(frozen=True)
class _Program:
    """The state that all functions of a module share."""

    weights: WeightStore
    run_kernel: RunKernel
    carry: Carry
    peers: Peers | None
    kernels: dict[str, Operation]
    functions: dict[str, FuncOp]

    @staticmethod
    def of(
        module: Operation, weights: WeightStore, run_kernel: RunKernel, carry: Carry,
        peers: Peers | None,
    ) -> _Program:
        kernels: dict[str, Operation] = {
            op.sym_name.data: op for op in module.regions[0].block.ops
            if isinstance(op, (block.KernelOp, loop.KernelOp))}
        functions = {f.sym_name.data: f for f in host_functions(module)}
        return _Program(weights, run_kernel, carry, peers, kernels, functions)

    def call(
        self, function: FuncOp, inputs: Sequence[Array], sizes: dict[Symbol, int]
    ) -> list[Array]:
        """Run a function with its sizes given, and return the outputs in order."""
        state = _State(self, dict(sizes))
        if function.arena_bytes is not None:
            state.arena = np.full(state.size(function.arena_bytes), 0xFF, np.uint8)
        for argument, array in zip(function.input_arguments, inputs, strict=True):
            state.values[argument] = as_array(array, order="C")  # keeps rank 0
        for argument in function.output_arguments:
            state.values[argument] = state.fresh(argument)
        for op in function.body.block.ops:
            state.execute(op)
        outputs, returned = map(iter, (function.output_arguments, function.return_op.values))
        return [state.values[next(outputs if r is None else returned)]
                for r in function.returned_types]

    def call_bound(
        self, name: str, inputs: Sequence[Array], sizes: dict[Symbol, int]
    ) -> list[Array]:
        """Run a function whose sizes come from its inputs' shapes, or else from its caller."""
        function = self.functions[name]
        types = [tensor_of(a.type) for a in function.input_arguments
                 if isinstance(a.type, BufferType)]
        bound = {size.as_symbol for type_ in types for size in type_.shape}
        known = {n: sizes[n] for n in function.size_names if n in sizes and n not in bound}
        return self.call(function, inputs, known | bind_sizes(types, inputs, known=known))


@dataclass
class _State:
    """The memory of one call: the value of every buffer, and the arena."""

    program: _Program
    sizes: dict[Symbol, int]
    values: dict[SSAValue, Array] = field(default_factory=dict[SSAValue, Array])
    arena: Array | None = None

    def size(self, expr: Expr) -> int:
        return int(expr.evaluate(self.sizes))

    def shape(self, value: SSAValue) -> tuple[int, ...]:
        assert isinstance(value.type, BufferType)
        return tuple(map(self.size, value.type.shape))

    def fresh(self, value: SSAValue) -> Array:
        """A newly allocated, poisoned array."""
        assert isinstance(value.type, BufferType)
        raw = np.full(self.size(value.type.byte_size), 0xFF, np.uint8)
        return self.program.carry(raw.view(value.type.dtype).reshape(self.shape(value)))

    def execute(self, op: Operation) -> None:
        match op:
            case ConstantOp():
                self.values[op.result] = self._constant(op)
            case AllocOp():
                self.values[op.result] = self._alloc(op)
            case PartOp():
                first, shape = self.size(op.first.data), self.shape(op.result)
                flat = self.values[op.source].reshape(-1)[first : first + prod(shape)]
                self.values[op.result] = flat.reshape(shape)
            case ViewOp():
                self.values[op.result] = self.values[op.source].reshape(self.shape(op.result))
            case CopyOp():
                source, target = self.values[op.source], self.values[op.target]
                target[...] = source.reshape(target.shape)
            case CollectiveOp():
                self._collect(op)
            case ForeignLaunchOp():
                self.program.run_kernel(op, [self.values[b] for b in op.buffers], self.sizes)
            case LaunchOp() if not op.happens(self.sizes):
                pass
            case LaunchOp():
                self.launch(op, op.kernel.data, op.buffers, op.sizes.data)
            case AssumeOp():
                op.check(self.sizes)
            case RequireOp():
                op.check(self.values[op.values], self.sizes)
            case TrapOp():
                op.check(self.values[op.fault])
            case SizeOp():
                self.sizes |= op.read([int(v) for v in self.values[op.source].reshape(-1)])
            case IfOp():
                name = (op.then_ if bool(self.values[op.condition]) else op.else_).data
                inputs = [self.values[v] for v in op.inputs]
                self._keep(op, self.program.call_bound(name, inputs, self.sizes))
            case LoopOp():
                operands = [self.values[v] for v in op.operands]
                self._keep(op, op.run(self, operands, self.program.call_bound))
            case OtherOp():
                op.execute(self)
            case FreeOp():
                self.values.pop(op.buffer).reshape(-1).view(np.uint8).fill(0xFF)
            case ReturnOp():
                pass
            case _:
                raise EvaluationError(f"{op.name} has no meaning at the host level")

    def _collect(self, op: CollectiveOp) -> None:
        """Exchange with other ranks what a buffer holds, and write another one."""
        source, target = self.values[op.source], self.values[op.target]
        how, peers = op.collective, self.program.peers
        found = sole([source], how) if peers is None else peers.run(how, np.array(source))
        target[...] = found.reshape(target.shape)

    def _keep(self, op: ControlOp, results: Sequence[Array]) -> None:
        """Store copies of a call's results, and bind the sizes that they define."""
        arrays = [np.array(r, order="C", subok=isinstance(r, Carrier)) for r in results]
        op.bind(self, arrays)
        self.values.update(zip(op.results, arrays, strict=True))

    def _constant(self, op: ConstantOp) -> Array:
        array = np.ascontiguousarray(op.array(self.program.weights)).reshape(self.shape(op.result))
        fixed = self.program.carry(array.view())
        fixed.flags.writeable = False
        return fixed

    def _alloc(self, op: AllocOp) -> Array:
        if op.offset is None:
            return self.fresh(op.result)
        start, length = self.size(op.offset.data), self.size(op.type.byte_size)
        if self.arena is None or start < 0 or start + length > self.arena.size:
            arena = "no arena" if self.arena is None else f"an arena of {self.arena.size}"
            raise EvaluationError(
                f"{_place(op)} lies at bytes {start} to {start + length} of {arena}")
        raw = self.arena[start : start + length]
        return self.program.carry(raw.view(op.type.dtype).reshape(self.shape(op.result)))

    def launch(
        self, op: Operation, name: str, buffers: Sequence[SSAValue], extents: Sequence[Expr]
    ) -> None:
        """Run a kernel on the memory of `buffers`, on behalf of `op`."""
        kernel = self.program.kernels.get(name)
        if kernel is None:
            raise EvaluationError(f"{_place(op)}: the module has no such kernel")
        assert isinstance(kernel, (block.KernelOp, loop.KernelOp))
        values = map(self.size, extents)
        sizes = dict(zip(kernel.size_names, values, strict=True))
        try:
            self.program.run_kernel(kernel, [self.values[b] for b in buffers], sizes)
        except (ValueError, IndexError, KeyError) as error:
            raise EvaluationError(f"{_place(op)} failed: {error}") from error


def _place(op: Operation) -> str:
    """The operation, the kernel that it launches, and its model node, for messages."""
    kernel = op.properties.get("kernel")
    name = f"{op.name} @{kernel.data}" if isinstance(kernel, StringAttr) else op.name
    node = location_name(op)
    return f"{name} (node {node!r})" if node else name
