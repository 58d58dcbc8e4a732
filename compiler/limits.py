"""Rejects tensors that no machine can hold before anything is allocated.

Sizes may come from a broken file. A dim of 2**62 must be an immediate error that names the node,
not a failing allocation or, worse, one that succeeds.
"""

from __future__ import annotations

from math import prod

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Operation

from compiler.diagnostics import Problem, StrataError
from dialects.strata.types import BufferType, TensorType, byte_width
from dialects.text.syntax import location_name
from dialects.walking import walked

MAX_BYTES = 2**46
"""The limit of one tensor: less than the address space of a process."""


def check_limits(module: ModuleOp, model: str, level: str) -> None:
    """Raise StrataError naming every node whose results no machine can hold.

    Only constant sizes are considered; symbolic sizes are checked at each call.
    """
    problems: list[Problem] = []
    for op in walked(module):
        types = [*(r.type for r in op.results), *(a.type for r in op.regions for b in r.blocks
                                                  for a in b.args)]
        faults = [fault for type_ in types if (fault := _fault(type_))]
        problems += [Problem(fault, _place(op), level) for fault in dict.fromkeys(faults)]
    if problems:
        raise StrataError(f"{model} has tensors of impossible sizes", problems)


def _place(op: Operation) -> str:
    return location_name(op) or op.name


def _fault(type_: Attribute) -> str:
    """The problem with a type's sizes, or an empty string."""
    if not isinstance(type_, (TensorType, BufferType)):
        return ""
    sizes = [s.constant for s in type_.shape if s.constant is not None]
    if min(sizes, default=0) < 0:
        return f"{type_.short} has a negative size"
    count = prod(max(size, 1) for size in sizes)
    needed = count * byte_width(type_.element)
    if needed <= MAX_BYTES:
        return ""
    return (f"{type_.short} has {needed} bytes or strides as long; at most {MAX_BYTES} bytes "
            f"({MAX_BYTES >> 40} TiB) are taken")
