"""Kernels as Triton source: what is compiled, and what a launch needs to know of it, as plain data.

`targets/cuda/emit` makes it from block kernels. Nothing here imports xDSL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import prod
from typing import Any

NARROW_ELEMENTS = 2**31 - 2**24
"""The most elements of a buffer whose offsets are computed with 32 bits. Ends of tiles and sizes
rounded up to whole tiles, which lie a little beyond the last element, have 32 bits, too."""

HEADER = "import triton\nimport triton.language as tl\n"
GLUON_HEADER = """\
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait)

# Triton 3.6 has other names than later versions
tma_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
tma_store = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global
"""


@dataclass(frozen=True)
class KernelSource:
    """A kernel as Triton source.

    `text` is a complete module that defines the function `name`: imports, the functions that it
    calls (`helpers`), and its own `code`. `signature` lists its parameters as pairs of a name and a
    Triton type: pointers in the order of the buffers, then sizes as i32.
    """

    name: str
    helpers: tuple[str, ...]
    code: str
    signature: tuple[tuple[str, str], ...]
    warps: int
    stages: int
    registers: int = 0
    """The most registers that a thread may use; 0: no limit."""
    groups: int = 0
    """In warp-specialized kernels, the number of consumer warp groups, each with a tile of its own
    (`emit/specialized/`); 0: every program has one tile."""
    row_axis: int = 0
    """The grid axis along which the tiles of a program's groups lie."""
    stays: bool = False
    """Whether the kernel is persistent: each program computes several tiles."""
    waits: bool = False
    """Whether the kernel itself waits for the one before it (programmatic dependent launch)."""
    spread: bool = False
    """Whether the axes of the grid are those of the launch; else its programs are numbered."""
    spare: int = 0
    """The multiprocessors that a persistent kernel leaves to others."""

    def programs(self, extents: Sequence[int], at_once: int) -> int:
        """How many programs to launch for a grid; a persistent kernel has at most `at_once`."""
        columns = list(extents)
        if self.groups:
            columns[self.row_axis] = -(-columns[self.row_axis] // self.groups)
        programs = prod(columns)
        return min(programs, max(1, at_once - self.spare)) if self.stays else programs

    @property
    def pointers(self) -> tuple[int, ...]:
        """The positions of its pointers."""
        return tuple(k for k, (_, kind) in enumerate(self.signature) if kind.startswith("*"))

    @property
    def text(self) -> str:
        return module_text([self])

    @property
    def without_code(self) -> KernelSource:
        """What launches need of it, once it is compiled."""
        return replace(self, helpers=(), code="")

    # ------------------------------------------------------------------ files
    def facts(self) -> dict[str, Any]:
        """All fields, as JSON can represent them."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @staticmethod
    def read(facts: Mapping[str, Any]) -> KernelSource:
        """The inverse of `facts`."""
        return KernelSource(
            str(facts["name"]), tuple(map(str, facts["helpers"])), str(facts["code"]),
            tuple((str(name), str(type_)) for name, type_ in facts["signature"]),
            *(int(facts[name]) for name in ("warps", "stages", "registers", "groups", "row_axis")),
            stays=bool(facts["stays"]), waits=bool(facts["waits"]),
            spread=bool(facts["spread"]), spare=int(facts["spare"]))


def module_text(sources: Sequence[KernelSource]) -> str:
    """One module with several kernels; functions that they share appear once."""
    helpers = dict.fromkeys(h for s in sources for h in s.helpers)
    header = HEADER + (GLUON_HEADER if any(s.groups for s in sources) else "")
    return "\n\n".join([header, *helpers, *(s.code for s in sources)])
