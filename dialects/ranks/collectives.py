"""What collective operations compute: the result of one rank from the operands of its group.

Operands are tensors of the same type on all ranks of a group.

| kind | result on each rank |
|---|---|
| all_reduce | the operands of all ranks, combined elementwise |
| all_gather | the operands of all ranks, one after another along the first dim |
| reduce_scatter | its part, along the first dim, of what all_reduce gives |
| all_to_all | of the operands of all ranks the parts for this rank, one after another |
| broadcast | the operand of the rank at position `root` of the group |
| permute | the operand of the rank that sends to this one; zeros if there is none |
| shard | this rank's part, along the first dim, of its own operand |

Combining begins with the first rank of the group. f16 and bf16 are combined in f32 and rounded
once. Nothing here imports xDSL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dialects.records import dataclass

if TYPE_CHECKING:
    from dialects.strata.types import Array

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = "all_reduce", "all_gather", "reduce_scatter"
ALL_TO_ALL, BROADCAST, PERMUTE = "all_to_all", "broadcast", "permute"
SHARD = "shard"
KINDS = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, BROADCAST, PERMUTE, SHARD)
REDUCTIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "sum": np.add, "avg": np.add, "product": np.multiply, "min": np.minimum, "max": np.maximum}


class Group(NamedTuple):
    """The ranks that take part together.

    `name`: that of a process group, or of the axes of a mesh. `parts`: all groups of that name,
    each with its ranks in order. They have equally many ranks.
    """

    name: str
    parts: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        return len(self.parts[0])

    @property
    def world(self) -> int:
        """The number of ranks that there must be."""
        return 1 + max(rank for part in self.parts for rank in part)

    def members(self, rank: int) -> tuple[int, ...]:
        """The part that a rank belongs to. Raises ValueError if it belongs to none."""
        for part in self.parts:
            if rank in part:
                return part
        raise ValueError(f"rank {rank} is in no group {self.name!r} of {list(self.parts)}")


@dataclass(frozen=True)
class Collective:
    """A collective operation as data.

    `reduction`: of all_reduce and reduce_scatter. `root`: of broadcast. `pairs`: of permute, which
    position of the group sends to which.
    """

    kind: str
    group: Group
    reduction: str = ""
    root: int = 0
    pairs: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        return f"{self.kind} in group {self.group.name!r}"

    def combine(self, arrays: Sequence[Array], place: int) -> Array:
        """The result at a position of the group, from the operands in the group's order."""
        match self.kind:
            case "all_reduce":
                return self._reduced(arrays)
            case "all_gather":
                return np.concatenate(arrays)
            case "reduce_scatter":
                return np.split(self._reduced(arrays), self.group.size)[place]
            case "all_to_all":
                return np.concatenate([np.split(a, self.group.size)[place] for a in arrays])
            case "broadcast":
                return arrays[self.root]
            case "shard":
                return np.split(arrays[place], self.group.size)[place]
            case _:
                source = self.source_of(place)
                return np.zeros_like(arrays[place]) if source is None else arrays[source]

    def source_of(self, place: int) -> int | None:
        """Of permute, the position that sends to this one."""
        return next((source for source, target in self.pairs if target == place), None)

    def _reduced(self, arrays: Sequence[Array]) -> Array:
        dtype = arrays[0].dtype
        with np.errstate(all="ignore"):
            total = reduce(REDUCTIONS[self.reduction], map(_widened, arrays))
            if self.reduction == "avg":
                total = total / total.dtype.type(self.group.size)
            return np.asanyarray(total).astype(dtype, copy=False)

    # ------------------------------------------------------------------ files
    def facts(self) -> list[Any]:
        """All fields, as JSON can represent them."""
        return [self.kind, self.group.name, [list(p) for p in self.group.parts], self.reduction,
                self.root, [list(p) for p in self.pairs]]

    @staticmethod
    def read(facts: Sequence[Any]) -> Collective:
        """The inverse of `facts`."""
        kind, name, parts, reduction, root, pairs = facts
        return Collective(
            str(kind), Group(str(name), tuple(tuple(map(int, p)) for p in parts)), str(reduction),
            int(root), tuple((int(a), int(b)) for a, b in pairs))


def _widened(array: Array) -> Array:
    """Floats of two bytes as f32."""
    is_half = array.dtype.itemsize == 2 and array.dtype.kind not in "iu"
    return array.astype(np.float32) if is_half else array
