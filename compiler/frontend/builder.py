"""Builds graph operations from a frontend's values, with symbolic evaluation of shapes.

    Shape(x) -> Gather(0) -> Mul(2)         becomes the known contents [2*batch], and no operation
    Add(y, that)                            %s = graph.sizes {values = [2*batch], ...}; graph.add

If all operands of an operation are small and known, its result is constant-folded. Elements that
are only known at run time can become sizes: `bind`. Bodies of branches and loops become functions
of their own (frames.py); values that they capture from enclosing functions become arguments.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import field
from typing import Any, Protocol

import numpy as np
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Block, Operation, SSAValue

from compiler.frontend.choices import Choices
from compiler.frontend.elements import Element, elements_of
from compiler.frontend.faults import Fault, Faults
from compiler.frontend.frames import Frame, Mark, Names
from compiler.frontend.stretching import fitted
from compiler.frontend.values import Value, computed, of_size, scalar
from dialects.graph.base import GraphOp
from dialects.graph.constant import ConstantOp, RangeOp, SizesOp
from dialects.graph.fold_sizes import MAX_ELEMENTS, fold_sizes
from dialects.graph.gather import GatherOp
from dialects.graph.inference import certain_sign
from dialects.graph.shape import BroadcastOp, ReshapeOp
from dialects.graph.unary import CastOp
from dialects.records import dataclass
from dialects.semantics.evaluation import EvaluationContext
from dialects.strata import types as t
from dialects.strata.func import FuncOp
from dialects.strata.requirements import RequireOp
from dialects.strata.sizes import AssumeOp, SizeOp
from dialects.strata.types import Array, ExprAttr, SizesAttr, TensorType, WeightAttr
from dialects.strata.weights import WeightStore
from dialects.symbolic.expr import Expr, Size
from dialects.symbolic.ranges import is_at_most
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import identifier, location
from passes.rewriting import erase_unused


class Drawing(Protocol):
    """What draws a program's random numbers (`draws.py`), as far as building depends on it."""

    count: int

    def within(self, step: Expr) -> AbstractContextManager[None]: ...


