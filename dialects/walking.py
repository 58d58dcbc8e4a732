"""Walks over blocks and over all that an operation contains, in the order of the text.

xDSL's own walk is a chain of generators, one for each level of nesting, through all of which each
operation passes, and its iterators over blocks and operations run Python code at each step.
"""

from __future__ import annotations

from xdsl.ir import Block, Operation


def walked(root: Operation) -> list[Operation]:
    """An operation and all operations inside it. The list does not change with them."""
    found = [root]
    if root.regions:
        _add_inner(root, found)
    return found


def _add_inner(root: Operation, found: list[Operation]) -> None:
    for region in root.regions:
        block = region.first_block
        while block is not None:
            op = block.first_op
            while op is not None:
                found.append(op)
                if op.regions:
                    _add_inner(op, found)
                op = op._next_op  # pyright: ignore[reportPrivateUsage]
            block = block.next_block


def listed(block: Block) -> list[Operation]:
    """The operations of a block. The list does not change with them."""
    found: list[Operation] = []
    op = block.first_op
    while op is not None:
        found.append(op)
        op = op._next_op  # pyright: ignore[reportPrivateUsage]
    return found
