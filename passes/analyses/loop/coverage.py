"""Whether the stores of nests cover a tensor for all sizes.

    nest (i: n, j: 2) outs(f32[n, m + 2][i, j])        columns 0 to 1
    nest (i: n, j: m) outs(f32[n, m + 2][i, j + 2])    columns 2 to m + 1: together all of them

A nest stores a box, which is a progression `first + step*k` with k < count along each dim. Axes
that are digits of one index, such as `3*i + j` with j < 3, form one progression. An axis whose
digits are indices, `i floordiv m` and `i mod m`, counts as one axis per digit.

A dim is swept from 0 upwards: the boxes that continue where the covered part ends must cover the
remaining dims. Where progressions have gaps, each residue of their step is swept separately. A box
that is empty for some sizes is empty along at least one of its dims, so nothing is assumed about
the others. True means certain; False means that no proof was found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from dialects.loop import Axis
from dialects.records import dataclass
from dialects.symbolic.expr import Call, Expr
from dialects.symbolic.facts import split_call
from dialects.symbolic.inequalities import Prover
from dialects.symbolic.symbol import Symbol

MOST_PHASES = 64
"""The largest step whose residues are swept separately."""


@dataclass(frozen=True)
class Progression:
    """The `count` positions first, first + step ... along a dim."""

    first: Expr
    count: Expr
    step: int = 1

    def phase(self, residue: int, step: int) -> tuple[Expr, Expr] | None:
        """First and end among the positions `residue + step*k`, in terms of k; None if none."""
        if self.step == 1:
            if step == 1:
                return self.first, self.first + self.count
            first = self.first - residue
            return first.ceildiv(step), (first + self.count).ceildiv(step)
        shifted = self.first - residue
        if self.step != step or (shifted % step).constant != 0:
            return None
        return shifted // step, shifted // step + self.count


Box: TypeAlias = tuple[Progression, ...]
_Part: TypeAlias = tuple[Expr, Expr, Box]
"""First and end along a dim, and the progressions along the dims after it."""


# ---------------------------------------------------------------------- the stores of one nest
def covers_alone(axes: Sequence[Axis], map_: Sequence[Expr], shape: Sequence[Expr]) -> bool:
    """Whether an axis of its own walks each dim from end to end, and no axis is left over."""
    extents = {a.name: a.extent for a in axes}
    names = [e.as_symbol for e in map_ if e.constant != 0]
    free = {a.name for a in axes if not a.reduce and a.extent.constant != 1}
    if len({*names}) < len(names) or not free <= {*names}:
        return False
    return all(size == (1 if e.constant == 0 else extents.get(e.as_symbol))  # type: ignore[arg-type]
               for e, size in zip(map_, shape, strict=True))


def box_of(axes: Sequence[Axis], map_: Sequence[Expr]) -> Box | None:
    """The box that a nest stores; None if it stores none, or if unknown sizes may make it empty."""
    extents = {a.name: a.extent for a in axes if a.extent.constant != 1}
    single: Mapping[Symbol, Expr] = {a.name: Expr.of(0) for a in axes if a.name not in extents}
    exprs = [e.substitute(single) for e in map_]
    for name in list(extents):
        exprs = _in_digits(exprs, name, extents)
    used = [s for e in exprs for s in e.symbols & extents.keys()]
    needed = extents.keys() - {a.name for a in axes if a.reduce}
    if len({*used}) < len(used) or not needed <= {*used}:
        return None
    found = [_progression(e, extents) for e in exprs]
    return tuple(f for f in found if f is not None) if None not in found else None


def _in_digits(
    exprs: list[Expr], axis: Symbol, extents: dict[Symbol, Expr]
) -> list[Expr]:
    """Replace an axis by axes of its digits, if all divisions of it extract such digits.

    The lowest digit is `i mod base`, the next one `(i floordiv base) mod base'`, and the highest
    one is the rest. They enumerate all points of the axis if their counts multiply to its own.
    """
    calls = dict.fromkeys(a for e in exprs for m, _ in e.terms for a in m
                          if isinstance(a, Call) and axis in a.symbols)
    found, weight = dict[Call, Expr](), Expr.of(1)
    while left := [c for c in calls if c not in found]:
        rest = Expr.symbol(axis) // weight
        call = next((c for c in left if _of(c) == rest) if len(left) == 1 else (
            c for c in left if c.op == "mod" and _of(c) == rest % c.args[1]), None)
        if call is None:
            return exprs
        count = call.args[1] if len(left) > 1 else extents[axis].divide(weight)[0]
        found[call], weight = count, weight * count
        if not weight.terms:
            return exprs
    if not found or weight != extents[axis]:
        return exprs
    for number, (call, count) in enumerate(found.items()):
        digit = axis.followed_by(f"_digit{number}")
        exprs = [_exchanged(e, call, Expr.symbol(digit)) for e in exprs]
        extents[digit] = count
    if not any(axis in e.symbols for e in exprs):
        del extents[axis]
    return exprs


def _of(call: Call) -> Expr:
    return Expr((((call,), 1),))


def _exchanged(expr: Expr, call: Call, digit: Expr) -> Expr:
    split = split_call(expr, call)
    return expr if split is None else split[0] * digit + split[1]


def _progression(expr: Expr, extents: Mapping[Symbol, Expr]) -> Progression | None:
    """The values of an index whose axes are digits of one number; None for other indices."""
    split = expr.linear(expr.symbols & extents.keys())
    if split is None or split[1].symbols & extents.keys():
        return None
    first, terms = split[1], list[tuple[Expr, Expr]]()
    for name, factor in split[0].items():
        falls = factor.constant is not None and factor.constant < 0
        first += factor * (extents[name] - 1) if falls else 0
        terms.append((-factor if falls else factor, extents[name]))
    steps = [f.constant for f, _ in terms if f.constant is not None]
    if terms and not steps:
        return None
    step = min(steps, default=1)
    count = Expr.of(1)
    while terms:
        digit = next((t for t in terms if t[0] == count * step), None)
        if digit is None:
            return None
        terms.remove(digit)
        count *= digit[1]
    return Progression(first, count, step)


# ---------------------------------------------------------------------- several boxes
class Cover(NamedTuple):
    """Proofs that boxes cover a tensor, from what is known about sizes."""

    prover: Prover

    def holds(self, boxes: Sequence[Box], shape: Sequence[Expr]) -> bool:
        """Whether each position of a tensor is certainly in one of the boxes."""
        if not shape:
            return bool(boxes)
        step = max((b[0].step for b in boxes), default=1)
        if step > MOST_PHASES:
            return False
        return all(self._phase(boxes, shape, residue, step) for residue in range(step))

    def _phase(
        self, boxes: Sequence[Box], shape: Sequence[Expr], residue: int, step: int
    ) -> bool:
        """Whether the positions `residue + step*k` of the first dim are covered."""
        found = [(b[0].phase(residue, step), b[1:]) for b in boxes]
        parts = [(*ends, rest) for ends, rest in found if ends is not None]
        size = shape[0] if step == 1 else (shape[0] - residue).ceildiv(step)
        return self._sweep(parts, size, shape[1:])

    def _sweep(self, parts: Sequence[_Part], size: Expr, rest: Sequence[Expr]) -> bool:
        """Whether the parts cover a dim from 0 up to its size."""
        place, following = Expr.of(0), dict[Expr, dict[Expr, list[Box]]]()
        for first, end, box in parts:
            following.setdefault(first, {}).setdefault(end, []).append(box)
        for _ in range(len(parts) + 1):
            if self._at_most(size, place):
                return True
            found = next((end for end, boxes in following.pop(place, {}).items()
                          if self.holds(boxes, rest)), None)
            found = found or self._next(parts, place, rest)
            if found is None:
                return False
            place = found
        return False

    def _next(self, parts: Sequence[_Part], place: Expr, rest: Sequence[Expr]) -> Expr | None:
        """The end of a stretch from `place` on where overlapping parts cover the other dims."""
        begun = [p for p in parts if self._at_most(p[0], place)]
        for end in dict.fromkeys(p[1] for p in begun):
            if end != place and self._at_most(place, end) and self.holds(
                    [p[2] for p in begun if self._at_most(end, p[1])], rest):
                return end
        return None

    def _at_most(self, left: Expr, right: Expr) -> bool:
        difference = right - left
        if difference.constant is not None:
            return difference.constant >= 0
        return self.prover.is_nonnegative(difference)