@dataclass(eq=False)
class Builder:
    """Appends operations to the block of a function; `node` is the node that they come from.

    `frame` is the current function: initially that of `block`, later possibly a nested body.
    """

    block: Block
    weights: WeightStore
    node: str = ""
    names: Names = field(default_factory=Names)
    faults: Faults = field(default_factory=lambda: Faults(""))
    computed: dict[Symbol, Value] = field(default_factory=dict[Symbol, Value])
    """The tensors from which sizes were bound."""
    choices: Choices = field(default_factory=Choices)
    draws: Drawing | None = None
    """Random numbers; None if the module may draw none, because something else runs operators that
    do."""
    frame: Frame = field(init=False)

    def __post_init__(self) -> None:
        self.frame = Frame(self.block)

    def __call__(self, op_type: type[GraphOp], *operands: Value, **attributes: Any) -> Value:
        """Build an operation, and return its only result. Raises ShapeError if operands do not
        fit.
        """
        return self.results(op_type, *operands, **attributes)[0]

    def results(self, op_type: type[GraphOp], *operands: Value, **attributes: Any) -> list[Value]:
        """Build an operation, and return all results, with their contents if known."""
        if operands:
            operands = tuple(fitted(self, op_type, operands, attributes.get("shape", ())))
        if operands and all(v.is_small for v in operands):
            known = self._fold(op_type, operands, attributes)
            if known is not None:
                return [known]
        op = op_type.of(*map(self.ssa, operands), **attributes)
        self._add(op, self.node)
        values = [Value(self, t, r) for t, r in zip(op.result_tensors, op.results, strict=True)]
        if not operands:  # a range is kept, and its contents may also be known
            values[0].contents = fold_sizes(op, [], EvaluationContext())
        return values

    def value(self, ssa: SSAValue) -> Value:
        """An SSA value that is a tensor, as a value of the import."""
        assert isinstance(ssa.type, TensorType)
        return Value(self, ssa.type, ssa)

    def ssa(self, value: Value) -> SSAValue:
        """The SSA value in the current function.

        Known contents become a constant or a `graph.sizes` at the first use in a function; a value
        of another function becomes an argument.
        """
        found = self.frame.find(value)
        if found is None and value.contents is not None:
            found = self._of_contents(value)
            found.name_hint = identifier(value.label) if value.label else None
        elif found is None:
            found = self.frame.capture(value)
        self.frame.local[value] = found
        return found

    def _of_contents(self, value: Value) -> SSAValue:
        contents = value.contents
        assert contents is not None
        node = value.node or self.node
        if contents.dtype != object:
            label = value.label or value.node
            return self._add(ConstantOp.of_array(contents, self.weights, label), node)
        shape = contents.shape if contents.ndim < 2 else (contents.size,)
        sizes = SizesOp.of(values=list(contents.reshape(-1)), shape=shape, to=value.element)
        result = self._add(sizes, node)
        if contents.ndim < 2:
            return result
        return self._add(ReshapeOp.of(result, shape=contents.shape), node)

    def _add(self, op: Operation, node: str) -> SSAValue:
        self.add(op, node)
        return op.results[0]

    def add(self, op: Operation, node: str | None = None) -> list[Value]:
        """Append an operation, and return its results."""
        op.location = location(self.node if node is None else node)
        self.frame.block.add_op(op)
        return [self.value(r) for r in op.results if isinstance(r.type, TensorType)]

    def parameter(self, name: str, array: Array) -> Value:
        """A weight whose contents may be others when the program runs."""
        return self._unknown(name, ConstantOp.parameter(name, array, self.weights))

    def weight(self, name: str, array: Array) -> Value:
        """A constant whose contents nothing that is built may depend on."""
        return self._unknown(name, ConstantOp.of_array(array, self.weights, name))

    def _unknown(self, name: str, op: ConstantOp) -> Value:
        [value] = self.add(op, name)
        assert value.ssa is not None
        value.ssa.name_hint = identifier(name)
        return value

    # ------------------------------------------------------------------ known contents
    def _fold(
        self, op_type: type[GraphOp], operands: tuple[Value, ...], attributes: dict[str, Any]
    ) -> Value | None:
        """The constant-folded result; None if it is unknown or too large."""
        stand_ins = Block(arg_types=[v.type for v in operands]).args
        op = op_type.of(*stand_ins, **attributes)
        if len(op.results) != 1:
            return None
        contents = _evaluate(op, operands)
        if contents is None:
            return None
        return computed(self, contents, op.result_tensors[0], self.node)

    # ------------------------------------------------------------------ sizes at run time
    def new_size(self, hint: str) -> Expr:
        """A new size of the current function, which may be 0 at run time."""
        symbol = self.names.size(hint)
        self.frame.sizes.add(symbol)
        return Expr.symbol(symbol)

    def bind(self, value: Value, hint: str) -> Array | None:
        """The integer elements as size expressions: each becomes a size, or is known to be one.

        A tensor is bound once in a function. None if the elements cannot become sizes: for floats,
        and for many or an unknown number of elements.
        """
        shape = value.type.static_shape
        if value.expressions is not None or shape is None:
            return value.expressions
        is_integer = not t.is_float(value.element) and value.element != t.i1
        if not is_integer or np.prod(shape, dtype=np.int64) > MAX_ELEMENTS:
            return None
        contents = np.empty(shape, object)
        contents.reshape(-1)[:] = [
            e if isinstance(e, Expr) else self._bound(e.source, hint)[e.index]
            for e in self.elements(value)]
        if self.frame.owns(value):
            value.contents = contents
        return contents

    def elements(self, value: Value) -> list[Expr | Element]:
        """Each element of an integer tensor: a size expression, or its position in a run-time
        tensor.
        """
        if value.expressions is not None:
            return [Expr.of(e) for e in value.expressions.reshape(-1)]
        return elements_of(self.ssa(value))

    def element(self, element: Expr | Element) -> Value:
        """One element as i64[]."""
        if isinstance(element, Expr):
            return of_size(self, element)
        if element not in self.frame.elements:
            self.frame.elements[element] = self._taken(element)
        return self.frame.elements[element]

    def _taken(self, element: Element) -> Value:
        source = self.value(element.source)
        wide = source.cast(t.i64)
        if source.type.count.constant == 1:
            return wide.reshape([])
        flat = wide.reshape([source.type.count]) if source.rank > 1 else wide
        return self(GatherOp, flat, scalar(self, element.index, t.i64), axis=0)

    def _bound(self, source: SSAValue, hint: str) -> list[Expr]:
        """The sizes that the elements of a tensor become."""
        if source not in self.frame.bound:
            value = self.value(source)
            sizes = [self.new_size(hint) for _ in range(value.type.count.constant or 0)]
            symbols = [s for e in sizes for s in e.symbols]
            self.computed |= dict.fromkeys(symbols, value)
            if sizes:
                self.add(SizeOp.of(symbols, self.ssa(value.cast(t.i64))))
            self.frame.bound[source] = sizes
        return self.frame.bound[source]

    def assume(self, left: Size, relation: str, right: Size) -> None:
        """Add a run-time check that `left` is `==` or `<=` to `right`."""
        if Expr.of(left) != Expr.of(right):
            self.add(AssumeOp.of(left, relation, right))

    def require(self, low: Size, values: Value, high: Size) -> None:
        """Add a run-time check that the elements of an integer tensor are in [low, high).

        There is no check if the contents are known to be in range.
        """
        low, high = Expr.of(low), Expr.of(high)
        known = _extremes(values)
        if known is None or any(_is_outside(e, low, high) for e in known):
            self._require(low, values, high)
            return
        for element in known:
            for below, above in ((low, element), (element + 1, high)):
                if not is_at_most(below, above):
                    self.assume(below, "<=", above)

    def require_none(self, zeros: Value) -> None:
        """Add a run-time check that all elements of an integer tensor are 0; others are divisors
        that are zero."""
        self.add(RequireOp.of(0, self.ssa(zeros), 1, divisors=True))

    def _require(self, low: Expr, values: Value, high: Expr) -> None:
        value = self.ssa(values)
        label = values.label or value.name_hint or ""
        self.add(RequireOp.of(low, value, high, label))

    # ------------------------------------------------------------------ functions
    @contextmanager
    def function(self, hint: str) -> Generator[Frame, None, None]:
        """Make a new function of the module, without arguments, the current one."""
        function = FuncOp.of(self.names.function(hint), [], [])
        assert self._module is not None
        self._module.body.block.add_op(function)
        with self.within(Frame(function.body.block, self.frame)) as frame:
            yield frame

    @contextmanager
    def within(self, frame: Frame) -> Generator[Frame, None, None]:
        """Continue building in an earlier frame."""
        around, node, self.frame = self.frame, self.node, frame
        try:
            yield frame
        finally:
            self.frame, self.node = around, node

    @property
    def _module(self) -> ModuleOp | None:
        """The module that the functions are in."""
        function = self.block.parent_op()
        module = None if function is None else function.parent_op()
        return module if isinstance(module, ModuleOp) else None

    def mark(self) -> Mark:
        """A mark with which `restore` undoes later changes in new functions."""
        assert self._module is not None
        return Mark(frozenset(self.names.sizes), frozenset(self.names.functions),
                    self._module.body.block.last_op, self.faults.mark(),
                    self.choices.count.copy(), self.draws.count if self.draws else 0)

    def restore(self, mark: Mark) -> None:
        """Discard the functions, names and problems that are newer than the mark."""
        assert self._module is not None
        self.faults.restore(mark.faults)
        self.names = Names(set(mark.sizes), set(mark.functions))
        self.choices.count = mark.choices.copy()
        if self.draws:
            self.draws.count = mark.draws
        while (last := self._module.body.block.last_op) is not None and last is not mark.last:
            last.detach()
            last.erase(safe_erase=False)

    # ------------------------------------------------------------------ the end
    def finish(self) -> None:
        """Remove dead operations, and weights that no operation refers to."""
        module, used = self._module, set[str]()
        blocks = [self.block] if module is None else [
            f.body.block for f in module.body.block.ops if isinstance(f, FuncOp)]
        for block in blocks:
            erase_unused(block)
            used |= {op.value.key.data for op in block.ops if isinstance(op, ConstantOp)
                     and isinstance(op.value, WeightAttr) and isinstance(op.value.key, StringAttr)}
        for key in self.weights.arrays.keys() - used:
            del self.weights.arrays[key]


