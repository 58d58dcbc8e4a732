"""Private values of a kernel: values that nests read elsewhere than where they are computed.

    %s = nest (i, j) outs([i, j])    %m = nest (i, reduce j) ins(%s[i, j])    same place: a tile
                                     %e = nest (i, j1) ins(%s[i, j1])         elsewhere: private

Nests that use the same name for an axis share its loop, so one can read the other's results from
registers. A value that is read along another axis must be complete by then, so a program keeps its
part of the value in private memory. Along the axes that programs divide (the rows), nothing is read
elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from dialects.loop import KernelOp, NestOp
from dialects.strata.types import TensorType
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.kinds import is_contraction
from passes.analyses.loop.runs import common_rows
from passes.rewrites.loop.nests import Read, reads_of


def private_values(kernel: KernelOp) -> list[SSAValue]:
    """Results of nests that some nest reads elsewhere than they are computed, in order."""
    nests = kernel.nests
    if len(nests) < 2:  # no nest reads its own results
        return []
    return [r for nest in nests for k, r in enumerate(nest.results)
            if any(is_elsewhere(read, nest.output_maps[k]) for read in reads_in(kernel, r))]


def reads_in(kernel: KernelOp, value: SSAValue) -> list[Read]:
    """All reads of a value by the kernel's nests, in order."""
    return [read for nest in kernel.nests if any(v is value for v in nest.inputs)
            for read in reads_of(nest) if read.value is value]


def is_elsewhere(read: Read, stored: Sequence[Expr]) -> bool:
    """Whether a nest's result is read at other positions than those where the nest stores it."""
    assert isinstance(read.value.type, TensorType)
    return any(a != b and size.constant != 1
               for a, b, size in zip(read.map, stored, read.value.type.shape, strict=True))


def block_axis(kernel: KernelOp) -> Symbol | None:
    """The axis along which a program computes a block. All nests are parallel over it, and each
    contraction reuses an operand along it. If there are several, the longest one."""
    products = [nest for nest in kernel.nests if is_contraction(nest)]
    extents = kernel.axes
    found = [a for a in common_rows(kernel) if all(reuses(nest, a) for nest in products)]
    return max(found, key=lambda a: extents[a].constant or 1 << 60, default=None)


def reuses(nest: NestOp, axis: Symbol) -> bool:
    """Whether a nest reads the same part of an operand at every position along an axis."""
    return any(all(axis not in e.symbols for e in map_) for map_ in nest.input_maps)
