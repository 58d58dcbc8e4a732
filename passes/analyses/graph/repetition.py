"""Finds equal parts of a sequence of operations that follow each other: the layers of a model.

Two parts are equal if they have the same operations in the same order, with equal attributes and
types, and if operands come from the same places: from the same operation of the part, or from
outside it. Constants do not count as operations. As operands they are equal if they are equal
literals, or weights of the same type, whose contents may differ: floats, and integers that are
quantized weights. The numbers of their quantization may differ as well, where no rule asks for
them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, groupby

import numpy as np
from xdsl.ir import Attribute, Operation, OpResult, SSAValue

from dialects.graph.base import CompositeOp
from dialects.graph.constant import ConstantOp
from dialects.graph.contraction import MatmulOp
from dialects.graph.convolution import ConvOp, ConvTransposeOp
from dialects.graph.elementwise import ElementwiseOp, MulOp
from dialects.graph.grouped import GroupedMatmulOp
from dialects.graph.integer_contraction import MatmulIntegerOp
from dialects.graph.normalization import LayerNormOp, SoftmaxFamilyOp
from dialects.graph.quantization import DequantizeLinearOp
from dialects.graph.reduce import ReduceMeanOp, ReduceOp
from dialects.records import dataclass
from dialects.strata.types import (
    Array,
    LiteralAttr,
    WeightAttr,
    format_literal,
    format_number,
    is_float,
    tensor_type,
)

LONGEST = 4096
"""The most operations of a part."""
CONVOLUTIONS = (ConvOp, ConvTransposeOp)
WORK = 16
"""How many elementwise operations passes could transform in the time of a convolution: these are
fused, while a convolution becomes several nests and a kernel or two."""
REDUCTIONS = (ReduceOp, ReduceMeanOp, SoftmaxFamilyOp, LayerNormOp)
"""Operators that begin with a reduction of what they read."""
PRODUCT, REDUCTION, OTHER = range(3)
"""What reads a value."""


@dataclass(frozen=True)
class Repetition:
    """`count` equal parts of `length` operations each; the first begins at `start`.

    `work`: the operations of a part, of which a convolution counts as WORK.
    """

    start: int
    length: int
    count: int
    work: int

    @property
    def saved(self) -> int:
        """How many operations are repetitions of others."""
        return self.work * (self.count - 1)

    def part(self, number: int) -> range:
        """The places of a part's operations."""
        first = self.start + number * self.length
        return range(first, first + self.length)

    def without_first(self) -> Repetition:
        """The same parts but for the first."""
        return Repetition(self.start + self.length, self.length, self.count - 1, self.work)


