"""The work of kernels: FLOPs from their nests at loop level, bytes from their launches.

A FLOP is one operation on floats at one point of a nest; a sum or maximum of many points is one
more for each. Conversions, comparisons, selections and constants are free. The bytes of a launch
are those of the buffers that it is given, each once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from dialects.host.ops import CopyOp, LaunchOp
from dialects.loop import KernelOp, NestOp
from dialects.strata.types import BufferType, byte_width, is_float
from dialects.symbolic.expr import Expr
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Symbol

_COMBINED = ("add", "mul", "max", "min")
_FREE = ("constant", "extf", "truncf", "cmpf", "select", "bitcast")


@dataclass(frozen=True)
class Flops:
    """The FLOPs of a launch of a kernel, as an expression of its size parameters."""

    parameters: tuple[Symbol, ...]
    count: Expr

    def of(self, launch: LaunchOp, sizes: Mapping[Symbol, int]) -> int:
        given = [value_of(size, sizes) for size in launch.sizes.data]
        return value_of(self.count, dict(zip(self.parameters, given, strict=True)))


def flops_of(module: ModuleOp) -> dict[str, Flops]:
    """The FLOPs of each kernel of nests."""
    kernels = [op for op in module.body.block.ops if isinstance(op, KernelOp)]
    return {k.sym_name.data: Flops(tuple(k.size_names), sum(
        (_of_nest(nest) for nest in k.nests), Expr.of(0))) for k in kernels}


def _of_nest(nest: NestOp) -> Expr:
    combined = sum(name in _COMBINED for name in nest.combiner_names) if nest.reduce_axes else 0
    body = sum(_counts(op) for op in nest.body.walk())
    return product(a.extent for a in nest.axes) * (body + combined)


def _counts(op: Operation) -> bool:
    dialect, _, name = op.name.partition(".")
    return dialect in ("arith", "math") and name not in _FREE and any(
        is_float(r.type) for r in op.results)


def bytes_of(step: LaunchOp | CopyOp, sizes: Mapping[Symbol, int]) -> int:
    return sum(buffer_bytes(value, sizes) for value in dict.fromkeys(step.operands))


def buffer_bytes(value: SSAValue, sizes: Mapping[Symbol, int]) -> int:
    type_ = value.type
    if not isinstance(type_, BufferType):
        return 0
    return value_of(product(type_.shape), sizes) * byte_width(type_.element)


def value_of(size: Expr, sizes: Mapping[Symbol, int]) -> int:
    """A size, where sizes that are not given are 1."""
    return int(size.evaluate({**dict.fromkeys(size.symbols, 1), **sizes}))
