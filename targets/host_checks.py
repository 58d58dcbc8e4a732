"""What goes wrong while a host function runs, in the same words on every target.

Sizes have their words in `dialects/strata/assumptions.py`. Nodes are named, so no IR is needed.
"""

from __future__ import annotations

MOST_BYTES = 2**47
"""No machine has more memory than this; sums of sizes up to here cannot wrap around."""


def memory_error(node: str, size: int) -> ValueError:
    """There is no memory of so many bytes for an operation of a node."""
    count = "too many" if size > MOST_BYTES else str(size)
    return ValueError(f"there is not enough memory at node {node!r}, which needs {count} bytes")


def stack_error(node: str) -> ValueError:
    """The calls of a node's loop return values to be stacked that have different shapes."""
    return ValueError(f"the values that the loop at node {node!r} stacks have different shapes")
