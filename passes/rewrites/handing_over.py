"""Launches that are handed over to kernels which the user has written.

    host.launch @map_0(%x, %y) sizes(n)   ->   host.foreign_launch %x, %y {kernel = "mine",
                                                   instead = "map_0", instead_sizes = [n], ...}

The kernel of the module stays: it says what the user's one computes, so interpreters, `verify` and
targets that launch no such kernels still have it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from fnmatch import fnmatchcase

from xdsl.dialects.builtin import ModuleOp, StringAttr

from dialects.host import ForeignLaunchOp, LaunchOp, host_functions
from dialects.loop import KernelOp
from dialects.records import dataclass
from dialects.strata.types import BufferType, Size, SizesAttr, buffer_type
from dialects.symbolic.expr import Expr
from dialects.text.syntax import attribute_of, location_name, set_location
from passes.analyses.host.storage import kernels_of
from passes.base import PassError, StrataContext, StrataPass
from passes.scripts.steps import HANDED

Sizes = Callable[..., Sequence[Size]]
PREFIX, PLACE = "hand-over-", "after(host-bufferize)"
"""How passes that hand kernels over are called, and where they run."""


@dataclass(frozen=True)
class WrittenKernel:
    """A kernel that the user has written, and what it takes: first the buffers that the kernel of
    the program reads, then those that it writes, then `numbers`, then `constants`, which are text.

    `pattern`: the kernels of the program, in which `*` matches any text. `source`: a module that
    defines the function `name`. `grid`, `numbers`: their sizes, as functions of the buffers' types.
    """

    pattern: str
    name: str
    source: str
    parameters: tuple[str, ...]
    grid: Sizes
    numbers: Sizes
    constants: dict[str, str]
    warps: int = 4
    stages: int = 3


def scheduled_kernels(module: ModuleOp, name: str) -> set[str]:
    """The kernels whose schedule says that they are handed over to this one."""
    return {symbol for symbol, kernel in kernels_of(module).items()
            if kernel.schedule is not None and kernel.schedule.data.given(HANDED) == name}


def hand_over(
    pass_: StrataPass, context: StrataContext, module: ModuleOp, written: WrittenKernel,
    chosen: Collection[str] | None = None,
) -> None:
    """Hand all launches of kernels with a name over: one that fits the pattern, or that is
    `chosen`. Raises PassError if there is none, and for a kernel that takes another number of
    arguments."""
    if not context.facts.launches_foreign:
        context.remark(pass_, module, f"{written.name} is not launched: it is written in the "
                       "language of another target")
        return
    kernels = kernels_of(module)
    launches = [op for f in host_functions(module) for op in f.body.block.ops
                if isinstance(op, LaunchOp) and (
                    fnmatchcase(op.kernel.data, written.pattern) if chosen is None
                    else op.kernel.data in chosen)]
    if not launches:
        raise PassError(pass_.name, [("", f"no launched kernel is called {written.pattern}; there "
                                      f"are {', '.join(sorted(kernels))}")])
    for op in launches:
        made = _launch(pass_, op, written)
        set_location(made, op)
        block = op.parent_block()
        assert block is not None
        block.insert_op_before(made, op)
        op.detach()
        op.erase()


def _launch(pass_: StrataPass, op: LaunchOp, written: WrittenKernel) -> ForeignLaunchOp:
    types = [buffer_type(b) for b in op.buffers]
    numbers = [Expr.of(n) for n in written.numbers(*types)]
    names = [p for p in written.parameters if p not in written.constants]
    if len(names) != len(types) + len(numbers):
        raise PassError(pass_.name, [(location_name(op), (
            f"{written.name} takes {', '.join(names)}, and @{op.kernel.data} has the buffers "
            f"{', '.join(map(_short, types))} and {len(numbers)} numbers"))])
    words = [f"{name}={{{k}}}" for k, name in enumerate(names)]
    words += [f"{name}={text}" for name, text in written.constants.items()]
    attributes = {
        "kernel": StringAttr(written.name), "source": StringAttr(written.source),
        "call": StringAttr(", ".join(words)), "sizes": SizesAttr.of(numbers),
        "grid": SizesAttr.of([Expr.of(n) for n in written.grid(*types)]),
        "warps": attribute_of(Expr.of(written.warps)),
        "stages": attribute_of(Expr.of(written.stages))}
    made = ForeignLaunchOp.of(list(op.buffers), _written(op), attributes)
    made.properties |= {"instead": op.kernel, "instead_sizes": op.sizes}
    return made


def _written(op: LaunchOp) -> int:
    """How many of the buffers a kernel writes: the last ones."""
    top = op.parent_op()
    while top is not None and not isinstance(top, ModuleOp):
        top = top.parent_op()
    assert isinstance(top, ModuleOp)
    kernel = kernels_of(top)[op.kernel.data]
    assert isinstance(kernel, KernelOp)
    return len(kernel.yielded)


def _short(type_: BufferType) -> str:
    return type_.short
