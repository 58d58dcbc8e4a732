"""The plan of a straight host function as data: where buffers lie, the kernels, and the launches.

It can be written to a file and read back, and nothing here imports xDSL. `planning/plan.py` makes
it from the IR. A kernel also refers to its operation, from which code is made; one that was read
does not.

The memories are `constants`, filled once; the `arena` of a run, for the planned arena and for
buffers without a planned place; and the caller's inputs and outputs, each a memory of its own.
All offsets are multiples of 256 bytes. As data, a plan numbers its constants. Where they lie is
decided when it is loaded (`HostPlan.placed`), because that depends on their contents, and on what
the caller has on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from dialects.strata.array_type import ArrayType, read_size, size_facts
from dialects.symbolic.expr import Expr
from dialects.symbolic.expr_syntax import symbol_of
from dialects.symbolic.symbol import Symbol
from targets.communication import Exchange
from targets.cuda.errors import CudaError
from targets.cuda.runtime.constants import ConstantLayout, PlannedConstant
from targets.cuda.runtime.variants.alignment import aligning_sizes

if TYPE_CHECKING:
    from dialects.block import KernelOp
    from dialects.host import ForeignLaunchOp

_MOST = 2**31 - 1
"""The most programs of a CUDA launch, and the largest size that a kernel's 32-bit code can count.
"""


CONSTANTS, ARENA, RESIDENT, NUMBERED = -1, -2, -3, -4
"""Numbers of memories. Inputs are numbered from 0, and outputs follow them. A resident weight lies
in the caller's memory; its offset is its address. The offset of a numbered constant, which has no
place yet, is its number."""
_CONSTANT = (CONSTANTS, RESIDENT, NUMBERED)


@dataclass(frozen=True)
class Place:
    """Where a buffer lies: its memory, its offset there, and its size in bytes."""

    memory: int
    offset: Expr
    size: Expr

    def facts(self) -> list[Any]:
        """All fields, as JSON can represent them. Raises ValueError for an address."""
        if self.memory == RESIDENT:
            raise ValueError("a place in the caller's memory is known in this process only")
        return [self.memory, size_facts(self.offset), size_facts(self.size)]

    @staticmethod
    def read(facts: Sequence[Any]) -> Place:
        """The inverse of `facts`."""
        memory, offset, size = facts
        return Place(int(memory), read_size(offset), read_size(size))


@dataclass(frozen=True, eq=False)
class PlannedKernel:
    """What launches need to know of a kernel.

    `grid`: the extents of its programs, over its own sizes. `written`: the positions of the buffers
    that it writes. `overwrites`: the pairs of a buffer that it reads and one that it writes that
    may be the same memory. `library`: the form of a library call that replaces it, or empty.
    `operation`: what its code is made of; None for one that was read from a file.
    """

    name: str
    buffers: tuple[ArrayType, ...]
    size_names: tuple[Symbol, ...]
    grid: tuple[Expr, ...]
    written: frozenset[int]
    overwrites: frozenset[tuple[int, int]]
    library: str = ""
    counted: tuple[Symbol, ...] = ()
    """Sizes that code itself is given as numbers."""
    operation: KernelOp | ForeignLaunchOp | None = field(default=None, repr=False)

    @cached_property
    def strides(self) -> tuple[Symbol, ...]:
        """Sizes in strides. If 16 divides them, memory accesses can be wider."""
        used = aligning_sizes(self.buffers) | {*self.counted}
        return tuple(name for name in self.size_names if name in used)

    @cached_property
    def counts(self) -> tuple[Expr, ...]:
        """The element counts of buffers of symbolic size."""
        counts = [b.count for b in self.buffers]
        return tuple(dict.fromkeys(c for c in counts if c.constant is None))

    def facts(self) -> dict[str, Any]:
        """All fields but the operation, as JSON can represent them."""
        return {"name": self.name, "buffers": [b.facts() for b in self.buffers],
                "sizes": [s.text for s in self.size_names],
                "grid": list(map(size_facts, self.grid)),
                "written": sorted(self.written), "overwrites": sorted(map(list, self.overwrites)),
                "library": self.library, "counted": [s.text for s in self.counted]}

    @staticmethod
    def read(facts: Mapping[str, Any]) -> PlannedKernel:
        """The inverse of `facts`."""
        return PlannedKernel(
            str(facts["name"]), tuple(map(ArrayType.read, facts["buffers"])),
            tuple(map(symbol_of, facts["sizes"])), tuple(map(read_size, facts["grid"])),
            frozenset(map(int, facts["written"])),
            frozenset((int(a), int(b)) for a, b in facts["overwrites"]), str(facts["library"]),
            tuple(map(symbol_of, facts["counted"])))


@dataclass(frozen=True)
class KernelCall:
    """A kernel to launch. `sizes`: its size parameters as expressions of the host's sizes. `when`:
    0 at sizes of the host for which it is not launched; None: it always is."""

    kernel: PlannedKernel
    sizes: tuple[Expr, ...]
    node: str
    when: Expr | None = field(default=None, kw_only=True)

    @cached_property
    def symbols(self) -> frozenset[Symbol]:
        """The host's sizes on which it depends."""
        used = self.sizes if self.when is None else (*self.sizes, self.when)
        return frozenset[Symbol]().union(*(e.symbols for e in used))

    def happens(self, sizes: Mapping[Symbol, int]) -> bool:
        """Whether it is launched at these sizes of the host."""
        return self.when is None or self.when.evaluate(sizes) != 0

    @property
    def written(self) -> frozenset[int]:
        """The positions of the buffers that the kernel writes."""
        return self.kernel.written

    def size_values(self, sizes: Mapping[Symbol, int]) -> dict[Symbol, int]:
        """The values of the kernel's size parameters, for sizes of the host.

        Raises CudaError for a value that is too large for 32-bit code.
        """
        values = {name: int(e.evaluate(sizes))
                  for name, e in zip(self.kernel.size_names, self.sizes, strict=True)}
        for name, value in values.items():
            if value > _MOST:
                raise CudaError(f"the size {name} = {value} at node {self.node!r} is larger than "
                                f"{_MOST}, the most that kernels on CUDA can count")
        return values

    def extents(self, values: Mapping[Symbol, int]) -> list[int]:
        """The extents of the grid."""
        return [max(int(e.evaluate(values)), 0) for e in self.kernel.grid]

    def programs(self, values: Mapping[Symbol, int]) -> int:
        """How many programs the grid has, for values of the kernel's sizes; 0 if an extent is 0.

        Raises CudaError for too many programs.
        """
        count = prod(self.extents(values))
        if count > _MOST:
            raise CudaError(f"kernel @{self.kernel.name} would need {count} programs, "
                            f"more than CUDA's {_MOST}: choose larger tiles")
        return count


