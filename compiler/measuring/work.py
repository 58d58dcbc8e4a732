"""What a program does, counted at host level: kernels, launches, bytes, operations, memory.

A launch in the body of a loop or branch counts once, because only a run knows how often it happens.
A size that only a run knows counts as `UNKNOWN`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from compiler.instrument import Instrument
from dialects.block import KernelOp as BlockKernelOp
from dialects.host import AllocOp, CopyOp, FuncOp, LaunchOp, host_functions
from dialects.loop import KernelOp, NestOp, scalar_type
from dialects.strata.types import buffer_type, byte_width, is_float
from dialects.symbolic.expr import Expr
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Kind, Symbol
from passes.analyses.host.storage import kernels_of
from passes.analyses.loop.kinds import is_contraction

if TYPE_CHECKING:
    from compiler.pipeline.state import State
    from compiler.pipeline.steps import Step

UNKNOWN = 16
"""What counts as the value of a size that only a run knows."""
_ALL = Expr.of(1 << 62)
"""More bytes than any buffer has."""
Sizes = Mapping[Symbol, int]


@dataclass(frozen=True)
class Work:
    """`kernels`: distinct ones. `launches`: also copies of buffers. `bytes`: read and written by
    all launches, each element of a buffer once per launch. `flops`: operations on floats, where an
    exponential counts as one, and those of integer products. `arena`: bytes of intermediate values.
    """

    kernels: int
    launches: int
    bytes: int
    flops: int
    arena: int


class Watch(Instrument):
    """Keeps what `work_of` needs, and a hash of the final program.

    Kernels lose their nests after host level, so they are looked at before that.
    """

    def __init__(self) -> None:
        self.steps: list[_Step] = []
        self.kernels = 0
        self.launches: list[Expr | None] = []
        """When each launch or copy happens."""
        self.arena = Expr.of(0)
        self.code = ""
        self.seconds = 0.0
        """The seconds that all of this takes."""

    def resume(self, other: Watch) -> None:
        """Know what another one has seen of the same module."""
        vars(self).update(vars(other))

    def after(self, step: Step, state: State, seconds: float, changed: bool) -> None:
        started = time.perf_counter()
        if step.level == "host":
            self._look(state.module)
        if step.name == "block-join-launches":
            self._count(state.module)
        self.seconds += time.perf_counter() - started

    def finish(self, state: State) -> None:
        started = time.perf_counter()
        self.code = sha256(str(state.module).encode()).hexdigest()
        self.seconds += time.perf_counter() - started

    def _look(self, module: ModuleOp) -> None:
        kernels, functions = kernels_of(module), host_functions(module)
        ops = [op for function in functions for op in function.body.block.ops]
        self.steps = [_step(op, kernels) for op in ops if isinstance(op, LaunchOp | CopyOp)]
        self.kernels, self.launches = len(kernels), [s.when for s in self.steps]
        self.arena = _arena(functions)

    def _count(self, module: ModuleOp) -> None:
        """Count kernels, launches and memory again, once launches are joined."""
        functions = host_functions(module)
        ops = [op for function in functions for op in function.body.block.ops]
        self.arena = _arena(functions)
        self.launches = [_when(op) for op in ops if isinstance(op, LaunchOp | CopyOp)]
        self.kernels = sum(isinstance(op, BlockKernelOp) for op in module.body.block.ops)

    def work(self, sizes: Sizes) -> Work:
        """The counts at the sizes of a call."""
        steps = [s for s in self.steps if _happens(s.when, sizes)]
        launches = sum(_happens(when, sizes) for when in self.launches)
        return Work(self.kernels, launches, sum(s.moved(sizes) for s in steps),
                    sum(s.computed(sizes) for s in steps), value_of(self.arena, sizes))


def _arena(functions: Sequence[FuncOp]) -> Expr:
    """The bytes of the arenas of functions, and of buffers outside of them."""
    apart = [op.type.byte_size for f in functions for op in f.body.block.ops
             if isinstance(op, AllocOp) and op.offset is None]
    return sum([*(f.arena_bytes for f in functions if f.arena_bytes is not None), *apart],
               Expr.of(0))


# ---------------------------------------------------------------------- steps of a host function
@dataclass(frozen=True)
class _Step:
    """A launch or copy, whose `when` is 0 at sizes for which it does not happen. `operations`,
    `accesses`: numbers over the kernel's own sizes, which are `arguments` over the caller's. An
    access is at most the bytes of its buffer."""

    arguments: Mapping[Symbol, Expr]
    operations: Sequence[Expr]
    accesses: Sequence[tuple[Expr, Expr]]
    when: Expr | None = None

    def moved(self, sizes: Sizes) -> int:
        own = self._own(sizes)
        return sum(min(value_of(bytes_, own), value_of(whole, sizes))
                   for bytes_, whole in self.accesses)

    def computed(self, sizes: Sizes) -> int:
        own = self._own(sizes)
        return sum(value_of(count, own) for count in self.operations)

    def _own(self, sizes: Sizes) -> Sizes:
        return {name: value_of(expr, sizes) for name, expr in self.arguments.items()}


def _when(op: LaunchOp | CopyOp) -> Expr | None:
    """What is 0 at sizes for which the launch does not happen; None if it always happens."""
    return op.when.data if isinstance(op, LaunchOp) and op.when is not None else None


def _happens(when: Expr | None, sizes: Sizes) -> bool:
    return when is None or value_of(when, sizes) != 0


def _step(op: LaunchOp | CopyOp, kernels: Mapping[str, KernelOp]) -> _Step:
    if isinstance(op, CopyOp):
        return _Step({}, (), [(_bytes(v), _bytes(v)) for v in op.operands])
    kernel = kernels[op.kernel.data]
    arguments = dict(zip(kernel.size_names, op.sizes.data, strict=True))
    accesses = [(part, _bytes(buffer))
                for part, buffer in zip(accesses_of(kernel), op.buffers, strict=True)]
    return _Step(arguments, [_operations(nest) for nest in kernel.nests], accesses,
                 _when(op))


def accesses_of(kernel: KernelOp) -> list[Expr]:
    """The bytes that a kernel accesses of each of its buffers, if these are large enough."""
    return [*map(_read, kernel.body.block.args), *map(_written, kernel.yielded)]


def _bytes(value: SSAValue) -> Expr:
    return buffer_type(value).byte_size


def _read(argument: SSAValue) -> Expr:
    """The bytes of an argument that the nests of a kernel read."""
    total = Expr.of(0)
    for use in argument.uses:
        nest = use.operation
        if not isinstance(nest, NestOp):
            return _ALL  # through a view
        if use.index < len(nest.inputs):
            total += _points(nest, nest.input_maps[use.index]) * byte_width(scalar_type(argument))
    return total


def _written(result: SSAValue) -> Expr:
    """The bytes of a result that the nest that makes it writes."""
    nest = result.owner
    if not isinstance(nest, NestOp):
        return _ALL
    return _points(nest, nest.stored_at(result)) * byte_width(scalar_type(result))


def _points(nest: NestOp, map_: Sequence[Expr]) -> Expr:
    """How many elements a nest accesses at most: the points of the axes that an index map uses, or
    of all axes if other inputs say where."""
    used = {s for e in map_ for s in e.symbols}
    gathers = any(s.kind is Kind.GATHERED for s in used)
    return product(a.extent for a in nest.axes if gathers or a.name in used)


# ---------------------------------------------------------------------- operations
def _operations(nest: NestOp) -> Expr:
    counts_integers = is_contraction(nest)
    body = sum(_counts(op, counts_integers) for op in nest.body.block.ops)
    combined = sum(name != "none" and _is_number(value, counts_integers)
                   for name, value in zip(nest.combiner_names, nest.yielded, strict=True))
    return product(a.extent for a in nest.axes) * (body + combined)


def _counts(op: Operation, counts_integers: bool) -> int:
    """1 for arithmetic; 0 for constants, conversions, comparisons and selections."""
    if op.name.partition(".")[0] not in ("arith", "math") or not op.operands or not op.results:
        return 0
    alike = all(v.type == op.results[0].type for v in op.operands)
    return int(alike and _is_number(op.results[0], counts_integers))


def _is_number(value: SSAValue, counts_integers: bool) -> bool:
    return counts_integers or is_float(value.type)


def value_of(size: Expr, sizes: Sizes) -> int:
    known = {symbol: sizes.get(symbol, UNKNOWN) for symbol in size.symbols}
    return int(size.evaluate(known))
