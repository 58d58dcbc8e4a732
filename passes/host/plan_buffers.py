"""host-plan-buffers: assign every buffer a place in one arena.

    %a = host.alloc : f32[1024]                 host.func ... arena(8192)
    host.launch @k0(%x, %a)                       %a = host.alloc offset 0 : f32[1024]
    %b = host.alloc : f32[1024]                   host.launch @k0(%x, %a)
    host.launch @k1(%a, %b)               -->     %b = host.alloc offset 4096 : f32[1024]
    %c = host.alloc : f32[1024]                   host.launch @k1(%a, %b)
    host.launch @k2(%b, %c)                       %c = host.alloc offset 0 : f32[1024]
                                                  host.launch @k2(%b, %c)

Two buffers overlap only if one is used for the last time before the other is first written; the
launches of a run, which may become one (`block-join-launches`), are one time. An elementwise kernel
may also compute in place, over an input that dies there (`in-place=false` forbids that). Offsets
are multiples of 256 bytes. A buffer is live from the first to the last step that uses it, including
uses through views. Buffers that the function returns, or whose size is not known on entry, keep
memory of their own, which is freed after its last use. Enters: a `host.func`; existing offsets are
replaced.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from dialects.host import AllocOp, FreeOp, FuncOp, LaunchOp, ReturnOp, ViewOp
from dialects.loop import KernelOp, NestOp
from dialects.records import dataclass
from dialects.strata.control import ControlOp
from dialects.strata.types import BufferType, ExprAttr, format_symbols
from dialects.symbolic.expr import Expr
from dialects.text.syntax import set_location
from passes.analyses.host.arena import SYMBOL_HINT, Block, hint, plan
from passes.analyses.host.neighbours import runs_of
from passes.analyses.host.storage import kernels_of
from passes.base import StrataContext, StrataPass


@dataclass(frozen=True)
class HostPlanBuffers(StrataPass):
    """Place all buffers of a host function in one arena."""

    name = "host-plan-buffers"

    in_place: bool = True

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        kernels = kernels_of(module)
        for func in module.body.block.ops:
            if isinstance(func, FuncOp) and context.allowance.take(func, self.name):
                self._plan(func, kernels, context)

    def _plan(self, func: FuncOp, kernels: dict[str, KernelOp], context: StrataContext) -> None:
        lives = _lives(func)
        if context.facts.programs > 1:
            _prolong(func, lives, runs_of(func, kernels, context))
        everything = _total(life.size for life in lives.values())
        _merge_in_place(func, lives, kernels if self.in_place else {})
        arena = _place(func, lives)
        _free_others(func)
        context.remark(self, func, report(arena, everything))


def shared_memory(
    func: FuncOp, apart: Collection[LaunchOp] = ()
) -> list[tuple[AllocOp, AllocOp]]:
    """Pairs of buffers in one place of which launches, but for some, compute one over the other."""
    lives, found = _lives(func), list[tuple[AllocOp, AllocOp]]()
    for at, op in enumerate(func.body.block.ops):
        if not isinstance(op, LaunchOp) or op in apart:
            continue
        memories = [m for m in map(memory_of, op.buffers) if m is not None and m in lives]
        found += [(a, b) for a in memories for b in memories
                  if a is not b and a.offset == b.offset and (
                      lives[a].last, lives[b].first) == (at, at)]
    return found


def plan_again(func: FuncOp, shared: Iterable[tuple[AllocOp, AllocOp]]) -> None:
    """Place the buffers of a planned function anew, after launches have become others.

    `shared`: the pairs that `shared_memory` has found before, which keep one place.
    """
    lives = _lives(func)
    sharing = {life: [op] for op, life in lives.items()}
    for source, target in shared:
        if source in lives and target in lives:
            _merge(lives[source], lives[target], lives, sharing)
    _place(func, lives)


def _place(func: FuncOp, lives: dict[AllocOp, Block]) -> Expr:
    """Give all buffers their places. Returns the size of the arena."""
    arena = plan(list(dict.fromkeys(lives.values())))
    for op, life in lives.items():
        op.properties["offset"] = ExprAttr(life.offset)
    func.properties["arena"] = ExprAttr(arena)
    return arena


def _lives(func: FuncOp) -> dict[AllocOp, Block]:
    """For every buffer that can be planned, its bytes and the first and last step that uses it."""
    steps, known = list(func.body.block.ops), {*func.size_names}
    returned = {memory_of(v) for v in func.return_op.values}
    lives = {op: Block(op.type.byte_size, at, at) for at, op in enumerate(steps)
             if isinstance(op, AllocOp) and op not in returned
             and op.type.count.symbols <= known}
    for at, op in enumerate(steps):
        if isinstance(op, AllocOp | ViewOp):
            continue
        for value in op.operands:
            owner = memory_of(value)
            if owner is not None and owner in lives:
                lives[owner].use(at)
    return lives


def _prolong(
    func: FuncOp, lives: dict[AllocOp, Block], runs: Iterable[Sequence[LaunchOp]]
) -> None:
    """Let what a run of launches uses live all the time that the run takes: it may be one launch.
    """
    steps = {op: at for at, op in enumerate(func.body.block.ops)}
    for run in runs:
        first, last = steps[run[0]], steps[run[-1]]
        for owner in {memory_of(b) for op in run for b in op.buffers} & lives.keys():
            if owner is not None:
                life = lives[owner]
                life.first, life.last = min(life.first, first), max(life.last, last)


def memory_of(value: SSAValue) -> AllocOp | None:
    """The allocation that a buffer views; None for arguments, constants and results of calls."""
    value = seen_memory(value)
    return value.owner if isinstance(value.owner, AllocOp) else None


def seen_memory(value: SSAValue) -> SSAValue:
    """The buffer that a chain of views shows."""
    while isinstance(value.owner, ViewOp):
        value = value.owner.source
    return value


def _free_others(func: FuncOp) -> None:
    """Free memory outside of the arena after its last use, unless the function returns it."""
    last: dict[SSAValue, Operation] = {}
    for op in func.body.block.ops:
        is_own = isinstance(op, ControlOp) or (isinstance(op, AllocOp) and op.offset is None)
        last |= dict.fromkeys(op.results, op) if is_own else {}
        if not isinstance(op, ViewOp):
            last |= {m: op for m in map(seen_memory, op.operands) if m in last}
    for value, user in last.items():
        if not isinstance(user, ReturnOp | FreeOp):
            free = FreeOp.of(value)
            set_location(free, user)
            func.body.block.insert_op_after(free, user)


def _total(sizes: Iterable[Expr]) -> Expr:
    return sum(sizes, Expr.of(0))


def report(arena: Expr, everything: Expr) -> str:
    """A report in bytes, with symbolic sizes at the hint, since the IR shows the formulas."""
    have, all_ = hint(arena), hint(everything)
    if all_ == 0:
        return "no value needs memory between kernels"
    symbols = format_symbols(sorted(arena.symbols | everything.symbols))
    if min(have, all_) < 0:  # the model does not run at sizes as small as the hint
        return f"arena whose size depends on {symbols}"
    sizes = f" (with {symbols} = {SYMBOL_HINT})" if symbols else ""
    return f"arena of {have} bytes holds buffers of {all_} bytes in total{sizes}"


# ---------------------------------------------------------------------- computing in place
def _merge_in_place(
    func: FuncOp, lives: dict[AllocOp, Block], kernels: dict[str, KernelOp]
) -> None:
    """Merge buffers if a kernel reads one for the last time and is the first to write the other."""
    sharing = {life: [op] for op, life in lives.items()}
    for at, op in enumerate(func.body.block.ops):
        if isinstance(op, LaunchOp) and op.kernel.data in kernels:
            for source, target in _mergeable(op, at, kernels[op.kernel.data], lives):
                _merge(lives[source], lives[target], lives, sharing)


def _mergeable(
    op: LaunchOp, at: int, kernel: KernelOp, lives: dict[AllocOp, Block]
) -> Iterator[tuple[AllocOp, AllocOp]]:
    """Pairs of a buffer that dies in a launch and one first written there that may reuse it."""
    count = len(kernel.body.block.args)
    memories = [memory_of(b) for b in op.buffers]
    taken: set[AllocOp] = set()
    for result, target in enumerate(memories[count:]):
        if target is None or target not in lives or memories.count(target) > 1:
            continue
        if lives[target].first != at:
            continue
        for argument, source in enumerate(memories[:count]):
            if source is None or source not in lives or source in taken:
                continue
            dies = lives[source].last == at and memories.count(source) == 1
            if dies and can_share(kernel, argument, result) and (
                    _same_layout(op.buffers[argument], op.buffers[count + result])):
                yield source, target
                taken.add(source)
                break


def _same_layout(left: SSAValue, right: SSAValue) -> bool:
    a, b = left.type, right.type
    assert isinstance(a, BufferType) and isinstance(b, BufferType)
    return a.shape == b.shape and a.byte_size == b.byte_size


def _merge(
    kept: Block, gone: Block, lives: dict[AllocOp, Block], sharing: dict[Block, list[AllocOp]]
) -> None:
    """Let one block serve the buffers of both, and live until the end of the later one."""
    kept.last = gone.last
    moved = sharing.pop(gone)
    lives |= dict.fromkeys(moved, kept)
    sharing[kept] += moved


def can_share(kernel: KernelOp, argument: int, result: int) -> bool:
    """Whether result number `result` may share the memory of argument number `argument`.

    It may if a single nest reads the argument, at exactly the element that it then writes, and
    nothing else in the kernel needs either of them:

        %y = nest (i0, i1) ins(%argument[i0, i1], ...) outs([i0, i1])

    A nest with reductions reads elements several times, and another reader could run after the
    write. The caller knows that both buffers have the same shape and bytes per element.
    """
    value, yielded = kernel.body.block.args[argument], kernel.yielded[result]
    nest = yielded.owner
    if not isinstance(nest, NestOp) or not nest.is_elementwise or not yielded.has_one_use():
        return False
    position = next(k for k, r in enumerate(nest.results) if r is yielded)
    written = nest.output_maps[position]
    return value.first_use is not None and all(
        use.operation is nest and nest.input_maps[use.index] == written
        and nest.pad_values[use.index] is None for use in value.uses)
