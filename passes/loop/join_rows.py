"""`loop-join-rows`: fuse kernels that walk the same rows into one that holds a block of rows.

    %s = call @contract_0(%q, %k)      nests (i, j, reduce d) (i, j)
    %p = call @reduce_1(%s)            nests (i, reduce j) (i, j) (i, reduce j) (i, j)
    %y = call @contract_2(%p, %v)      nests (i, d, reduce j)
    ->
    %y = call @rows_2(%q, %k, %v)      nests (i, j, reduce d) (i, j) (i, reduce j)
                                             (i, j1) (i, reduce j1)  (i, d, reduce j2)

Enters: kernels, each called once, as `loop-outline` leaves them. Leaves: the same, except that a
chain from a contraction through reductions to another contraction is one kernel, provided that its
intermediate values are read only inside it. A program then computes the whole chain for its rows.
What one nest leaves for the next (whole rows of scores, say) stays in private memory, where it is
hot in cache: `passes.analyses.loop.private`. Nothing here knows about attention: rows are the axes
over which everything in the chain is parallel.

Only nests that use the same name for an axis walk it together. A nest that needs a finished
reduction over an axis, and a contraction that sums over it, must walk it again, so each of them
gets an axis of its own.

The target says how much memory a program may use (`Facts.row_memory`); 0 disables the pass. It
also gives the size of intermediates up to which separate kernels are faster
(`Rules.apart_memory`).
"""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from dialects.loop import CallOp, KernelOp, NestOp
from dialects.records import dataclass
from dialects.strata.types import TensorType, byte_width
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.kinds import is_contraction
from passes.analyses.loop.private import block_axis, private_values
from passes.analyses.loop.runs import common_rows
from passes.base import StrataContext, StrataPass
from passes.reasons import Reason, legality, price
from passes.rewrites.chains.chain import Program, calls_in
from passes.rewrites.chains.computing import ComputingChain
from passes.rewrites.loop.computed import reads_few
from passes.rewrites.loop.nests import inline_everywhere, reads_of

BLOCK_ROWS = 32
"""The number of rows per program that is assumed when memory is counted."""

MIN_ROWS = 16
"""Fewer rows than this do not fill a block."""

OPEN_SIZE = 512
"""The value that is assumed for a size known only at run time, when memory is counted."""

MAX_STREAM = 16
"""The most bytes of shared inputs that a block may read, per byte that it keeps to itself."""


@dataclass(frozen=True)
class LoopJoinRows(StrataPass):
    """Fuse chains of kernels along their rows."""

    name = "loop-join-rows"

    across: bool = True
    """Whether a chain leads through several nodes of the model; if not, all of it is one of them.
    """

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        room = context.facts.row_memory
        if not room or context.rules is None:
            return
        calls = calls_in(module)
        program = Program.of(module, calls, self.across)
        for call in calls:
            if call.parent is not None:
                self._join(context, program, call, room)

    def _join(self, context: StrataContext, program: Program, call: CallOp, room: int) -> None:
        chain = RowsChain.ending_in(call, program)
        if chain is None:
            return
        assert context.rules is not None
        chain.find_computed(context.weights)
        kernel = chain.kernel(exact=context.exact)
        fault = misfit(kernel, room, context.rules.apart_memory(kernel))
        if fault:
            context.refuse_chain(self, chain.calls, "not joined by rows", fault)
            kernel.erase()
        elif context.allowance.take(call, self.name):
            chain.replace(kernel)
        else:
            kernel.erase()


@dataclass
class RowsChain(ComputingChain):
    """A chain that computes what indices tell of pairs of a row and another place: masks."""

    def may_be_mask(self, call: CallOp) -> bool:
        """A mask that reads as much as it computes is computed once and loaded."""
        return reads_few(call) and super().may_be_mask(call)

    def arrange(self, kernel: KernelOp, *, exact: bool) -> None:
        for nest in reversed(kernel.nests[:self.computed]):
            inline_everywhere(nest)
        super().arrange(kernel, exact=exact)


def misfit(kernel: KernelOp, room: int, apart_memory: int = 0) -> Reason | None:
    """Why a joined kernel would not be faster, or None."""
    axis = block_axis(kernel)
    if axis is None:
        return price("no axis of rows reuses an operand")
    if any(_moves_windows(kernel, nest) for nest in kernel.nests):
        return legality("a convolution's window moves over a value that would be kept")
    if (kernel.axes[axis].constant or MIN_ROWS) < MIN_ROWS:
        return price(f"too few rows: fewer than {MIN_ROWS}")
    kept = {v: _axes_of(v) - set(common_rows(kernel)) for v in private_values(kernel)}
    rows, walked = kernel.axes[axis], {kernel.axes[a] for axes in kept.values() for a in axes}
    if rows.constant is None and rows not in walked:
        return price("the number of rows is not known and may be too small for the work per row")
    largest = max((BLOCK_ROWS * _bytes(kernel, v, axes) for v, axes in kept.items()), default=0)
    if largest > room:
        return price(f"a block of {BLOCK_ROWS} rows is too large for {room} bytes")
    if not kept:
        return price("no intermediate would stay inside the joined kernel")
    if max(_bytes(kernel, v, _axes_of(v)) for v in kept) <= apart_memory:
        return price("separate kernels are faster, because the intermediate is small: "
                     f"at most {apart_memory} bytes")
    if _stream(kernel, axis) > MAX_STREAM * largest:
        return price("each block would read too much data that all blocks share: more than "
                     f"{MAX_STREAM} bytes for each that it keeps")
    return None


def _moves_windows(kernel: KernelOp, nest: NestOp) -> bool:
    """Whether a contraction sums over windows along an axis of its result that is not a row."""
    if not is_contraction(nest):
        return False
    summed, rows = {a.name for a in nest.reduce_axes}, {*common_rows(kernel)}
    places = [e.symbols for m in nest.input_maps for e in m]
    return any(used & summed and used - summed - rows for used in places)


def _axes_of(value: SSAValue) -> set[Symbol]:
    """The axes over which a nest computes a value."""
    assert isinstance(value.owner, NestOp)
    return {s for e in value.owner.stored_at(value) for s in e.symbols}


def _stream(kernel: KernelOp, axis: Symbol) -> int:
    """The bytes that every block reads of inputs that do not depend on its rows."""
    rows, total = {*common_rows(kernel)}, 0
    for argument in kernel.body.block.args:
        reads = [{s for e in read.map for s in e.symbols}
                 for nest in kernel.nests for read in reads_of(nest) if read.value is argument]
        if not any(axis in axes for axes in reads):  # several walks read the same
            total += max((_bytes(kernel, argument, axes - rows) for axes in reads), default=0)
    return total


def _bytes(kernel: KernelOp, value: SSAValue, axes: set[Symbol]) -> int:
    """The size in bytes of the part of a value that spans the given axes."""
    assert isinstance(value.type, TensorType)
    count = product(e for a, e in kernel.axes.items() if a in axes)
    sizes = dict.fromkeys(count.symbols, OPEN_SIZE)
    return int(count.evaluate(sizes)) * byte_width(value.type.element)
