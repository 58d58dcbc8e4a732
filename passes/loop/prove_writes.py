"""`loop-prove-writes`: prove that every element of a tensor is written before it is read.

    %e = loop.empty : f32[n, 3]                     %z = nest (i: n, j: 3) outs(f32[n, 3][i, j]) {0}
    %y = nest (i: n) .. outs(f32[n, 3][i, 2*j])     %y = nest (i: n) .. into(%z)
         into(%e)                              -->

An `empty` tensor starts undefined, and each nest that writes `into` it defines some of its
elements. Where a nest, a view, a call or the end of the function reads the tensor, all elements
must have been written: the boxes that the nests store must cover it, for all sizes
(`passes/analyses/loop/coverage.py`). Neither lowering nor any earlier pass is trusted, but for
scatters that say that they are `total`: only data tell where these store, and the interpreter
raises an error for an element that one leaves out. A tensor without a proof is filled with zeros
first, and the dump and a remark show it. Inside kernels, whose schedules are already decided, there
is only the remark.

Enters: nests, in functions or in kernels. Assumes that stores stay inside their tensors
(`block-prove-bounds` proves that for the code) and that a kernel stores what its nests say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple, TypeAlias

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from dialects.loop import Axis, CallOp, EmptyOp, KernelOp, NestOp, ViewOp, YieldOp, scalar_type
from dialects.records import dataclass
from dialects.strata.func import FuncOp
from dialects.strata.sizes import AssumeOp
from dialects.strata.types import TensorType
from dialects.symbolic.expr import Expr
from dialects.symbolic.facts import is_plain
from dialects.symbolic.inequalities import Prover
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import location_name, set_location
from passes.analyses.loop.coverage import Box, Cover, box_of, covers_alone
from passes.analyses.loop.numbers import constant
from passes.base import StrataContext, StrataPass
from passes.rewrites.block.shapes import facts_of
from passes.rewriting import functions, replace

_Value: TypeAlias = tuple[SSAValue, CallOp | None]
"""A value of a function, or of a kernel as a call runs it."""
_Read: TypeAlias = tuple[SSAValue, Operation]
"""A value that an operation reads, and the operation."""


class LoopProveWrites(StrataPass):
    """Prove that every element read has been written, or fill the tensor with zeros."""

    name = "loop-prove-writes"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        kernels = {op.sym_name.data: op for op in module.body.block.ops if isinstance(op, KernelOp)}
        for func in functions(module):
            for (value, _), reader in list(unproven(func, kernels)):
                outcome = "filled with zeros" if _fill(value) else "not proven"
                assert isinstance(value.type, TensorType)
                node = value.owner if isinstance(value.owner, NestOp) else reader
                by = location_name(reader) or reader.name
                context.remark(self, node, f"{outcome}: that nests write all of "
                                           f"{value.type.short}, which {by} reads")


def unproven(
    func: FuncOp, kernels: Mapping[str, KernelOp]
) -> Iterator[tuple[_Value, Operation]]:
    """Values that are read without a proof that they are written, each once, with the reader."""
    proof = _Proof(kernels, [s for a in func.body.block.args if isinstance(a.type, TensorType)
                             for s in a.type.shape if not is_plain(s)])
    inside = {name: list(_read_inside(kernel)) for name, kernel in kernels.items()}
    for op in list(func.body.block.ops):
        if isinstance(op, AssumeOp):
            proof.facts.extend(facts_of(op))
        for value, reader in _reads(op, inside):
            if not proof.is_written(value):
                yield value, reader


def _reads(op: Operation, inside: Mapping[str, Sequence[_Read]]) -> Iterator[
        tuple[_Value, Operation]]:
    """The values that an operation of a function reads, each with the operation that reads it.

    `inside`: what each kernel reads.
    """
    if isinstance(op, CallOp):
        yield from (((value, op), reader) for value, reader in inside[op.kernel.data])
    else:
        yield from (((v, None), op) for v in _read_by(op))


def _read_inside(kernel: KernelOp) -> Iterator[_Read]:
    for op in kernel.body.block.ops:
        if not isinstance(op, YieldOp):
            yield from ((value, op) for value in _read_by(op))


def _read_by(op: Operation) -> Iterator[SSAValue]:
    """The operands that are read; an `into` operand only if a scatter keeps some of it. A view of
    what nothing has written yet reads nothing."""
    if isinstance(op, NestOp):
        yield from (*op.inputs, *(op.into if op.is_scatter and op.total is None else ()))
    elif not (isinstance(op, ViewOp) and _is_undefined(op.result)):
        yield from op.operands


def _is_undefined(value: SSAValue) -> bool:
    """Whether a value is an empty tensor, or a view of one."""
    while isinstance(value.owner, ViewOp):
        value = value.owner.source
    return isinstance(value.owner, EmptyOp)


@dataclass
class _Proof:
    """What is known to be written so far in one function."""

    kernels: Mapping[str, KernelOp]
    facts: list[Expr]
    known: set[_Value] = field(default_factory=set[_Value])
    """Values that are proven to be written, or that were already reported."""
    alone: dict[SSAValue, bool] = field(default_factory=dict[SSAValue, bool])
    """Whether the store of a nest's result needs no proof, whatever the call."""

    def is_written(self, value: _Value) -> bool:
        """Whether a value is certainly written everywhere, or was asked about before."""
        stores, at = list[_Store](), value
        while at is not None and at not in self.known:
            store = self._last_store(at)
            if not isinstance(store, _Store):
                if store is at:
                    break
                at = store
            elif self._is_everything(at[0], store):
                break
            else:
                stores.append(store)
                at = store.before
        self.known.add(value)
        return at is not None or self._covered(value, stores)

    def _is_everything(self, result: SSAValue, store: _Store) -> bool:
        if result not in self.alone:
            self.alone[result] = store.is_everything
        return self.alone[result]

    def _covered(self, value: _Value, stores: Sequence[_Store]) -> bool:
        boxes = [box for s in stores if (box := s.box) is not None]
        assert isinstance(value[0].type, TensorType)
        shape = [e.substitute(_sizes(value[1], self.kernels)) for e in value[0].type.shape]
        return Cover(Prover({}, self.facts)).holds(boxes, shape)

    def _last_store(self, value: _Value) -> _Store | _Value | None:
        """The nest that stores a value, the same value elsewhere, or the value itself where it is
        defined; None for undefined elements."""
        made, call = value
        match made.owner:
            case NestOp() as nest:
                return _Store(nest, nest.number_of(made), call, self.kernels)
            case EmptyOp() | ViewOp() if _is_undefined(made):
                return None
            case CallOp() as caller:
                number = list(caller.results).index(made)  # type: ignore[arg-type]
                return self.kernels[caller.kernel.data].yielded[number], caller
            case Block() if call is not None and isinstance(made, BlockArgument):
                return call.operands[made.index], None
            case _:
                return value


