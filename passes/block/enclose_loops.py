"""block-enclose-loops: small loops and branches on data run inside of one launch.

    %1 = host.alloc : i1[]                            %v = host.alloc : f32[100]
    host.launch @test(%x, %1)                         host.launch @test(%x, %1)
    %v = strata.loop @body at _step while %1     -->  host.launch @loop_0(%x, %1, ..., %v)
         carried(%x) with() buffers f32[100]
                                                      block.kernel @loop_0(...) grid() {
    host.func @body(%0: f32[100]) sizes(_step) {        block.for ... while (%goes_on = ...) {
      host.launch @step(%0, %2, %3)                       the programs of @step, one by one
      host.return %3, %2                                  ...

The host waits for the device in each iteration of such a loop, to read the condition, and before
each branch. That takes longer than it takes a single program to compute a few tiles. What is left
is a straight line, which targets launch as a whole.

Enters: final kernels with proven accesses, on planned memory. Enclosed are loops with a condition
and branches whose functions only launch kernels and copy, on buffers of known sizes, with so few
programs and short loops (`Facts.enclosed_programs`) that one program computes them all, and
without products of matrices. Loops that stack values or define sizes stay, and so does what checks
indices. Inner loops come first, so that nested ones are enclosed as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from dialects.block import (
    BarrierOp,
    ConvertOp,
    ForOp,
    FullOp,
    IndexOp,
    KernelOp,
    LoadOp,
    MapOp,
    ReduceOp,
    ScanOp,
    StoreOp,
    ValidOp,
    YieldOp,
)
from dialects.host import (
    AllocOp,
    ConstantOp,
    CopyOp,
    FreeOp,
    FuncOp,
    LaunchOp,
    ReturnOp,
    ViewOp,
    host_functions,
)
from dialects.records import dataclass
from dialects.strata.control import ControlOp, IfOp, LoopOp
from dialects.strata.sizes import defined_sizes
from dialects.strata.types import BufferType, SizesAttr, buffer_type
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import merge_locations, set_location
from passes.analyses.block.tile_operations import tile_operations
from passes.base import StrataContext, StrataPass
from passes.host.plan_buffers import plan_again, shared_memory
from passes.rewrites.block.enclosed import (
    ENDLESS,
    Copied,
    Enclosed,
    Launched,
    Part,
    copied_programs,
    most_warps,
)

_PLAIN = (LoadOp, StoreOp, MapOp, IndexOp, ValidOp, FullOp, ReduceOp, ScanOp, ConvertOp, YieldOp,
          ForOp, BarrierOp)
_NAMES = (AllocOp, ViewOp, ConstantOp, FreeOp, ReturnOp)


class BlockEncloseLoops(StrataPass):
    """Run small loops and branches inside of kernels."""

    name = "block-enclose-loops"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        if not context.facts.enclosed_programs:
            return
        work = _Enclosing(module, context.facts.enclosed_programs)
        for function in host_functions(module):
            for op in work.enclosable(function):
                if not context.allowance.take(op, self.name):
                    return
                work.enclose(op)
        work.erase_unused()


@dataclass
class _Made:
    """What a function becomes where it is called: its parts, and the buffers that it returns."""

    parts: list[Part]
    returned: list[SSAValue]


class _Enclosing:
    """The module, and what has become of its functions."""

    def __init__(self, module: ModuleOp, most: int) -> None:
        self.module, self.most = module, most
        self.functions = {f.sym_name.data: f for f in host_functions(module)}
        self.kernels = {op.sym_name.data: op for op in module.body.block.ops
                        if isinstance(op, KernelOp)}
        self.shared = dict[FuncOp, list[tuple[AllocOp, AllocOp]]]()
        """The changed functions, with the buffers that had one place in memory."""
        self.called, self.launched = set[str](), set[str]()
        """Functions and kernels that a kernel has taken in."""
        self._seen = set[FuncOp]()

    def enclosable(self, function: FuncOp) -> Iterator[IfOp | LoopOp]:
        """What can be enclosed in a function and in those that it calls, inner ones first."""
        if function in self._seen:
            return
        self._seen.add(function)
        for op in [*function.body.block.ops]:
            if not isinstance(op, ControlOp):
                continue
            for name in op.callees:
                yield from self.enclosable(self.functions[name])
            if isinstance(op, IfOp | LoopOp) and self._is_small(op):
                yield op

    # ------------------------------------------------------------------ what is small
    def _is_small(self, op: IfOp | LoopOp) -> bool:
        sizes, copied = set[Symbol](), [*op.results]
        if isinstance(op, LoopOp):
            if op.condition is None or op.stacked or (
                    op.trip is not None and op.trip.data.constant is None):
                return False
            sizes, copied = {op.step_symbol}, [*op.results, *op.results]
        if defined_sizes(op) or not all(map(_is_static, op.operands)):
            return False
        callees = [self.functions[name] for name in op.callees]
        warps = most_warps(self.kernels[x.kernel.data] for f in callees for x in f.body.block.ops
                           if isinstance(x, LaunchOp) and x.kernel.data in self.kernels)
        programs = [self._programs(function, sizes, warps) for function in callees]
        copies = sum(_copies(value, warps) for value in copied)
        return None not in programs and copies + sum(n or 0 for n in programs) <= self.most

    def _programs(self, function: FuncOp, sizes: set[Symbol], warps: int) -> int | None:
        """How many programs and trips a function is; None if it does more than launch kernels."""
        found = 0
        for op in function.body.block.ops:
            values = [*op.operands, *op.results]
            if not all(map(_is_static, values)) or not isinstance(op, (
                    *_NAMES, LaunchOp, CopyOp)):
                return None
            if isinstance(op, CopyOp):
                found += _copies(op.source, warps)
            elif isinstance(op, LaunchOp):
                steps = self._steps(op, sizes)
                if steps is None:
                    return None
                found += steps
        return found if {*function.size_names} <= sizes else None

    def _steps(self, op: LaunchOp, sizes: set[Symbol]) -> int | None:
        kernel = self.kernels.get(op.kernel.data)
        if kernel is None or op.when is not None or not all(
                e.symbols <= sizes for e in op.sizes.data):
            return None
        grid = [e.constant for e in kernel.grid.data]
        if None in grid or not all(map(_is_static, kernel.buffers)) or not all(
                isinstance(x, _PLAIN) and not (isinstance(x, StoreOp) and x.combiner is not None)
                for x in tile_operations(kernel)):
            return None
        steps = _trips(kernel.body.block)
        return None if steps is None else prod(n or 0 for n in grid) * steps

    # ------------------------------------------------------------------ enclosing
    def enclose(self, op: IfOp | LoopOp) -> None:
        """Replace a loop or branches by a launch."""
        function = op.parent_op()
        assert isinstance(function, FuncOp)
        self.shared.setdefault(function, shared_memory(function))
        self.called.update(op.callees)
        results = [self._result(op, k) for k in range(len(op.results))]
        enclosed = self._loop(op, results) if isinstance(op, LoopOp) else self._branches(
            op, results)
        self.module.body.block.add_op(enclosed.kernel)
        self.kernels[enclosed.kernel.sym_name.data] = enclosed.kernel
        set_location(enclosed.kernel, op)
        launch = _insert(LaunchOp.of(enclosed.kernel.sym_name.data, enclosed.buffers, []), op)
        merge_locations(launch, [enclosed.kernel])
        for old, new in zip(op.results, results, strict=True):
            for use in [*old.uses]:
                if isinstance(use.operation, FreeOp):
                    use.operation.detach()
                    use.operation.erase()
            old.replace_all_uses_with(new)
        op.detach()
        op.erase()

    def _result(self, op: IfOp | LoopOp, number: int) -> SSAValue:
        """A buffer for a result: the caller's output, if it is only copied there."""
        result = op.results[number]
        copies = [u.operation for u in result.uses if not isinstance(u.operation, FreeOp)]
        match copies:
            case [CopyOp(target=BlockArgument() as output) as copy] if (
                    output.has_one_use() and output.type == result.type):
                copy.detach()
                copy.erase()
                return output
            case _:
                made = _insert(AllocOp.of(buffer_type(result)), op).results[0]
                made.name_hint = result.name_hint
                return made

    def _loop(self, op: LoopOp, results: Sequence[SSAValue]) -> Enclosed:
        assert op.condition is not None
        first = [_copied(v, r, op) for v, r in zip(op.carried, results, strict=True)]
        made = self._inlined(op.body.data, [*results, *op.inputs], op, op.step_symbol)
        going, *after = made.returned
        each = [*made.parts, *(_copied(v, r, op) for v, r in zip(after, results, strict=True))]
        enclosed = Enclosed(self._name("loop"), [op.condition, going], [*first, *each], op)
        enclosed.add(enclosed.body, first)
        trips = ENDLESS if op.trip is None else op.trip.data.constant
        loop = enclosed.loop(enclosed.body, enclosed.flag(enclosed.body, op.condition),
                             ENDLESS if trips is None else trips)
        inside = loop.body.block
        enclosed.add(inside, each, loop.counter)
        enclosed.end(inside, enclosed.flag(inside, going))
        enclosed.end(enclosed.body)
        return enclosed

    def _branches(self, op: IfOp, results: Sequence[SSAValue]) -> Enclosed:
        """Both branches, as loops of at most one trip."""
        made = [self._inlined(name, op.inputs, op, results=results) for name in op.callees]
        parts = [[*m.parts, *(_copied(v, r, op) for v, r in zip(m.returned, results, strict=True)
                              if v is not r)] for m in made]
        enclosed = Enclosed(self._name("branch"), [op.condition], [*parts[0], *parts[1]], op)
        body = enclosed.body
        flag = enclosed.flag(body, op.condition)
        for holds, own in zip((flag, enclosed.opposite(body, flag)), parts, strict=True):
            loop = enclosed.loop(body, holds, 1)
            enclosed.add(loop.body.block, own)
            enclosed.end(loop.body.block, loop.body.block.args[1])
        enclosed.end(body)
        return enclosed

    def _name(self, kind: str) -> str:
        return next(n for n in (f"{kind}_{k}" for k in range(len(self.kernels) + 1))
                    if n not in self.kernels)

    def _inlined(
        self, name: str, given: Sequence[SSAValue], at: Operation, step: Symbol | None = None,
        results: Sequence[SSAValue] = (),
    ) -> _Made:
        """The memory of a function, named before `at`, and what it launches on that.

        `results`: the buffers in which it makes what it returns, if it can; else these are others.
        """
        function = self.functions[name]
        values = dict[SSAValue, SSAValue](zip(function.input_arguments, given, strict=True))
        if results:
            values |= {v: r for v, r in zip(function.return_op.values, results, strict=True)
                       if isinstance(v.owner, AllocOp)}
        made = _Made([], [])
        for op in function.body.block.ops:
            match op:
                case ConstantOp() | ViewOp():
                    _insert(op.clone(values), at)
                case AllocOp() if op.result not in values:
                    values[op.result] = _insert(AllocOp.of(op.type), at).results[0]
                    values[op.result].name_hint = op.result.name_hint
                case LaunchOp():
                    made.parts.append(self._launched(op, values, step))
                case CopyOp():
                    made.parts.append(_copied(values[op.source], values[op.target], at))
                case ReturnOp():
                    made.returned = [values[v] for v in op.values]
                case _:  # what it frees has a place now
                    pass
        return made

    def _launched(
        self, op: LaunchOp, values: dict[SSAValue, SSAValue], step: Symbol | None
    ) -> Launched:
        kernel = self.kernels[op.kernel.data]
        self.launched.add(op.kernel.data)
        number = {} if step is None else {step: Expr.symbol(Symbol.operand(0))}
        sizes = dict(zip(kernel.size_names, (e.substitute(number) for e in op.sizes.data),
                         strict=True))
        return Launched(kernel, [values[b] for b in op.buffers], sizes, op)

    def erase_unused(self) -> None:
        """Erase functions and kernels that only kernels call, and place the buffers of the others.
        """
        calls = {name for f in self.functions.values() for op in f.body.block.ops
                 if isinstance(op, ControlOp) for name in op.callees}
        gone = {f for n, f in self.functions.items() if n in self.called - calls}
        launches = {op.kernel.data for f in self.functions.values() if f not in gone
                    for op in f.body.block.ops if isinstance(op, LaunchOp)}
        unused = [self.kernels[name] for name in self.launched - launches]
        for op in (*gone, *unused):
            op.detach()
            op.erase()
        for function, shared in self.shared.items():
            if function not in gone:
                plan_again(function, shared)


