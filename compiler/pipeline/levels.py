"""The levels and their contracts: which operations may appear in a module at each level.

A level's contract is data. The driver checks it at the end of each level, and uses the same data
to detect the level of a given text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from dialects.records import dataclass
from dialects.walking import walked


class ContractError(Exception):
    """A pass has left a module that its level does not allow."""


SCALARS = ("arith.*", "math.*")
"""Scalar operations in the bodies of nests and maps."""


@dataclass(frozen=True)
class Level:
    """A level and its contract.

    `operations` are name patterns, in which `*` matches any part of a name. If `tensor_operators`
    is true, all operations derived from `GraphOp` are allowed as well, whichever package defines
    them.
    """

    name: str
    description: str
    operations: tuple[str, ...]
    tensor_operators: bool = False
    after: str = ""
    """For a plugin's level: the level after which it comes."""
    steps: tuple[str, ...] = ()
    """For a plugin's level: the passes that lead to it, then those that run on it."""
    exits: tuple[str, ...] = ()
    """For a plugin's level: the passes that lead out of it, before those of the next level."""

    def allows(self, op: Operation) -> bool:
        if op.name in self.operations or any(
                fnmatchcase(op.name, pattern) for pattern in self.operations if "*" in pattern):
            return True
        return self.tensor_operators and _is_tensor_operator(op)


CONTROL = ("builtin.module", "strata.assume", "strata.require", "strata.size", "strata.if",
           "strata.loop", "strata.trap")
FUNCTION = (*CONTROL, "strata.func", "strata.return", "strata.call")
COLLECTIVES = tuple(f"graph.{kind}" for kind in (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast_ranks",
    "permute_ranks", "shard"))
"""Operations of several ranks, which stay between kernels until buffers exist."""
ENTRY_POINTS = ("strata.func", "host.func")
"""The functions of modules, on tensors and on buffers."""

LEVELS: tuple[Level, ...] = (
    Level("graph", "one operation is one tensor operator; tensors, sizes may be names",
          (*FUNCTION, "graph.*"), tensor_operators=True),
    Level("loop", "one operation is one nest: domain, index maps, scalar body; kernels of nests",
          (*FUNCTION, "graph.constant", "graph.foreign_kernel", *COLLECTIVES, "loop.*", *SCALARS)),
    Level("host", "buffers, constants and launches, around kernels of nests",
          (*CONTROL, "host.*", "loop.*", *SCALARS)),
    Level("block", "buffers and launches as before; a kernel is one program on tiles",
          (*CONTROL, "host.*", "block.*", *SCALARS)),
)
LEVEL_NAMES = tuple(level.name for level in LEVELS)


def strangers(module: Operation, level: Level) -> Counter[str]:
    """The operations that violate the level's contract, counted by name."""
    found: Counter[tuple[type[Operation], str]] = Counter()
    examples: dict[tuple[type[Operation], str], Operation] = {}
    for op in walked(module):
        kind = type(op), op.name
        found[kind] += 1
        examples.setdefault(kind, op)
    names: Counter[str] = Counter()
    for kind, count in found.items():
        if not level.allows(examples[kind]):
            names[kind[1]] += count
    return names


def check_functions(module: ModuleOp, level: Level) -> None:
    """Raise ContractError if the module has no function. Plugins' levels may have their own."""
    if level.after or any(op.name in ENTRY_POINTS for op in module.body.ops):
        return
    raise ContractError(f"the module has no function: it must keep its {' or '.join(ENTRY_POINTS)}")


def detect_level(module: Operation, levels: Sequence[Level] = LEVELS) -> Level | None:
    """The first level whose contract the module satisfies, or None."""
    return next((level for level in levels if not strangers(module, level)), None)


def _is_tensor_operator(op: Operation) -> bool:
    from dialects.graph.base import GraphOp

    return isinstance(op, GraphOp)