def _evaluate(op: GraphOp, operands: tuple[Value, ...]) -> Array | None:
    """The result's contents, if the operands determine them."""
    count = op.result_tensors[0].count.constant
    numbers = [v.array for v in operands if v.array is not None]
    if len(numbers) < len(operands):
        return fold_sizes(op, [v.expressions for v in operands], EvaluationContext())
    if count is None or count > MAX_ELEMENTS or not (op.MAY_FOLD and _is_settled(op)):
        return None
    return _compute(op, numbers)


def _extremes(values: Value) -> list[Expr] | None:
    """The elements that can be the minimum or maximum; None if the contents are unknown."""
    if values.array is not None:
        array = values.array
        return [Expr.of(int(e)) for e in (array.min(), array.max())] if array.size else []
    if values.expressions is None:
        return _range_ends(values.ssa)
    return list(dict.fromkeys(map(Expr.of, values.expressions.reshape(-1))))


def _range_ends(value: SSAValue | None) -> list[Expr] | None:
    """The first and the last number of a range, seen through operations that only reorder or cast.
    """
    while value is not None and isinstance(value.owner, CastOp | ReshapeOp | BroadcastOp):
        value = value.owner.operands[0]
    if value is None or not isinstance(value.owner, RangeOp):
        return None
    start, step, count = (e.data for e in (
        value.owner.start, value.owner.step, value.owner.count))
    return [start, start + step * (count - 1)]


def _is_outside(element: Expr, low: Expr, high: Expr) -> bool:
    """Whether an element is certainly not in [low, high)."""
    return certain_sign(element - low) == -1 or certain_sign(high - 1 - element) == -1


def _is_settled(op: GraphOp) -> bool:
    """Whether no attribute depends on a size, unless another size of the result is 0."""
    sizes = [e for a in op.properties.values() if isinstance(a, SizesAttr) for e in a.data]
    sizes += [a.data for a in op.properties.values() if isinstance(a, ExprAttr)]
    return all(e.constant is not None for e in (*sizes, *op.result_tensors[0].shape))


def _compute(op: GraphOp, operands: list[Array]) -> Array:
    try:
        result = op.evaluate(EvaluationContext(), *operands)
    except (IndexError, ValueError, ArithmeticError) as error:
        raise Fault(f"it cannot be computed from its constant inputs: {error}") from error
    return np.asarray(result, op.result_tensors[0].dtype)
