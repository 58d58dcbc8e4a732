"""Which values of a kernel are plain numbers in the ring, as the interpreters have it.

What comes from memory is a residue. Positions are not, nor are floats that become positions, such
as which pixel a resized image reads: that must stay a number of that size.
"""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from dialects import block as bl
from dialects.semantics.positions import enters_floats


def plain_values(kernel: bl.KernelOp) -> frozenset[SSAValue]:
    """The values of a kernel, and of its scalar bodies, that are plain numbers."""
    plain: set[SSAValue] = {a for a in kernel.body.block.args if a not in kernel.buffers}
    for op in kernel.walk():
        match op:
            case bl.ForOp():
                plain.add(op.counter)
            case bl.MapOp():
                _map(op, plain)
            case bl.IndexOp() | bl.ValidOp():
                if all(v in plain for v in op.operands):
                    plain.update(op.results)
            case bl.ConvertOp():
                if op.value in plain:
                    plain.add(op.result)
            case _:
                pass
    return frozenset(plain)


def _map(op: bl.MapOp, plain: set[SSAValue]) -> None:
    for argument, value in zip(op.body.block.args, op.inputs, strict=True):
        if value in plain:
            plain.add(argument)
    for inner in op.body.block.ops:
        if not isinstance(inner, bl.YieldOp) and _is_plain(inner, plain):
            plain.update(inner.results)
    plain.update(result for result, value in zip(op.results, op.yielded, strict=True)
                 if value in plain)


def _is_plain(op: Operation, plain: set[SSAValue]) -> bool:
    # literals are plain, too
    return all(v in plain for v in op.operands) and not enters_floats(op)
