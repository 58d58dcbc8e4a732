"""A walk over an operation and what it contains, in the order of the text.

xDSL's own walk is a chain of generators, one for each level of nesting, through all of which each
operation passes.
"""

from __future__ import annotations

from xdsl.ir import Operation


def walked(root: Operation) -> list[Operation]:
    """An operation and all operations inside it. The list does not change with them."""
    found = [root]
    if root.regions:
        _add_inner(root, found)
    return found


def _add_inner(root: Operation, found: list[Operation]) -> None:
    for region in root.regions:
        for block in region.blocks:
            op = block.first_op
            while op is not None:
                found.append(op)
                if op.regions:
                    _add_inner(op, found)
                op = op._next_op  # pyright: ignore[reportPrivateUsage]
