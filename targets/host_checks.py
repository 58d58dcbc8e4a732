"""What goes wrong while a host function runs, in the same words on every target.

Sizes have their words where they are defined: `SizeOp.read` and `AssumeOp.check`.
"""

from __future__ import annotations

from xdsl.ir import Operation

from dialects.control import LoopOp
from dialects.syntax import location_name

MOST_BYTES = 2**47
"""No machine has more memory than this; sums of sizes up to here cannot wrap around."""


def memory_error(op: Operation, size: int) -> ValueError:
    """There is no memory of so many bytes for an operation."""
    count = "too many" if size > MOST_BYTES else str(size)
    return ValueError(f"there is not enough memory at node {location_name(op)!r}, "
                      f"which needs {count} bytes")


def stack_error(op: LoopOp) -> ValueError:
    """A loop's calls return values to be stacked that have different shapes."""
    return ValueError(f"the values that the loop at node {location_name(op)!r} stacks have "
                      "different shapes")
