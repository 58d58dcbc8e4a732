"""Addresses and conditions of a load or store, for each position of its tile.

An access has one index expression per buffer dim. At one position of the tile (with the dims that
are not in lanes fixed) the element offset is `base + coefficient * lane`, or any other function of
the lane (a gather). What does not depend on the lane is computed once, as far out as possible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from operator import mul
from typing import Literal, NamedTuple

from xdsl.ir import Attribute

from dialects.records import dataclass
from dialects.strata import types as t
from dialects.strata.types import TileType
from dialects.symbolic.expr import Call, Expr
from dialects.symbolic.remembered import computed_once
from dialects.symbolic.symbol import Symbol
from targets.cpu.emit.index import Indices, iota
from targets.cpu.emit.values import (
    Chunk,
    Reg,
    Tile,
    lane_literal,
    llvm_type,
    memory_type,
    unrolled_dims,
)
from targets.cpu.llvm.operands import Number, is_literal, register
from targets.cpu.llvm.writer import Writer

_NO_LANES = Symbol.counter("@no_lanes")

_FAR = 1 << 30
"""Distances are compared in 32 bits, clamped to this, unless a lane is farther from its origin."""


class Buffer(NamedTuple):
    """A buffer in memory: its base pointer, and its sizes and strides over LLVM names."""

    pointer: str
    element: Attribute
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]


class Point(NamedTuple):
    """An access at one position: the index in each checked dim, the flat offset, and what differs
    per lane."""

    where: Mapping[int, Expr]
    flat: Expr
    vectors: Mapping[Symbol, tuple[Tile, tuple[int, ...]]]

    @property
    def is_gathered(self) -> bool:
        """Whether the offset depends on an index that differs per lane."""
        return bool(self.vectors) and bool(self.flat.symbols & self.vectors.keys())


Mask = str | Literal[False] | None
"""A vector or scalar of booleans; None: all true; False: all false."""


@dataclass
class Access:
    """One load or store: `where` over LLVM names, with `t0`... and `%0`... for tiles of indices."""

    writer: Writer
    indices: Indices
    buffer: Buffer
    where: tuple[Expr, ...]
    type: TileType
    checks: Sequence[int]
    tiles: Mapping[Symbol, tuple[Tile, tuple[int, ...]]]

    def __post_init__(self) -> None:
        pairs = zip(self.where, self.buffer.strides, strict=True)
        self.flat = _rejoined(sum((w * s for w, s in pairs), Expr.of(0)))
        """The offset in elements from the buffer's start."""
        self._dims = unrolled_dims(self.type)
        lanes = self.type.lanes
        self.lane_symbol = _NO_LANES if lanes is None else Symbol.place(lanes)
        """The place along the dim in lanes; without such a dim, a symbol that no expression has."""
        self._split = self._constant_distances()
        self._steps: dict[int, int | None] = {}

    def moved(self, where: tuple[Expr, ...]) -> Access | None:
        """This access at indices that differ in constants only; None if they differ otherwise.

        Those of the copies of an unrolled loop do, so that what is known of one serves all.
        """
        if self.tiles or not all(
                a.without_constant is b.without_constant
                for a, b in zip(where, self.where, strict=True)):
            return None
        distance = sum((s * (a.offset - b.offset) for a, b, s in zip(
            where, self.where, self.buffer.strides, strict=True) if a is not b), Expr.of(0))
        made = copy(self)
        made.where, made.flat = where, self.flat + distance
        if self._split is not None:
            made._split = self._split[0], self._split[1] + distance
        if distance.constant is None:
            vars(made).pop("_along_lanes", None)
        return made

    def _constant_distances(self) -> tuple[list[int], Expr] | None:
        """For each dim not in lanes the distance of neighbours; and the offset without these terms.

        None if a distance is not constant, or differs between positions.
        """
        symbols = [Symbol.place(d) for d in self._dims]
        split = self.flat.linear(symbols)
        if split is None or self.tiles:
            return None
        distances = [split[0].get(s, Expr.of(0)).constant for s in symbols]
        if any(d is None for d in distances):
            return None
        return [d or 0 for d in distances], split[1]

    def merged(self) -> Access:
        """The same elements as a tile whose grouped dim is merged into the dim in lanes.

            tile<6x{4}x[64]xi8> at [.., t0, t2, t1]  ->  tile<6x[256]xi8> at [.., t0, t1 floordiv 4,
                                                                              t1 mod 4]
        """
        type_ = self.type
        if type_.group is None:
            return self
        last, each = Expr.place(len(self._dims)), type_.shape[type_.group]
        places = {Symbol.place(d): Expr.place(k) for k, d in enumerate(self._dims)}
        places[Symbol.place(type_.group)] = last % each if type_.lanes is not None else last
        places[self.lane_symbol] = last // each
        lanes = 1 if type_.lanes is None else type_.shape[type_.lanes]
        shape = [*(type_.shape[d] for d in self._dims), each * lanes]
        return replace(self, where=tuple(w.substitute(places) for w in self.where),
                       type=t.tile(type_.element, shape, len(self._dims)))

    # ------------------------------------------------------------------ one position
    def at(self, position: tuple[int, ...]) -> Point:
        """Fix the dims that are not in lanes, and the values of index tiles without lanes."""
        if self._split is not None and not self.checks:
            distances, rest = self._split
            return Point({}, rest + sum(map(mul, distances, position)), {})
        fixed: dict[Symbol, Expr] = {Symbol.place(d): Expr.of(p)
                                  for d, p in zip(self._dims, position, strict=True)}
        vectors: dict[Symbol, tuple[Tile, tuple[int, ...]]] = {}
        place = dict(zip(self._dims, position, strict=True))
        for symbol, (tile, dims) in self.tiles.items():
            if tile.type.lanes is None:
                reg = tile.reg(tuple(place[d] for d in dims))
                fixed[symbol] = self._scalar_index(reg)
            else:
                vectors[symbol] = (tile, tuple(place[d] for d in dims if d in place))
        where = {d: self.where[d].substitute(fixed) for d in self.checks}
        return Point(where, self.flat.substitute(fixed), vectors)

    def _scalar_index(self, reg: Reg) -> Expr:
        wide = widen_index(self.writer, reg).name
        return Expr.of(wide.value) if isinstance(wide, Number) else Expr.symbol(register(wide))

    def lane_vectors(self, point: Point, number: int, chunk: Chunk) -> dict[Symbol, Reg]:
        """The symbols that differ per lane, as vectors of i64, for one chunk."""
        vectors = {self.lane_symbol: Reg.of(iota(chunk.width, chunk.offset), t.index, chunk.width)}
        for symbol, (tile, place) in point.vectors.items():
            vectors[symbol] = widen_index(self.writer, tile.reg(place, number))
        return vectors

    def lane_step(self, point: Point) -> int | None:
        """The constant distance of neighbouring lanes in elements; None if it is not constant."""
        if point.is_gathered:
            return None
        if not point.where and self._along_lanes is not None:
            return self._along_lanes[0]
        split = point.flat.linear([self.lane_symbol])
        if split is None:
            return None
        coefficient = split[0].get(self.lane_symbol)
        return 0 if coefficient is None else coefficient.constant

    def lane_distances(self, point: Point, chunk: Chunk) -> list[int] | None:
        """The distance of each lane from the first one of a chunk where all are constant, none
        negative, and less than twice the lanes; unused lanes are where the last used one is."""
        if point.is_gathered or chunk.width < 2:
            return None
        first = point.flat.substitute({self.lane_symbol: Expr.of(chunk.offset)})
        found: list[int] = []
        for lane in range(chunk.valid):
            here = point.flat.substitute({self.lane_symbol: Expr.of(chunk.offset + lane)})
            distance = (here - first).constant
            if distance is None or not 0 <= distance < 2 * chunk.width:
                return None
            found.append(distance)
        return found + found[-1:] * (chunk.width - chunk.valid)

    @computed_once
    def _along_lanes(self) -> tuple[int, Expr] | None:
        """The distance of neighbouring lanes, and the offset without that term and its constant.

        Both are the same at every position. None unless positions and lanes are at constant
        distances.
        """
        if self._split is None:
            return None
        rest = self._split[1]
        split = rest.linear([self.lane_symbol])
        step = None if split is None else split[0].get(self.lane_symbol, Expr.of(0)).constant
        return None if split is None or step is None else (step, split[1] - split[1].offset)

    def lane_pointer(self, point: Point, lane: int) -> str:
        """The address of one lane's element; without lanes, of the only element."""
        if not point.where and self._along_lanes is not None:
            step, rest = self._along_lanes
            return self._pointer(rest, point.flat.offset + step * lane)
        return self.pointer(point.flat.substitute({self.lane_symbol: Expr.of(lane)}))

    def step_along(self, dim: int) -> int | None:
        """The distance of neighbours along a tile dim if it is constant everywhere; else None."""
        if dim not in self._steps:
            split = self.flat.linear([Symbol.place(dim)])
            self._steps[dim] = None if split is None else (
                split[0].get(Symbol.place(dim), Expr.of(0)).constant)
        return self._steps[dim]

    # ------------------------------------------------------------------ addresses
    @property
    def start(self) -> str:
        """The address of the tile's first element."""
        return self.pointer(self.at((0,) * len(self._dims)).flat)

    def pointer(self, offset: Expr) -> str:
        """The address of the element at a flat offset that does not depend on the lane."""
        constant = offset.offset
        return self._pointer(offset - constant if constant else offset, constant)

    def _pointer(self, variable: Expr, constant: int) -> str:
        """The address at the sum of a constant and an offset without one."""
        element = memory_type(self.buffer.element)
        kind = "getelementptr" if self.checks else "getelementptr inbounds"
        known = self.writer.computed
        key = (self.buffer.pointer, kind, element, self.type.lanes is None, self.writer.depth,
               variable)
        name = known.get(key)
        if name is None:
            name = known[key] = self._origin(kind, element, variable)
        if constant:
            name = self.writer.local(f"{kind} {element}, ptr {name}, i64 {constant}")
        return name

    def _origin(self, kind: str, element: str, offset: Expr) -> str:
        """The address of an offset without its constant, with each part computed in its own scope.

        In a loop the address goes through an empty `asm`. Otherwise LLVM's loop strength reduction
        would compare all constant distances from it in pairs, for most of the compile time. A
        single element at an offset from data has no such distances.
        """
        name = self.buffer.pointer
        for _, part in self.indices.parts(offset):
            distance = self.indices.scalar(part)
            name = self.writer.hoist(f"{kind} {element}, ptr {name}, i64 {distance}",
                                     name, distance)
        is_single = self.type.lanes is None and not offset.symbols <= self.indices.lower.keys()
        if not is_single and self.writer.depths.get(name) == self.writer.depth > 1:
            name = self.writer.local(f'call ptr asm "", "=r,0"(ptr {name})')
        return name

    def lane_pointers(self, point: Point, number: int, chunk: Chunk) -> str:
        """One address per lane, for gather and scatter."""
        vectors = self.lane_vectors(point, number, chunk)
        fixed = [term for term in point.flat.terms
                 if not Expr((term,)).symbols & vectors.keys()]
        base = self.pointer(Expr(tuple(fixed)))
        offsets = self.indices.vector(point.flat - Expr(tuple(fixed)), vectors, chunk.width)
        element = memory_type(self.buffer.element)
        return self.writer.hoist(
            f"getelementptr {element}, ptr {base}, <{chunk.width} x i64> {offsets}",
            base, offsets)

    # ------------------------------------------------------------------ conditions
    def scalar_condition(self, point: Point) -> Mask:
        """Whether the index is inside the checked dims that do not depend on the lane."""
        condition: Mask = None
        for d in self.checks:
            if not self._differs_per_lane(point, point.where[d]):
                inside = self._inside(point.where[d], self.buffer.shape[d])
                condition = self.both(condition, inside, 0)
        return condition

    def lane_mask(self, point: Point, number: int, chunk: Chunk) -> Mask:
        """Which lanes are inside the tile, and inside the checked dims that depend on the lane."""
        mask: Mask = None
        for d in self.checks:
            if self._differs_per_lane(point, point.where[d]):
                inside = self._lanes_inside(point, d, number, chunk)
                mask = self.both(mask, inside, chunk.width)
        return mask

    def _differs_per_lane(self, point: Point, index: Expr) -> bool:
        symbols = index.symbols
        return self.lane_symbol in symbols or not symbols.isdisjoint(point.vectors)

    def _inside(self, index: Expr, size: Expr) -> Mask:
        """0 <= index < size, as one unsigned comparison."""
        constant, bound = index.constant, size.constant
        if constant is not None and (constant < 0 or (bound is not None and constant >= bound)):
            return False
        if self.indices.is_nonnegative(index) and self.indices.is_nonnegative(size - index - 1):
            return None
        return self.indices.binary("icmp ult", self.indices.scalar(index),
                                   self.indices.scalar(size))

    def _lanes_inside(self, point: Point, dim: int, number: int, chunk: Chunk) -> Mask:
        index, size = point.where[dim], self.buffer.shape[dim]
        split = None if index.symbols & point.vectors.keys() else index.linear([self.lane_symbol])
        step = None if split is None else split[0][self.lane_symbol].constant
        if split is None or step is None:
            return self._gathered_inside(point, dim, number, chunk)
        below = self._lanes_below(size - split[1], step, chunk)
        above = self._lanes_below(split[1] + 1, -step, chunk)
        return self.both(below, above, chunk.width)

    def _lanes_below(self, room: Expr, step: int, chunk: Chunk) -> Mask:
        """The lanes with step * lane < room."""
        return lanes_below(self.writer, self.indices, room, step, chunk)

    def _gathered_inside(self, point: Point, dim: int, number: int, chunk: Chunk) -> str:
        vectors = self.lane_vectors(point, number, chunk)
        index = self.indices.vector(point.where[dim], vectors, chunk.width)
        size = self.indices.splat(self.indices.scalar(self.buffer.shape[dim]), chunk.width)
        return self.writer.hoist(f"icmp ult <{chunk.width} x i64> {index}, {size}", index, size)

    def both(self, a: Mask, b: Mask, width: int) -> Mask:
        """The conjunction of two conditions."""
        if a is False or b is False:
            return False
        if a is None or b is None:
            return b if a is None else a
        kind = f"<{width} x i1>" if width else "i1"
        return self.writer.hoist(f"and {kind} {a}, {b}", a, b)


