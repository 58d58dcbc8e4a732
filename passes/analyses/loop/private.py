"""What a kernel keeps for itself: values that nests read elsewhere than where they are made.

    %s = nest (i, j) outs([i, j])    %m = nest (i, reduce j) ins(%s[i, j])    the same place: a tile
                                     %e = nest (i, j1) ins(%s[i, j1])         elsewhere: kept

Nests that name an axis alike walk it together, so what one makes the next can take from registers.
A value that is read along another axis is complete by then: a program keeps its part of it in
memory of its own. Along the axes that its programs divide (the rows) nothing is read elsewhere.
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
    """Results of nests that a nest reads elsewhere than they are made, in order."""
    return [r for nest in kernel.nests for k, r in enumerate(nest.results)
            if any(is_elsewhere(read, nest.output_maps[k]) for read in reads_in(kernel, r))]


def reads_in(kernel: KernelOp, value: SSAValue) -> list[Read]:
    """Every read of a value by the kernel's nests, in order."""
    return [read for nest in kernel.nests for read in reads_of(nest) if read.value is value]


def is_elsewhere(read: Read, stored: Sequence[Expr]) -> bool:
    """Whether a read of a nest's result names other places than where that nest stores."""
    assert isinstance(read.value.type, TensorType)
    return any(a != b and size.constant != 1
               for a, b, size in zip(read.map, stored, read.value.type.shape, strict=True))


def block_axis(kernel: KernelOp) -> Symbol | None:
    """The axis of which a program takes a block: all nests have it in parallel, and each
    contraction uses an operand again for all of the block. Of several the longest."""
    products = [nest for nest in kernel.nests if is_contraction(nest)]
    extents = kernel.axes
    found = [a for a in common_rows(kernel) if all(reuses(nest, a) for nest in products)]
    return max(found, key=lambda a: extents[a].constant or 1 << 60, default=None)


def reuses(nest: NestOp, axis: Symbol) -> bool:
    """Whether a nest reads an operand again at every place along an axis."""
    return any(all(axis not in e.symbols for e in map_) for map_ in nest.input_maps)
