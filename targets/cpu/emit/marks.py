"""What ends the lines of an operation's LLVM text: `, !dbg !20`, where places are asked for.

A place is the line of an operation in the kernel's text at block level, and the nodes of the model
that it stands for. An operation without nodes of its own has those of the operation around it.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Block, Operation

from dialects import block as bl
from dialects.text.syntax import location_names
from targets.cpu.llvm.places import Places
from targets.walking import operations


class Marks:
    """The marks of a kernel's operations; all are empty without `places`."""

    def __init__(self, kernel: bl.KernelOp, name: str, places: Places | None) -> None:
        self.function = ""
        self._marks: dict[Operation, str] = {}
        if places is None:
            return
        lines = operation_lines(kernel)
        everything = list(dict.fromkeys(
            n for op in (*lines, kernel) for n in location_names(op)))
        number = places.function(name, everything)
        self.function = f" !dbg !{number}"
        for op, line in {kernel: 1, **lines}.items():
            nodes = _nodes(op, kernel) or everything
            self._marks[op] = f", !dbg !{places.place(number, nodes, line)}"

    def of(self, op: Operation) -> str:
        """What ends the lines of an operation, or of the kernel as a whole."""
        return self._marks.get(op, "")


def _nodes(op: Operation, kernel: bl.KernelOp) -> Sequence[str]:
    """The nodes of an operation, or of the nearest one around it that has any."""
    while op is not kernel:
        if names := location_names(op):
            return names
        outer = op.parent_op()
        assert outer is not None
        op = outer
    return ()


def operation_lines(kernel: bl.KernelOp) -> dict[Operation, int]:
    """The line of each tile operation in the kernel's text, whose first line is its head."""
    found: dict[Operation, int] = {}
    _count(kernel.body.block, 2, found)
    return found


def _count(block: Block, line: int, found: dict[Operation, int]) -> int:
    """Number the operations of a block that starts at a line; returns the line behind them."""
    for op in operations(block):
        found[op] = line
        inner = op.body.block if isinstance(op, bl.ForOp) else None
        line = line + 1 + str(op).count("\n") if inner is None else (
            _count(inner, line + 1, found) + 2)  # its yield, and the brace
    return line
