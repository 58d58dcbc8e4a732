"""`block-check-accesses`: check for every memory access whether it stays inside its buffer.

    block.kernel @k(%x: f32[n, 8], %y: f32[n]) {       block.kernel @k(%x, %y, %fault: i64[1]) {
      %v = block.load %x[%p, t0] : tile<[8]xf32>         ... the first dim out of bounds, or 0
                                                 -->     block.store %found, %fault[%at] check [0]
                                                         %v = block.load %x[%p, t0] check [0, 1]
    host.launch @k(%x, %y)                             host.launch @k(%x, %y, %fault)
                                                       strata.trap %fault ["load leaves dim 0", ...]

A dim that is already checked may legally be out of bounds, and then the other dims may be, too.
After this pass all dims of an access are checked, so that a wrong access reads the padding or
writes nothing until the launch is over; then the run ends with an AccessError. Copies, views, calls
and places in the arena add assumptions on sizes. Nothing is skipped because it is proven, since
this pass tests the proofs. Enters: final kernels. Does nothing unless the target's option `check`,
or the pass's own option `always`, asks for it. A second run finds nothing to check.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from xdsl.dialects import arith
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from dialects.block import IndexOp, KernelOp, LoadOp, MapOp, ReduceOp, StoreOp, YieldOp
from dialects.host import (
    AllocOp,
    ConstantOp,
    CopyOp,
    FreeOp,
    FuncOp,
    LaunchOp,
    PartOp,
    ViewOp,
    host_functions,
)
from dialects.records import dataclass
from dialects.strata import types as t
from dialects.strata.control import ControlOp
from dialects.strata.requirements import TrapOp
from dialects.strata.sizes import AssumeOp
from dialects.strata.types import BufferType, LiteralAttr, SizesAttr, TileType, buffer_type
from dialects.symbolic.expr import Expr
from dialects.text.syntax import location_name, set_location
from passes.base import StrataContext, StrataPass
from passes.graph_to_loop.scalars import Body, Scalar
from passes.rewrites.block.calls import Calls

FAULT = t.buffer_of(t.tensor(t.i64, [1]))


@dataclass(frozen=True)
class BlockCheckAccesses(StrataPass):
    """Check every access. `always`: even if no target asks for it."""

    name = "block-check-accesses"

    always: bool = False

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        if not (context.facts.checks_accesses or self.always):
            return
        kernels = [op for op in module.body.block.ops if isinstance(op, KernelOp)]
        texts = {k.sym_name.data: found for k in kernels if (found := _check_kernel(k))}
        calls = Calls.of(list(host_functions(module)))
        for func in host_functions(module):
            _check_sizes(func, calls)
            _check_launches(func, texts)


# ---------------------------------------------------------------------- kernels
def _check_kernel(kernel: KernelOp) -> list[str]:
    """The faults that may be found in a kernel, numbered from 1."""
    accesses = [op for op in kernel.walk() if isinstance(op, LoadOp | StoreOp)
                and len(set(op.checked_dims)) < len(op.exprs)]
    if not accesses:
        return []
    fault = kernel.body.block.insert_arg(FAULT, len(kernel.buffers))
    fault.name_hint = "fault"
    texts: list[str] = []
    for op in accesses:
        _Check(op, fault, len(texts) + 1).write()
        texts += [_text(op, dim, kernel) for dim in _unchecked(op)]
        if not _is_of_matrices(op):
            op.properties["checks"] = SizesAttr.of(range(len(op.exprs)))
    return texts


def _is_of_matrices(op: LoadOp | StoreOp) -> bool:
    """Whether an access stores sums from matrix registers, which it does row by row, unmasked."""
    return isinstance(op, StoreOp) and isinstance(op.value.type, TileType) and op.value.type.matrix


def _unchecked(op: LoadOp | StoreOp) -> list[int]:
    return [d for d in range(len(op.exprs)) if d not in op.checked_dims]


def _text(op: LoadOp | StoreOp, dim: int, kernel: KernelOp) -> str:
    buffer = op.buffer.type
    assert isinstance(buffer, BufferType)
    name, node = op.buffer.name_hint or "scratch memory", location_name(op)
    return (f"{op.name} leaves dim {dim} of {name}, of type {buffer.short}, in kernel "
            f"@{kernel.sym_name.data}{f' at node {node!r}' if node else ''}")


class _Check(NamedTuple):
    """The check before one access, whose first unchecked dim has the number `first`."""

    op: LoadOp | StoreOp
    fault: SSAValue
    first: int

    def write(self) -> None:
        """Store the number of a dim that is out of bounds, if there is one."""
        found = self._found()
        for dim in reversed(range(self.tile.rank)):
            found = self._add(ReduceOp.of("max", found, dim))
        place = MapOp.of([found], [()], [t.tile(t.i64, ())])
        body = Body(place.body.block)
        number = Scalar(body, place.body.block.args[0], t.i64)
        _yield(number.compare("ne", 0).where(body.constant(0, t.i64), -1))
        self._add(place)
        self._insert(StoreOp.of(found, self.fault, [Expr.operand(0)], [place.results[0]],
                                checks=[0], index_dims=[()]))

    @property
    def tile(self) -> TileType:
        type_ = (self.op.result if isinstance(self.op, LoadOp) else self.op.value).type
        assert isinstance(type_, TileType)
        return type_

    def _found(self) -> SSAValue:
        """Per position of the tile, the number of the first dim out of bounds there, or 0."""
        shape = self.tile.shape
        lanes = len(shape) - 1 if self.tile.lanes is None and shape else self.tile.lanes
        dims = [[e.constant or 0 for e in d.data] for d in self.op.index_dims.data]
        buffer = self.op.buffer.type
        assert isinstance(buffer, BufferType)
        places = [self._add(IndexOp.of(e, self.op.indices, shape, lanes, dims))
                  for e in self.op.exprs]
        sizes = [self._add(IndexOp.of(size, [], ())) for size in buffer.shape]
        whole = list(range(len(shape)))
        found = MapOp.of([*places, *sizes], [*[whole] * len(places), *[()] * len(sizes)],
                         [t.tile(t.i64, shape, lanes)])
        body = Body(found.body.block)
        numbers = [Scalar(body, body.append(arith.IndexCastOp(a, t.i64)), t.ui64)
                   for a in found.body.block.args]
        _yield(self._number(body, numbers[: len(places)], numbers[len(places):]))
        return self._add(found)

    def _number(
        self, body: Body, places: Sequence[Scalar], sizes: Sequence[Scalar]
    ) -> Scalar:
        """Compare as unsigned, so that a negative index is too large."""
        number = body.constant(0, t.i64)
        for k, dim in reversed(list(enumerate(_unchecked(self.op)))):
            left = places[dim].compare("ge", sizes[dim])
            number = left.where(body.constant(self.first + k, t.i64), number)
        for dim in set(self.op.checked_dims):
            number = places[dim].compare("lt", sizes[dim]).where(number, 0)
        return number

    def _add(self, op: Operation) -> SSAValue:
        self._insert(op)
        return op.results[0]

    def _insert(self, op: Operation) -> None:
        block = self.op.parent
        assert block is not None
        set_location(op, self.op)
        block.insert_op_before(op, self.op)


def _yield(value: Scalar) -> None:
    value.body.block.add_op(YieldOp.of(value.value))


# ---------------------------------------------------------------------- host functions
def _check_launches(func: FuncOp, texts: Mapping[str, list[str]]) -> None:
    """Pass launches a word that is initially 0, and test it after each launch."""
    block = func.body.block
    launches = [op for op in block.ops if isinstance(op, LaunchOp) and op.kernel.data in texts]
    if not launches:
        return
    zero = ConstantOp.of(LiteralAttr((0,)), FAULT)
    fault = AllocOp.of(FAULT)
    first = block.first_op
    assert first is not None
    for op in (zero, fault, CopyOp.of(zero.result, fault.result)):
        set_location(op, launches[0])
        block.insert_op_before(op, first)
    for launch in launches:
        launch.operands = [*launch.operands, fault.result]
        _insert_after(TrapOp.of(fault.result, texts[launch.kernel.data]), launch)
    last = launches[-1].next_op
    assert last is not None
    _insert_after(FreeOp.of(fault.result), last)


def _insert_after(op: Operation, place: Operation) -> None:
    block = place.parent
    assert block is not None
    set_location(op, place)
    block.insert_op_after(op, place)


def _check_sizes(func: FuncOp, calls: Calls) -> None:
    """Assume that views and copies keep the number of bytes, that calls receive and return what
    both sides declare, and that buffers lie inside the arena."""
    for op in list(func.body.block.ops):
        needs = [*_needs(op, func), *((c.left, c.relation, c.right) for c in calls.claims(op))]
        for left, relation, right in needs:
            if left != right:
                assume = AssumeOp.of(left, relation, right)
                set_location(assume, op)
                func.body.block.insert_op_before(assume, op)
        if isinstance(op, ControlOp):
            calls.open_results(op, lambda claim: claim.left == claim.right)


def _needs(op: Operation, func: FuncOp) -> list[tuple[Expr, str, Expr]]:
    match op:
        case CopyOp():
            return [(buffer_type(op.source).byte_size, "==", buffer_type(op.target).byte_size)]
        case PartOp():
            end = op.offset + buffer_type(op.result).byte_size
            return [(end, "<=", buffer_type(op.source).byte_size), (Expr.of(0), "<=", op.offset)]
        case ViewOp():
            return [(buffer_type(op.source).byte_size, "==", buffer_type(op.result).byte_size)]
        case AllocOp() if op.offset is not None and func.arena_bytes is not None:
            end = op.offset.data + op.type.byte_size
            return [(end, "<=", func.arena_bytes), (Expr.of(0), "<=", op.offset.data)]
        case _:
            return []
