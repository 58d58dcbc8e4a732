"""The work of kernels, from their nests at host level and from their launches.

A FLOP is one operation on floats at one point of a nest; a sum or maximum of many points is one
more for each. Conversions, comparisons, selections and constants are free. The bytes of a launch
are those that its nests can access: each element of a buffer once, and of a buffer that is read at
some points only, such as a table of embeddings, no more than there are points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from compiler.measuring.work import accesses_of
from dialects.host import FuncOp, LaunchOp
from dialects.loop import KernelOp, NestOp
from dialects.strata.types import BufferType, byte_width, is_float
from dialects.symbolic.expr import Expr
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Symbol

_COMBINED = ("add", "mul", "max", "min")
_FREE = ("constant", "extf", "truncf", "cmpf", "select", "bitcast")


@dataclass(frozen=True)
class KernelWork:
    """The FLOPs of a launch of a kernel, and the bytes that it accesses of each buffer, as
    expressions of its size parameters. `narrow`: whether it has products, all of whose factors are
    floats narrower than f32."""

    parameters: tuple[Symbol, ...]
    flops: Expr
    accesses: Sequence[Expr]
    narrow: bool = False

    def flops_of(self, launch: LaunchOp, sizes: Mapping[Symbol, int]) -> int:
        return value_of(self.flops, self._own(launch, sizes))

    def bytes_of(self, launch: LaunchOp, sizes: Mapping[Symbol, int]) -> int:
        own, accessed = self._own(launch, sizes), dict[SSAValue, int]()
        for buffer, count in zip(launch.buffers, self.accesses, strict=True):
            accessed[buffer] = accessed.get(buffer, 0) + value_of(count, own)
        return sum(min(count, buffer_bytes(b, sizes)) for b, count in accessed.items())

    def _own(self, launch: LaunchOp, sizes: Mapping[Symbol, int]) -> dict[Symbol, int]:
        given = [value_of(size, sizes) for size in launch.sizes.data]
        return dict(zip(self.parameters, given, strict=True))


def work_of(module: ModuleOp) -> dict[str, KernelWork]:
    """The work of each kernel of nests."""
    kernels = [op for op in module.body.block.ops if isinstance(op, KernelOp)]
    return {k.sym_name.data: KernelWork(tuple(k.size_names), sum(
        (_of_nest(nest) for nest in k.nests), Expr.of(0)), accesses_of(k), _is_narrow(k))
        for k in kernels}


Launched = Sequence[tuple[str, Sequence[SSAValue]]]
"""The kernels that a function launches, each with its buffers."""


def launched(function: FuncOp) -> Launched:
    """What a function launches, in order."""
    return [(op.kernel.data, list(op.buffers)) for op in function.walk()
            if isinstance(op, LaunchOp)]


def with_joined(
    work: Mapping[str, KernelWork], before: Launched, after: FuncOp
) -> dict[str, KernelWork]:
    """The work, and that of joined kernels: of the launches that one launch has replaced.

    `before`: what a function launched; `after`: the function now. A joined launch has the buffers
    of its parts, in their order, but for those that parts hand on to each other.
    """
    found, left = dict(work), [(name, buffers) for name, buffers in before if name in work]
    now = launched(after)
    for name, buffers in now:
        kept = next((k for k, (n, own) in enumerate(left) if n == name and own == buffers), None)
        if kept is not None:
            del left[kept]
    for name, buffers in now:
        if name in work:
            continue
        rest, parts, accesses = [*buffers], list[KernelWork](), list[Expr]()
        while left and rest:
            part, own = left.pop(0)
            parts.append(work[part])
            for buffer, accessed in zip(own, work[part].accesses, strict=True):
                if rest and buffer is rest[0]:
                    accesses.append(accessed)
                    del rest[0]
        found[name] = KernelWork(
            tuple(dict.fromkeys(s for p in parts for s in p.parameters)),
            sum((p.flops for p in parts), Expr.of(0)), accesses, all(p.narrow for p in parts))
    return found


def _is_narrow(kernel: KernelOp) -> bool:
    """Whether sums of products are there, and all read floats narrower than f32."""
    found = [_read_floats(nest) for nest in kernel.nests if nest.reduce_axes and any(
        op.name == "arith.mulf" for op in nest.body.walk())]
    return bool(found) and all(widths and max(widths) < 4 for widths in found)


def _read_floats(nest: NestOp) -> list[int]:
    """The bytes of each float that a point of a nest reads."""
    return [byte_width(a.type) for a in nest.body.block.args if is_float(a.type)]


def _of_nest(nest: NestOp) -> Expr:
    combined = sum(name in _COMBINED for name in nest.combiner_names) if nest.reduce_axes else 0
    body = sum(is_counted(op) for op in nest.body.walk())
    return product(a.extent for a in nest.axes) * (body + combined)


def is_counted(op: Operation) -> bool:
    """Whether an operation of a body is a FLOP at each point."""
    dialect, _, name = op.name.partition(".")
    return dialect in ("arith", "math") and name not in _FREE and any(
        is_float(r.type) for r in op.results)


def buffer_bytes(value: SSAValue, sizes: Mapping[Symbol, int]) -> int:
    type_ = value.type
    if not isinstance(type_, BufferType):
        return 0
    return value_of(product(type_.shape), sizes) * byte_width(type_.element)


def happens(launch: LaunchOp, sizes: Mapping[Symbol, int]) -> bool:
    """Whether a launch happens at these sizes."""
    return launch.when is None or value_of(launch.when.data, sizes) != 0


def value_of(size: Expr, sizes: Mapping[Symbol, int]) -> int:
    """A size, where sizes that are not given are 1."""
    return int(size.evaluate({**dict.fromkeys(size.symbols, 1), **sizes}))
