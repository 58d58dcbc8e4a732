"""Counts instructions of innermost loops in assembly, as LLVM writes and comments it.

    .LBB1_5:
                    #   Parent Loop BB1_4 Depth=3
                    # =>  This Inner Loop Header: Depth=4
        vmovups (%rsp), %ymm0        # 32-byte Reload
        jle .LBB1_7
    # %bb.6:
                    #   in Loop: Header=BB1_5 Depth=4
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from targets.cpu.build import worker
from targets.cpu.machine import Machine

_BLOCK = re.compile(r"\.L(BB\w+):|# %bb\.")
_INSIDE = re.compile(r"in Loop: Header=(\w+) ")
_SPILL = re.compile(r"# .*(Spill|Reload)$")


@dataclass(frozen=True)
class Loops:
    """The innermost loops of a text: their number, their instructions, and how many of these write
    or read what has no register."""

    count: int
    instructions: int
    spills: int


@dataclass
class _Block:
    label: str
    lines: list[str] = field(default_factory=list[str])

    @property
    def is_header(self) -> bool:
        return any("Inner Loop Header:" in line for line in self.lines)

    @property
    def header(self) -> str:
        """The header of the loop that holds it; itself, if it is one."""
        found = (match[1] for line in self.lines if (match := _INSIDE.search(line)))
        return self.label if self.is_header else next(found, "")


def commented_assembly(text: str, machine: Machine) -> str:
    """The assembly of an LLVM text, with LLVM's comments on loops and spilled registers."""
    maker = worker.target_machine.__wrapped__(machine.cpu, machine.attributes)
    maker.set_asm_verbosity(True)
    return maker.emit_assembly(worker.parse(text, machine.cpu, machine.attributes))


def innermost_loops(text: str) -> Loops:
    blocks = list(_blocks(text))
    headers = {block.label for block in blocks if block.is_header}
    lines = [line for block in blocks if block.header in headers for line in block.lines
             if _is_instruction(line)]
    return Loops(len(headers), len(lines), sum(bool(_SPILL.search(line)) for line in lines))


def _blocks(text: str) -> Iterator[_Block]:
    block = _Block("")
    for line in text.splitlines():
        if begin := _BLOCK.match(line):
            yield block
            block = _Block(begin[1] or "")
        block.lines.append(line)
    yield block


def _is_instruction(line: str) -> bool:
    return line.startswith("\t") and not line.startswith(("\t.", "\t#"))