class _Store(NamedTuple):
    """A result of a nest, in a function or as a call runs it."""

    nest: NestOp
    number: int
    call: CallOp | None
    kernels: Mapping[str, KernelOp]

    @property
    def type(self) -> TensorType:
        type_ = self.nest.results[self.number].type
        assert isinstance(type_, TensorType)
        return type_

    @property
    def before(self) -> _Value | None:
        """The value that the nest writes into; None if there is none."""
        return (self.nest.into[0], self.call) if self.nest.into else None

    @property
    def is_everything(self) -> bool:
        """Whether the store needs no proof; a scatter reads what it merges with, which is checked
        where it reads it."""
        return self.nest.is_scatter or covers_alone(
            self.nest.axes, self.nest.output_maps[self.number], self.type.shape)

    @property
    def box(self) -> Box | None:
        """The box that it stores, in terms of the function's sizes."""
        sizes, map_ = _sizes(self.call, self.kernels), self.nest.output_maps[self.number]
        axes = [Axis(a.name, a.extent.substitute(sizes), a.reduce) for a in self.nest.axes]
        return box_of(axes, [e.substitute(sizes) for e in map_])


def _sizes(call: CallOp | None, kernels: Mapping[str, KernelOp]) -> dict[Symbol, Expr]:
    """The values of a kernel's size parameters in a call."""
    if call is None:
        return {}
    return dict(zip(kernels[call.kernel.data].size_names, call.sizes.data, strict=True))


# ---------------------------------------------------------------------- what is not proven
def _fill(value: SSAValue) -> bool:
    """Fill a value with zeros before nests of a function write it; False inside kernels."""
    while isinstance(value.owner, NestOp) and value.owner.into:
        value = value.owner.into[0]
    maker, block = value.owner, value.owner.parent
    if not isinstance(block, Block) or not isinstance(maker, EmptyOp | NestOp) or (
            isinstance(block.parent_op(), KernelOp) or len(maker.results) != 1):
        return False
    assert isinstance(value.type, TensorType)
    zeros = _zeros(value.type)
    set_location(zeros, maker)
    block.insert_op_before(zeros, maker)
    if isinstance(maker, EmptyOp):
        replace(maker, zeros.results)
    else:
        maker.operands = [*maker.operands, zeros.results[0]]
    return True


def _zeros(type_: TensorType) -> NestOp:
    """A nest that stores 0 everywhere."""
    axes = [Axis(Symbol.axis(f"i{d}"), size) for d, size in enumerate(type_.shape)]
    nest = NestOp.of(axes, [], [], [type_], [[Expr.symbol(a.name) for a in axes]])
    zero = constant(0, scalar_type(nest.results[0]))
    nest.body.block.add_ops([zero, YieldOp.of(zero.result)])
    return nest