@dataclass(frozen=True)
class Launch(KernelCall):
    """A kernel launch on buffers."""

    buffers: tuple[Place, ...]

    @property
    def places(self) -> tuple[Place, ...]:
        return self.buffers

    def moved(self, at: Callable[[Place], Place]) -> Launch:
        """The same launch on buffers at other places."""
        return replace(self, buffers=tuple(map(at, self.buffers)))


@dataclass(frozen=True)
class Copy:
    """A copy of a buffer's bytes."""

    source: Place
    target: Place
    written: ClassVar[frozenset[int]] = frozenset([1])
    """Positions of the written places."""

    @property
    def places(self) -> tuple[Place, ...]:
        return self.source, self.target

    def moved(self, at: Callable[[Place], Place]) -> Copy:
        """The same copy between other places."""
        return Copy(at(self.source), at(self.target))


@dataclass(frozen=True)
class Collect:
    """A collective operation of several ranks: reads a buffer and writes another one."""

    exchange: Exchange
    source: Place
    target: Place
    written: ClassVar[frozenset[int]] = frozenset([1])
    """Positions of the written places."""

    @property
    def places(self) -> tuple[Place, ...]:
        return self.source, self.target

    def moved(self, at: Callable[[Place], Place]) -> Collect:
        """The same operation on buffers at other places."""
        return Collect(self.exchange, at(self.source), at(self.target))


@dataclass(frozen=True)
class RankLaunch(Launch):
    """A launch whose programs exchange tiles with other ranks."""

    exchange: Exchange = field(kw_only=True)


PlannedStep: TypeAlias = Launch | Copy | Collect


