"""Which inputs of a kernel's call are constants of the model."""

from __future__ import annotations

from xdsl.ir import SSAValue

from dialects.graph import ConstantOp
from dialects.loop import ViewOp


def constant_source(value: SSAValue) -> ConstantOp | None:
    """The constant that a value is or is a view of; None if there is none."""
    owner = value.owner
    while isinstance(owner, ViewOp):
        owner = owner.source.owner
    return owner if isinstance(owner, ConstantOp) else None
