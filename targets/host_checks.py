"""Errors of host functions at run time, with the same words on every target.

Errors about sizes are worded in `dialects/strata/assumptions.py`. These functions take a node's
name, so they need no IR.
"""

from __future__ import annotations

MOST_BYTES = 2**47
"""More than any machine's memory. Sums of sizes up to this number cannot overflow."""


def memory_error(node: str, size: int) -> ValueError:
    """The error for an operation of a node that needs `size` bytes, which cannot be allocated."""
    count = "too many" if size > MOST_BYTES else str(size)
    return ValueError(f"there is not enough memory at node {node!r}, which needs {count} bytes")


def stack_error(node: str) -> ValueError:
    """The error for a loop whose iterations return values of different shapes to be stacked."""
    return ValueError(f"the values that the loop at node {node!r} stacks have different shapes")