def _rejoined(expr: Expr) -> Expr:
    """Without divisions whose quotient and remainder both occur: g*(x floordiv g) + x mod g == x.
    """
    terms = dict(expr.terms)
    for monomial, factor in expr.terms:
        for atom in monomial:
            if isinstance(atom, Call) and atom.op == "mod":
                x, divisor = atom.args
                others = Expr(((tuple(a for a in monomial if a is not atom), factor),))
                whole = others * divisor * (x // divisor)
                if all(terms.get(m) == f for m, f in whole.terms):
                    return _rejoined(expr - whole + others * (x - x % divisor))
    return expr


def lanes_below(writer: Writer, indices: Indices, room: Expr, step: int, chunk: Chunk) -> Mask:
    """The lanes of a chunk with step * lane < room."""
    lanes = [step * (chunk.offset + k) for k in range(chunk.width)]
    if indices.is_nonnegative(room - max(lanes[: chunk.valid]) - 1):
        return None
    if room.constant is not None:
        inside = [lane < room.constant for lane in lanes]
        return lane_literal([int(x) for x in inside], "i1") if any(inside) else False
    scalar = indices.scalar(room)
    if max(map(abs, lanes)) >= _FAR:  # a slice whose step exceeds its axis
        bound = indices.splat(scalar, chunk.width)
        return writer.hoist(
            f"icmp slt <{chunk.width} x i64> {lane_literal(lanes, 'i64')}, {bound}", bound)
    for test, bound in (("sgt", _FAR), ("slt", -_FAR)):
        beyond = indices.binary(f"icmp {test}", scalar, str(bound))
        scalar = writer.hoist(f"select i1 {beyond}, i64 {bound}, i64 {scalar}", beyond, scalar)
    near = writer.hoist(f"trunc i64 {scalar} to i32", scalar)
    bound = indices.splat_i32(near, chunk.width)
    return writer.hoist(
        f"icmp slt <{chunk.width} x i32> {lane_literal(lanes, 'i32')}, {bound}", bound)


def widen_index(writer: Writer, reg: Reg) -> Reg:
    """An index of any signed integer type, extended to i64."""
    if reg.type == llvm_type(t.index, reg.width):
        return Reg.of(reg.name, t.index, reg.width)
    if is_literal(reg.name) and not reg.width:
        return Reg.of(reg.name, t.index)
    target = llvm_type(t.index, reg.width)
    return Reg.of(writer.hoist(f"sext {reg.typed} to {target}", reg.name), t.index, reg.width)
