"""`Canonical`: what a kernel computes, regardless of its names.

Names of the kernel, its values, axes and size symbols are replaced by numbers in order of
appearance.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import field, replace

from xdsl.dialects import arith
from xdsl.dialects.builtin import (
    ArrayAttr,
    BFloat16Type,
    Float16Type,
    Float32Type,
    Float64Type,
    IndexType,
    IntegerType,
    ModuleOp,
    StringAttr,
)
from xdsl.ir import Attribute, Operation, SSAValue

from dialects.loop import AxesAttr, Axis, KernelOp, NestOp
from dialects.records import dataclass
from dialects.strata.schedule import Schedule, ScheduleAttr
from dialects.strata.types import BufferType, ExprAttr, SizesAttr, TensorType
from dialects.symbolic.expr import Expr
from dialects.symbolic.remembered import remembered
from dialects.symbolic.symbol import Kind, Symbol

_KEY_LENGTH = 32
"""Hexadecimal digits of a digest."""


def no_hole(op: Operation) -> bool:
    """No constant is left open."""
    return False


@dataclass
class Canonical:
    """A kernel with all its names numbered in the order in which they appear.

    `parameters` are the canonical names of its size parameters, in their order. Kernels with equal
    keys compute the same if sizes with the same canonical names have the same values.
    """

    kernel: KernelOp
    holes: Callable[[Operation], bool] = no_hole
    """Tells which constants the key leaves open: those of a body that could as well be inputs."""
    numbers: dict[Symbol, int] = field(default_factory=dict[Symbol, int])
    values: dict[SSAValue, int] = field(default_factory=dict[SSAValue, int])
    constants: list[arith.ConstantOp] = field(default_factory=list[arith.ConstantOp])
    """The constants that the key leaves open, in order."""
    parts: tuple[Hashable, ...] = ()

    @staticmethod
    def of(kernel: KernelOp, holes: Callable[[Operation], bool] = no_hole) -> Canonical:
        result = Canonical(kernel, holes)
        block = kernel.body.block
        arguments = result._values(block.args)
        body = tuple(map(result._op, block.ops))
        schedule = result._attribute(kernel.schedule) if kernel.schedule else None
        result.parts = arguments, body, schedule
        return result

    @property
    def key(self) -> Hashable:
        return *self.parts, frozenset(self.parameters)

    def digest(self, facts: object) -> str:
        """A hash of the kernel and of `facts` that is the same in every process."""
        text = repr((*self.parts, sorted(self.parameters), facts))
        return hashlib.sha256(text.encode()).hexdigest()[:_KEY_LENGTH]

    def neutral(self, schedule: Schedule) -> Schedule:
        """A schedule of this kernel with canonical axes: `a0`, `a1` ..."""
        return _renamed(schedule, self._axes())

    def own(self, schedule: Schedule) -> Schedule | None:
        """The reverse of `neutral`, for this kernel; None if the schedule has other axes."""
        names = {v: k for k, v in self._axes().items()}
        if {x.axis for x in schedule.levels} != names.keys():
            return None
        return _renamed(schedule, names)

    def _axes(self) -> dict[Symbol, Symbol]:
        """Canonical names of the axes."""
        return {axis: Symbol.axis(f"a{self._number(axis)}") for axis in self.kernel.axes}

    @property
    def parameters(self) -> list[str]:
        return [str(self._name(name)) for name in self.kernel.size_names]

    # ------------------------------------------------------------------ keys of its contents
    def _op(self, op: Operation) -> Hashable:
        """An operation as a tuple; numbers the values it defines."""
        if isinstance(op, arith.ConstantOp) and self.holes(op):
            self.constants.append(op)
            return op.name, self._values(op.results)
        operands = tuple(self.values[v] for v in op.operands)
        properties = tuple((k, self._attribute(v)) for k, v in sorted(op.properties.items()))
        results = self._values(op.results)
        regions = tuple(
            (self._values(block.args), tuple(map(self._op, block.ops)))
            for region in op.regions for block in region.blocks)
        return op.name, operands, properties, results, regions

    def _values(self, values: Sequence[SSAValue]) -> Hashable:
        for value in values:
            self.values[value] = len(self.values)
        return tuple(self._attribute(v.type) for v in values)

    def _attribute(self, attribute: Attribute) -> Hashable:
        """An attribute with its symbols renamed, as text, which distinguishes 0.0 from -0.0."""
        if type(attribute) in _TYPES:  # most are
            return _text(attribute)
        match attribute:
            case TensorType() | BufferType():
                return _text(attribute.element), self._exprs(attribute.shape)
            case SizesAttr():
                return self._exprs(attribute.data)
            case ExprAttr():
                return self._exprs([attribute.data])
            case AxesAttr():
                return tuple(map(self._axis, attribute.data))
            case ArrayAttr():
                return tuple(map(self._attribute, attribute.data))
            case ScheduleAttr():
                return self._schedule(attribute.data)
            case _:
                return str(attribute)

    def _exprs(self, exprs: Sequence[Expr]) -> Hashable:
        return tuple([e.text if not e.symbols else e.substitute(
            {n: self._name(n) for n in sorted(e.symbols)}).text for e in exprs])

    def _axis(self, axis: Axis) -> Hashable:
        return str(self._name(axis.name)), self._exprs([axis.extent]), axis.reduce

    def _schedule(self, schedule: Schedule) -> Hashable:
        names = {x.axis: Symbol.axis(f"a{self._number(x.axis)}") for x in schedule.levels}
        return str(_renamed(schedule, names))

    def _name(self, symbol: Symbol) -> Expr:
        """The canonical symbol; a gathered symbol refers to an input of its nest, and stays."""
        if symbol.kind is Kind.GATHERED:
            return Expr.symbol(symbol)
        return Expr.symbol(Symbol.counter(f"${self._number(symbol)}"))

    def _number(self, symbol: Symbol) -> int:
        return self.numbers.setdefault(symbol, len(self.numbers))


def with_equals(module: ModuleOp) -> list[KernelOp]:
    """The kernels that may be equal to another one but for constants, in order.

    The others differ at first sight, so that their keys need not be computed.
    """
    kernels = [(op, _outline(op)) for op in module.body.block.ops if isinstance(op, KernelOp)]
    counts = Counter(outline for _, outline in kernels)
    return [op for op, outline in kernels if counts[outline] > 1]


def _outline(kernel: KernelOp) -> Hashable:
    """The extents of a kernel's nests and the names of its operations, which equal kernels share.
    """
    return tuple([(op.name, len(op.operands), tuple([
        (a.extent.constant, a.reduce) for a in op.axes] if isinstance(op, NestOp) else []), tuple([
            inner.name for region in op.regions for block in region.blocks for inner in block.ops]))
        for op in kernel.body.block.ops])


@remembered
def _text(attribute: Attribute) -> str:
    """The text of a type or a word. Of numbers, equal ones may have different texts."""
    return str(attribute)


_TYPES = (StringAttr, Float32Type, IntegerType, IndexType, Float16Type, BFloat16Type, Float64Type,
          arith.FastMathFlagsAttr)


def _renamed(schedule: Schedule, names: Mapping[Symbol, Symbol]) -> Schedule:
    levels = tuple(replace(x, axis=names[x.axis]) for x in schedule.levels)
    return replace(schedule, levels=levels)
