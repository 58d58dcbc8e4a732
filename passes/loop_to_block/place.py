"""A point of the program: where operations are being added, and what is known there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from dialects.block import IndexOp, ValidOp
from dialects.loop import KernelOp as LoopKernelOp
from dialects.loop import NestOp
from dialects.records import dataclass
from dialects.strata.schedule import Schedule
from dialects.strata.schedule_options import DOT, ONLINE
from dialects.strata.types import TensorType
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import set_location
from passes.analyses.loop.online import running_maximum
from passes.loop_to_block.access import leaves, store
from passes.loop_to_block.compute import (
    Decided,
    is_gathered_dot,
    is_guarded_dot,
    lies_in_matrices,
)
from passes.loop_to_block.private import Kept
from passes.loop_to_block.state import AxisState, Layout, Sums, Symbols, Tile, tiled
from passes.rewrites.loop.nests import Read, gathered_inputs


@dataclass
class Scope:
    """Tiles computed inside one loop body; dropped at its end."""

    loads: dict[object, dict[float | bool, Tile]] = field(
        default_factory=dict[object, dict[float | bool, Tile]])
    """Per read, and per value that the read gave to masked positions."""
    results: dict[SSAValue, Tile] = field(default_factory=dict[SSAValue, Tile])
    factors: dict[tuple[NestOp, int], Tile] = field(
        default_factory=dict[tuple[NestOp, int], Tile])
    """Inputs of products, by number, that were loaded before the loops that use them: factors, and
    the indices that say where factors are."""
    operands: dict[object, Tile] = field(default_factory=dict[object, Tile])
    """Per read, a tile that was loaded as a factor of a product of whole tiles."""


class Place:
    """What is known and computed at the point of insertion; the levels move that point around."""

    def __init__(self, kernel: LoopKernelOp, schedule: Schedule, groups: Symbol | None = None):
        self.schedule, self.lanes = schedule, schedule.lanes
        self.layout = Layout(schedule.lanes, schedule.group)
        self.groups = groups
        """The axis of which online sums have a maximum for each position of a tile."""
        self.states = {name: AxisState(Expr.of(0), extent, extent)
                       for name, extent in kernel.axes.items()}
        self.symbols = Symbols()
        self.scopes = [Scope()]
        self.open: dict[NestOp, Tile] = {}
        """Open reductions, and their accumulators."""
        last = {x.axis: k for k, x in enumerate(schedule.levels)}
        self.order = sorted(self.states, key=lambda a: (a == self.lanes, last.get(a, 0)))
        """Axes in the order in which they are dims of tiles; lanes last."""
        self.source: Operation = kernel
        self.block = Block()
        self.buffers: dict[SSAValue, SSAValue] = {}
        self.outputs: dict[SSAValue, list[BlockArgument]] = {}
        self.kept: dict[SSAValue, Kept] = {}
        """Values in private memory of the program."""
        self.sums: dict[SSAValue, Sums] = {}
        """Sums of the current rows that were computed in matrix registers."""
        asked = schedule.option(ONLINE)
        found = {n: running_maximum(n) for n in kernel.nests} if asked else {}
        self.online = {nest: running for nest, running in found.items() if running is not None}
        """Sums that are online: they follow a running maximum."""
        self.decided: Decided = dict[Operation, SSAValue]()
        self.ended = set[Symbol]()
        """Axes of which bodies themselves leave out what is beyond the end."""
        """Selections whose outcome is known at this point."""

    def add(self, op: Operation) -> Operation:
        set_location(op, self.source)
        self.block.add_op(op)
        return op

    def find(self, value: SSAValue) -> Tile | None:
        return next((s.results[value] for s in reversed(self.scopes) if value in s.results), None)

    def publish(self, nest: NestOp, result: SSAValue, tile: Tile) -> None:
        """Make a finished tile available to later nests, and store it if it is a result."""
        tile.value.name_hint = result.name_hint
        self.scopes[-1].results[result] = tile
        map_ = nest.stored_at(result)
        for buffer in self.outputs.get(result, ()):
            self.add(store(tile, buffer, map_, self.states, self.symbols))
        if result in self.kept:
            self.add(self.kept[result].store(tile, self.states, self.symbols))

    def index_tile(self, expr: Expr, dims: Sequence[Symbol], read: Sequence[Tile]) -> Tile:
        """A tile of an index expression over axes and gathered inputs; `read`: all inputs."""
        gathered = {Symbol.gathered(k): read[k] for k in gathered_inputs([expr])}
        axes = {s for s in expr.symbols if s in self.states}
        own = tiled(axes.union(*(tile.axes for tile in gathered.values())), self.states, dims)
        values = {a: s.origin + Expr.place(own.index(a)) if a in own else s.origin
                  for a, s in self.states.items() if s.origin is not None}
        values |= {name: self.symbols.gathered(tile) for name, tile in gathered.items()}
        exprs, operands, places = self.symbols.refer([expr.substitute(values)], own)
        lanes = own.index(self.lanes) if self.lanes in own else None
        op = IndexOp.of(exprs[0], operands, [self.states[a].tile for a in own], lanes, places)
        return Tile(self.add(op).results[0], tuple(own))

    def mask(self, axis: Symbol) -> Tile:
        """Which positions of the axis's tile lie inside the axis."""
        state = self.states[axis]
        assert state.origin is not None
        size = state.tile
        at = state.origin + (Expr.place(0) if size > 1 else 0)
        exprs, operands, _ = self.symbols.refer([at, state.end], [])
        shape = [size] if size > 1 else []
        lanes = 0 if axis == self.lanes and shape else None
        group = 0 if axis == self.layout.group and shape else None
        op = ValidOp.of(exprs[0], exprs[1], operands, shape, lanes, group)
        return Tile(self.add(op).results[0], (axis,) if shape else ())

    def leaves(self, read: Read, axis: Symbol) -> bool:
        """Whether a read returns its load's padding from the end of an axis on."""
        assert isinstance(read.value.type, TensorType)
        return leaves(read.map, read.value.type.shape, axis, self.states)

    def layout_of(self, nest: NestOp) -> Layout:
        """The layout of the tiles that a sum of products needs."""
        in_matrices = lies_in_matrices(nest, self.schedule)
        return Layout(None, None, matrix=True) if in_matrices else self.layout

    def uses_dot(self, nest: NestOp) -> bool:
        chosen = {self.layout.group, *self.schedule.matrix} & {a.name for a in nest.reduce_axes}
        if self.schedule.option(DOT) and is_guarded_dot(nest):
            return True
        return (bool(chosen) or self.schedule.option(DOT)) and (
            is_gathered_dot(nest))

    def folded(self, nest: NestOp) -> set[Symbol]:
        """Reduce axes whose tiles are reduced in every step, so that accumulators lack them."""
        summed = {a.name for a in nest.reduce_axes}
        if nest in self.online or self.is_followed(nest) or nest.is_scan:
            return {a for a in summed if a != self.groups}
        kept = {None, self.layout.lanes, self.layout.group, *self.schedule.matrix}
        return set() if self.lanes is None else summed - kept

    def is_followed(self, nest: NestOp) -> bool:
        """Whether online sums follow the maximum that this nest computes."""
        return any(r.maximum is nest.results[0] for r in self.online.values())
