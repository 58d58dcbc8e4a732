"""Tiles that the hardware copies (TMA) between matrices in memory and shared memory.

A tile lies along two dims of a buffer, at a fixed index of each other dim. Elements outside the
buffer are read as zeros and not written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from xdsl.ir import Attribute, SSAValue

from dialects.block import LoadOp, StoreOp
from dialects.strata import types as t
from dialects.strata.types import buffer_type
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from targets.cuda.emit.context import Context
from targets.cuda.emit.scalar import NATIVE_FLOATS
from targets.cuda.emit.values import NATIVE_POINTERS, dtype_text, pointer_type
from targets.cuda.errors import EmitError

PITCH = 16
"""The bytes of a row of a matrix must be a multiple of this."""
RANK = 5
"""The highest rank of a buffer whose tiles can be copied."""
SWIZZLES = (128, 64, 32)
"""Sizes in bytes of the swizzle, which lets columns be read without bank conflicts."""


@dataclass(frozen=True)
class Rectangle:
    """A tile of a buffer in memory, `transposed` if the tile's first dim is contiguous.

    `box`: its extents along the buffer's dims, which are 1 except for two of them, one being the
    last. `origin`: the position of its first element, without the tile's own positions, in terms of
    `indices` as `%0`, `%1` ....
    """

    buffer: SSAValue
    box: tuple[int, ...]
    origin: tuple[Expr, ...]
    indices: tuple[SSAValue, ...]
    extents: tuple[int, int]
    transposed: bool

    @property
    def width(self) -> int:
        """The bytes of an element."""
        return t.byte_width(buffer_type(self.buffer).element)

    @property
    def bytes(self) -> int:
        return prod(self.box) * self.width

    @property
    def swizzle(self) -> int:
        """The largest swizzle that fits. Raises EmitError for rows that are too short."""
        row = self.extents[1] * self.width
        found = next((s for s in SWIZZLES if row % s == 0), None)
        if found is None:
            raise EmitError(f"tiles with rows of {row} bytes cannot be copied by TMA: choose "
                            "larger tiles")
        return found

    def place(self, context: Context) -> list[str]:
        """The indices of its first element."""
        return [v.text for v in context.indices(self.origin, (), self.indices)]


def rectangle(op: LoadOp | StoreOp, shape: Sequence[int]) -> Rectangle | None:
    """The tile that an operation loads or stores, if TMA can copy it; `extents` in memory order."""
    type_ = buffer_type(op.buffer)
    if not 2 <= type_.rank <= RANK or len(shape) != 2 or any(d.data for d in op.index_dims.data):
        return None
    pitch = type_.shape[-1].constant
    if pitch is None or pitch * t.byte_width(type_.element) % PITCH:
        return None
    places = (Symbol.place(0), Symbol.place(1))
    along: dict[int, int] = {}
    for dim, name in enumerate(places):
        found = [k for k, e in enumerate(op.exprs) if name in e.symbols]
        if len(found) == 1:
            along[found[0]] = dim
    origin = [e - Expr.place(along[k]) if k in along else e
              for k, e in enumerate(op.exprs)]
    if len(along) != 2 or type_.rank - 1 not in along or any(
            e.symbols & {*places} for e in origin):
        return None
    first, second = (along[k] for k in sorted(along))
    return Rectangle(
        op.buffer, tuple(shape[along[k]] if k in along else 1 for k in range(type_.rank)),
        tuple(origin), tuple(op.indices), (shape[first], shape[second]), first > second)


@dataclass(frozen=True)
class Copied:
    """Such a tile, and the shared memory that it is copied to or from."""

    tile: Rectangle
    memory: str

    @property
    def layout(self) -> str:
        return (f"NVMMASharedLayout(swizzle_byte_width={self.tile.swizzle}, "
                f"element_bitwidth={8 * self.tile.width}, rank={len(self.tile.box)})")

    @property
    def element(self) -> Attribute:
        return buffer_type(self.tile.buffer).element

    @property
    def pointer(self) -> str:
        """The type of the tensor map parameter that describes the matrix."""
        element = NATIVE_POINTERS.get(self.element) or pointer_type(self.element)
        return f"tensordesc<{element[1:]}{list(self.tile.box)},{self.layout}>"

    def allocation(self, count: int) -> str:
        element = (NATIVE_FLOATS.get(self.element) or dtype_text(self.element))
        return (f"{self.memory} = gl.allocate_shared_memory({element}, "
                f"{[count, *self.tile.box]}, gl.{self.layout})")

    def matrix(self, number: str) -> str:
        """A tile in shared memory, with two dims in memory order."""
        flat = f".reshape({list(self.tile.extents)})" if len(self.tile.box) > 2 else ""
        return f"{self.memory}.index({number}){flat}"

    def factor(self, number: str) -> str:
        """A tile in the orientation that a product needs."""
        return self.matrix(number) + ".permute((1, 0))" * self.tile.transposed