class Steps:
    """The operations of a block but for its constants, and where they use each other's results."""

    def __init__(self, ops: Sequence[Operation], kinds: Sequence[Hashable]):
        """`kinds`: equal for operations that may be equal; None for those that equal no other."""
        self.ops = ops
        self.places = {op: k for k, op in enumerate(ops)}
        numbers: dict[Hashable, int] = {}
        self.kinds: Array = np.array([
            -1 - k if kind is None else numbers.setdefault(kind, len(numbers))
            for k, kind in enumerate(kinds)], np.int64)
        self.work: list[int] = [0, *accumulate(
            WORK if isinstance(op, CONVOLUTIONS) else 1 for op in ops)]
        """The work of all operations before a place."""

    def best(self, least: int) -> Repetition | None:
        """The repetition that saves most operations; None if none saves `least`."""
        found = None
        for length in self.lengths():
            for first, last in self.runs(length):
                repeated = self.work[last] - self.work[first]
                if last - first < length or repeated < max(least, found.saved + 1 if found else 0):
                    continue
                repetition = self._cut(first, last + length, length)
                if repetition is not None and repetition.saved >= least and (
                        found is None or repetition.saved > found.saved):
                    found = repetition
        return found

    def lengths(self, parts: int = 2) -> range:
        """The possible lengths of so many parts."""
        return range(1, min(len(self.ops) // parts, LONGEST) + 1)

    def runs(self, length: int) -> Iterator[tuple[int, int]]:
        """Where operations are of the same kinds as those `length` places later: from, to."""
        equal = np.concatenate(([False], self.kinds[:-length] == self.kinds[length:], [False]))
        edges = np.flatnonzero(equal[1:] != equal[:-1]).tolist()
        return zip(edges[::2], edges[1::2], strict=True)

    def is_best_border(self, border: int, length: int) -> bool:
        """Whether a border between equal parts of a length is as good as any inside of them."""
        crossing = self._crossing(length)
        places = [p for p in range(border, border + length) if crossing[p] == crossing[border]]
        rank = self._rank(border, length)
        fewest = crossing[border: border + length].min() == crossing[border]
        return bool(fewest) and rank <= REDUCTION and all(
            rank <= self._rank(place, length) for place in places)

    def _cut(self, first: int, end: int, length: int) -> Repetition | None:
        """The parts of a run; None if they are not equal, or cannot be cut without a loss.

        Of the places where the fewest values cross, the first is taken at which products begin,
        else the first at which reductions do.
        """
        starts = range(first, min(first + length, end - 2 * length + 1))
        crossing = self._crossing(length)[[s + length for s in starts]]
        fewest = [s for s, n in zip(starts, crossing, strict=True) if n == crossing.min()]
        ranked = [(self._rank(start + length, length), start) for start in fewest]
        rank, start = min(ranked)
        if rank > REDUCTION:
            return None
        found = self._equal_parts(start, (end - start) // length, length)
        if found is None or rank == PRODUCT or not self._reads_elementwise(found):
            return found
        return found.without_first() if found.count > 2 else None

    def _reads_elementwise(self, found: Repetition) -> bool:
        """Whether the first part reads what an elementwise operation before it computes, with
        which a reduction at its beginning would be fused."""
        first = found.part(0)
        values = (v for k in first for v in self.ops[k].operands)
        return any(isinstance(v.owner, ElementwiseOp | CompositeOp)
                   and self.places[v.owner] < first.start for v in values)

    def _crossing(self, length: int) -> Array:
        """For each place, how many results of the `length` operations before it are used later."""
        changes = np.zeros(len(self.ops) + length + 2, np.int64)
        for place, last in zip(*self._lives, strict=True):
            if last > place:
                changes[place + 1] += 1
                changes[min(last, place + length) + 1] -= 1
        return np.cumsum(changes)

    @cached_property
    def _lives(self) -> tuple[list[int], list[int]]:
        """For each result, the places of its operation and of its last user."""
        there = len(self.ops)
        found = [(place, max((self.places.get(use.operation, there) for use in r.uses), default=0))
                 for place, op in enumerate(self.ops) for r in op.results]
        return [place for place, _ in found], [last for _, last in found]

    def _rank(self, border: int, length: int) -> int:
        """What reads the values that cross a place; of several, the least that one of them has.

        A product reads its operands from memory, so nothing is lost if values end a part there. A
        reduction may be fused with what computes its operand, but others read that, too.
        """
        there, rank = len(self.ops), PRODUCT
        for op in self.ops[border - length: border]:
            for result in op.results:
                users = [use.operation for use in result.uses]
                later = [u for u in users if self.places.get(u, there) >= border]
                rank = max(rank, min(map(_rank, later), default=PRODUCT))
        return rank

    def _equal_parts(self, start: int, count: int, length: int) -> Repetition | None:
        """The most parts in succession whose operands come from the same places."""
        wirings = [self._wiring(start + k * length, length) for k in range(count)]
        best, place = None, 0
        for _, group in groupby(wirings):
            size = len(list(group))
            if size > 1 and (best is None or size > best.count):
                first = start + place * length
                work = self.work[first + length] - self.work[first]
                best = Repetition(first, length, size, work)
            place += size
        return best

    def _wiring(self, start: int, length: int) -> Hashable:
        """Where the operands of a part's operations come from."""
        outside: dict[SSAValue, int] = {}
        sources: list[tuple[int, int]] = []
        for op in self.ops[start: start + length]:
            for operand in op.operands:
                place = -1
                if isinstance(operand, OpResult):
                    place = self.places.get(operand.op, -1)
                if isinstance(operand, OpResult) and place >= start:
                    sources.append((place - start, operand.index))
                else:
                    sources.append((-1, outside.setdefault(operand, len(outside))))
        return tuple(sources)


def _rank(op: Operation) -> int:
    """Whether an operation is a product, a reduction, or feeds a reduction alone. A convolution is
    a product here."""
    if isinstance(op, (MatmulOp, GroupedMatmulOp, *CONVOLUTIONS)):
        return PRODUCT
    if isinstance(op, REDUCTIONS):
        return REDUCTION
    users = [use.operation for result in op.results for use in result.uses]
    feeds = isinstance(op, ElementwiseOp) and len(users) == 1 and isinstance(users[0], REDUCTIONS)
    return REDUCTION if feeds else OTHER


Asks = Callable[[ConstantOp, Operation, int], bool]
"""Whether a constant may be another one in another part, as the operand of that number."""


def is_quantization(constant: ConstantOp, op: Operation, number: int) -> bool:
    """Whether an operand may be another constant in another part, since rules only compute with it:
    quantized weights, or their scale, which multiplies another scale.

    Weights of products with a zero point are left alone: the sums of rows that it needs are fused
    with what the part before computes.
    """
    data = constant.value.data if isinstance(constant.value, LiteralAttr) else ()
    match op:
        case DequantizeLinearOp():
            return number != 1 and _has_several(constant)
        case MatmulIntegerOp():
            return number < 2 and _has_several(constant) and _is_zero(op.zero_b)
        case MulOp():
            single = all(tensor_type(v).count.constant == 1 for v in op.operands)
            return single and is_float(constant.type.element) and not {0, 1} & {*data}
        case _:
            return False


def kind_of(op: Operation, may_differ: Asks = is_quantization) -> Hashable:
    """What operations must share, apart from operands that are results of others, to be equal."""
    properties = tuple((n, attribute_key(value)) for n, value in sorted(op.properties.items()))
    operands = tuple(_operand_key(op, k, may_differ) for k in range(len(op.operands)))
    return type(op), properties, operands, tuple(r.type for r in op.results)


def _operand_key(op: Operation, number: int, may_differ: Asks) -> Hashable:
    """The type of an operand; of a constant, its value too, unless it may be another one."""
    value = op.operands[number]
    owner = value.owner
    if not isinstance(owner, ConstantOp):
        return value.type
    differs = is_weight(owner) or may_differ(owner, op, number)
    return "weight" if differs else attribute_key(owner.value), value.type


def is_weight(constant: ConstantOp) -> bool:
    """Whether a constant may have other contents in another part: floats that are not all equal."""
    return _has_several(constant) and is_float(constant.type.element)


def _has_several(constant: ConstantOp) -> bool:
    """Whether a constant may hold several numbers."""
    value = constant.value
    return not isinstance(value, LiteralAttr) or len(set(map(format_number, value.data))) > 1


def _is_zero(value: SSAValue) -> bool:
    """Whether a value is a constant of zeros that is a literal."""
    constant = value.owner.value if isinstance(value.owner, ConstantOp) else None
    return isinstance(constant, LiteralAttr) and not any(constant.data)


def attribute_key(attribute: Attribute) -> Hashable:
    """An attribute; of a literal, the text, in which 0.0 and -0.0 differ; of an array, its key,
    since equal arrays have different names."""
    if isinstance(attribute, WeightAttr):
        return attribute.key
    return format_literal(attribute.data) if isinstance(attribute, LiteralAttr) else attribute