@dataclass
class HostPlan:
    """A module's host function: straight steps, on an arena of `arena` bytes, and its constants."""

    constants: list[PlannedConstant] = field(default_factory=list[PlannedConstant])
    inputs: list[ArrayType] = field(default_factory=list[ArrayType])
    outputs: list[ArrayType] = field(default_factory=list[ArrayType])
    steps: list[PlannedStep] = field(default_factory=list[PlannedStep])
    arena: Expr = field(default_factory=lambda: Expr.of(0))

    @property
    def launches(self) -> list[Launch]:
        return [s for s in self.steps if isinstance(s, Launch)]

    @property
    def kernels(self) -> list[PlannedKernel]:
        """The launched kernels, each once."""
        return list(dict.fromkeys(s.kernel for s in self.launches))

    @property
    def exchanges(self) -> list[Exchange]:
        """The collective operations, in order."""
        return [s.exchange for s in self.steps if isinstance(s, Collect | RankLaunch)]

    def placed(self, layout: ConstantLayout) -> HostPlan:
        """The plan with places for its constants."""
        places = list(map(layout.place, self.constants))

        def at(place: Place) -> Place:
            if place.memory != NUMBERED:
                return place
            is_resident, offset = places[int(place.offset.evaluate({}))]
            return replace(place, memory=RESIDENT if is_resident else CONSTANTS,
                           offset=Expr.of(offset))

        return replace(self, steps=[step.moved(at) for step in self.steps])

    # ------------------------------------------------------------------ files
    def facts(self) -> dict[str, Any]:
        """All fields, as JSON can represent them. Raises ValueError for weights in the caller's
        memory."""
        kernels = {kernel: number for number, kernel in enumerate(self.kernels)}
        return {"constants": [c.facts() for c in self.constants],
                "inputs": [t.facts() for t in self.inputs],
                "outputs": [t.facts() for t in self.outputs], "arena": size_facts(self.arena),
                "kernels": [kernel.facts() for kernel in kernels],
                "steps": [_step_facts(step, kernels) for step in self.steps]}

    @staticmethod
    def read(facts: Mapping[str, Any]) -> HostPlan:
        """The plan that `facts` describes, whose kernels have no operations."""
        kernels = list(map(PlannedKernel.read, facts["kernels"]))
        return HostPlan(
            list(map(PlannedConstant.read, facts["constants"])),
            list(map(ArrayType.read, facts["inputs"])),
            list(map(ArrayType.read, facts["outputs"])),
            [_read_step(step, kernels) for step in facts["steps"]], read_size(facts["arena"]))


def _step_facts(step: PlannedStep, kernels: Mapping[PlannedKernel, int]) -> list[Any]:
    places = [place.facts() for place in step.places]
    if isinstance(step, Copy):
        return places
    if isinstance(step, Collect):
        return [*places, step.exchange.facts()]
    launch = [places, kernels[step.kernel], list(map(size_facts, step.sizes)), step.node]
    if isinstance(step, RankLaunch):
        return [*launch, None, step.exchange.facts()]
    return launch if step.when is None else [*launch, size_facts(step.when)]


def _read_step(facts: Sequence[Any], kernels: Sequence[PlannedKernel]) -> PlannedStep:
    if len(facts) == 2:
        return Copy(*map(Place.read, facts))
    if len(facts) == 3:
        return Collect(Exchange.read(facts[2]), *map(Place.read, facts[:2]))
    places, kernel, sizes, node, *more = facts
    what = (kernels[int(kernel)], tuple(map(read_size, sizes)), str(node),
            tuple(map(Place.read, places)))
    if len(more) == 2:
        return RankLaunch(*what, exchange=Exchange.read(more[1]))
    return Launch(*what, when=read_size(more[0]) if more else None)


def constant_buffers(plan: HostPlan) -> dict[PlannedKernel, frozenset[int]]:
    """For each kernel that follows another step, the positions of the buffers that are constants in
    all of its launches."""
    found: dict[PlannedKernel, frozenset[int]] = {}
    preceded = {s.kernel for s in plan.steps[1:] if isinstance(s, Launch)}
    for step in plan.steps:
        if isinstance(step, Launch) and step.kernel in preceded:
            constants = frozenset(
                k for k, p in enumerate(step.buffers) if p.memory in _CONSTANT)
            found[step.kernel] = found.get(step.kernel, constants) & constants
    return found