# ---------------------------------------------------------------------- buffers
def _is_static(value: SSAValue) -> bool:
    type_ = value.type
    return isinstance(type_, BufferType) and type_.count.constant is not None


def _copies(value: SSAValue, warps: int) -> int:
    return copied_programs(buffer_type(value).count.constant or 0, warps)


def _copied(source: SSAValue, target: SSAValue, at: Operation) -> Copied:
    return Copied(_flat(source, at), _flat(target, at), at)


def _flat(value: SSAValue, at: Operation) -> SSAValue:
    """A view of a buffer in one dim."""
    type_ = buffer_type(value)
    if type_.rank == 1:
        return value
    there = next((u.operation for u in value.uses if isinstance(u.operation, ViewOp)
                  and buffer_type(u.operation.result).rank == 1
                  and u.operation.parent is at.parent), None)
    if there is not None:
        return there.results[0]
    flat = BufferType(type_.element, SizesAttr((type_.count,)))
    return _insert(ViewOp.of(value, flat), at).results[0]


def _insert(op: Operation, at: Operation) -> Operation:
    assert at.parent is not None
    at.parent.insert_op_before(op, at)
    set_location(op, at)
    return op


# ---------------------------------------------------------------------- trips
def _trips(block: Block) -> int | None:
    """How many trips the loops of a program are, at least 1; None if data or sizes decide that. One
    that a condition ends counts once."""
    found = 0
    for op in block.ops:
        if not isinstance(op, ForOp):
            continue
        inner, step = _trips(op.body.block), op.step.data.constant or 1
        length = (op.upper.data - op.lower.data).constant
        if inner is None or length is None:
            return None
        found += inner * (1 if op.is_conditional else max(0, -(-length // step)))
    return max(1, found)
