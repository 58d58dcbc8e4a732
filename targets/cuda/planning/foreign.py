"""Kernels that the user has written in Triton, as kernels of a program.

A function of ours takes buffers and sizes, as all our kernels do, and calls the user's function,
which Triton puts in its place.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from dialects.host import ForeignLaunchOp, host_functions
from dialects.strata.array_type import ArrayType
from dialects.strata.types import buffer_type
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from targets.cuda.build.source import KernelSource
from targets.cuda.emit.index import size_value
from targets.cuda.emit.values import Value, pointer_type
from targets.cuda.runtime.planned import PlannedKernel

_INT32 = 2**31


def sizes_of(op: ForeignLaunchOp) -> tuple[Symbol, ...]:
    """The sizes on which a launch depends, by name."""
    shapes = [size for b in op.buffers for size in buffer_type(b).shape]
    used = {s for e in (*op.sizes.data, *op.grid.data, *shapes) for s in e.symbols}
    return tuple(sorted(used, key=lambda s: s.text))


def planned_foreign(op: ForeignLaunchOp) -> PlannedKernel:
    """The kernel of a launch, as launches see it. It may write any element at any time, so no
    buffer may lie over another one."""
    count = len(op.buffers)
    return PlannedKernel(
        op.kernel.data, tuple(ArrayType.of(buffer_type(b)) for b in op.buffers), sizes_of(op),
        tuple(op.grid.data), frozenset(range(count - len(op.targets), count)), frozenset(),
        counted=tuple(s for e in op.sizes.data if (s := e.as_symbol)), operation=op)


def foreign_source(op: ForeignLaunchOp) -> KernelSource:
    """The source of a kernel."""
    name, sizes = f"launch_{op.kernel.data}", sizes_of(op)
    buffers = [f"b{k}" for k in range(len(op.buffers))]
    names = {size: Value(f"n{k}", (), Expr.of(0), None) for k, size in enumerate(sizes)}
    given = [*buffers, *(_argument(size, names) for size in op.sizes.data)]
    signature = [(b, pointer_type(buffer_type(v).element))
                 for b, v in zip(buffers, op.buffers, strict=True)]
    signature += [(names[size].text, "i32") for size in sizes]
    parameters = ", ".join(p for p, _ in signature)
    code = (f"@triton.jit\ndef {name}({parameters}):\n"
            f"    {op.kernel.data}({op.call.data.format(*given)})\n")
    warps, stages = (e.data.constant or 1 for e in (op.warps, op.stages))
    return KernelSource(name, (op.source.data,), code, tuple(signature), warps, stages,
                        spread=True)


def foreign_sources(module: ModuleOp) -> list[KernelSource]:
    """The sources of all such kernels of a module, each once."""
    made = (foreign_source(op) for f in host_functions(module) for op in f.body.block.ops
            if isinstance(op, ForeignLaunchOp))
    return list(dict.fromkeys(made))


def _argument(size: Expr, names: dict[Symbol, Value]) -> str:
    """A number as Triton passes it to a kernel: in 32 bits if it fits."""
    if size.constant is None:
        return size_value(size, names).text
    kind = "tl.int32" if -_INT32 <= size.constant < _INT32 else "tl.int64"
    return f"tl.full((), {size.constant}, {kind})"
