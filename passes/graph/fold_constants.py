"""graph-fold-constants: evaluate operations that depend only on constants (constant folding).

    %w = graph.constant #strata.weight<"fc.w", ...> : f32[8, 64]
    %t = graph.transpose %w {perm = [1, 0]} : f32[64, 8]               -->
    %t = graph.constant #strata.weight<"fc.w.transpose", ...> : f32[64, 8]

A result that is larger than 1 MB and than four times all operands together is not folded, because a
broadcast would only fill memory. Results that exceed the memory budget of the context are not
folded either, with a remark. What is folded further takes nothing of it any more, and integers of
the model, which may be packed, add to it what they may become. A transposition of more than 1 MB is
kept if others read its operand as it is: an embedding that also computes the scores of words, say,
or the caller, who holds the memory. Products read either order, so a single copy of the weight
suffices, unless the product itself is folded. Integer codes of more than 1 MB that only products of
few rows read stay codes, where the target converts them as it reads them (`Facts.coded_rows`).
Values that depend on size symbols are not constant. Assumes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Operation

from dialects.graph.base import Build, GraphOp, ints_of
from dialects.graph.constant import ConstantOp
from dialects.graph.contraction import MatmulOp
from dialects.graph.folded import Folded, evaluated
from dialects.graph.shape import ReshapeOp, TransposeOp
from dialects.graph.unary import CastOp
from dialects.records import dataclass
from dialects.semantics.arithmetic import FLOATS, FORMULAS, Converted, Elementwise
from dialects.semantics.relayout import Reshaped, Transposed
from dialects.strata.assumptions import DataError
from dialects.strata.func import FuncOp
from dialects.strata.mapped import release
from dialects.strata.requirements import RequireOp
from dialects.strata.types import Array, ExprAttr, SizesAttr, TensorType, is_float
from dialects.strata.weights import WeightStore
from dialects.text.syntax import location_name
from passes.analyses.graph.codes import keeps_codes, takes_codes_apart
from passes.base import StrataContext, StrataPass
from passes.rewriting import erase, erase_unused, functions, replace

SMALL = 1 << 20
"""Results of up to this many bytes are folded, however small their operands are."""
GROWTH = 4
"""Larger results may take up to this many times the bytes of their operands (i8 to f32)."""


class GraphFoldConstants(StrataPass):
    """Evaluate operations whose operands are all constants."""

    name = "graph-fold-constants"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        before = set(context.weights.arrays)
        codes = sum(_bytes([op.type]) * len(op.weights) for op in module.walk()
                    if isinstance(op, ConstantOp) and not is_float(op.type.element))
        folding = _Folding(self, context, context.limits.folding_bytes + GROWTH * codes)
        for func in functions(module):
            for _ in folding.fold(func):
                _forget_unused(context, module, before)
            erase_unused(func.body.block, context)
        _forget_unused(context, module, before)


@dataclass
class _Folding:
    """One run of the pass, and the number of bytes that it may still use."""

    pass_: GraphFoldConstants
    context: StrataContext
    bytes_left: int
    made: dict[Operation, int] = field(default_factory=dict[Operation, int])
    """The bytes of the results that are in use."""
    passed: int = 0
    """The bytes of results that are folded further, which still are in the store."""

    def fold(self, func: FuncOp) -> Iterator[None]:
        """Fold a function; it yields whenever as many bytes as the context allows can be freed."""
        for op in list(func.body.block.ops):
            if isinstance(op, GraphOp) and _is_constant(op) and self._is_affordable(op):
                self._replace(op)
            elif isinstance(op, RequireOp) and self._holds(op):
                erase(op)
            if self.passed > self.context.limits.folding_bytes:
                self.passed = 0
                yield

    def _holds(self, op: RequireOp) -> bool:
        """Whether constants surely satisfy a requirement; otherwise it is checked at run time."""
        if op.symbols or not isinstance(op.values.owner, ConstantOp):
            return False
        array = op.values.owner.array(self.context.weights)
        try:
            op.check(array, {})
        except DataError:
            return False
        return True

    def _is_affordable(self, op: GraphOp) -> bool:
        size = _bytes(op.result_tensors)
        facts = self.context.facts
        if (size > SMALL and keeps_codes(op, facts)) or takes_codes_apart(op, facts):
            return False
        if size > max(GROWTH * _bytes(op.operand_tensors), SMALL):
            return False
        size *= _calls(op)
        if isinstance(op, TransposeOp) and _bytes(op.result_tensors) > SMALL and (
                self._is_read_both_ways(op)):
            return False
        if size > self.bytes_left:
            self._remark(op, f"{size} bytes exceed the budget for folded constants")
            return False
        return True

    def _is_read_both_ways(self, op: TransposeOp) -> bool:
        """Whether only products read the result, which are no constants themselves, while others
        read the operand."""
        source = op.operands[0]
        assert isinstance(source.owner, ConstantOp)
        return all(isinstance(use.operation, MatmulOp) and not _follows(use.operation)
                   for use in op.result.uses) and (
            source.owner.is_held(self.context.weights)
            or any(not isinstance(use.operation, TransposeOp) for use in source.uses))

    def _replace(self, op: GraphOp) -> None:
        store = self.context.weights
        operands = [v.owner for v in op.operands if isinstance(v.owner, ConstantOp)]
        try:
            made = self._parameters(op, operands) if _has_history(op, store) or any(
                c.varies or c.is_open(store) for c in operands) else self._constants(op, operands)
        except (ArithmeticError, IndexError, KeyError, ValueError) as error:
            self._remark(op, str(error.args[0] if error.args else error))
            return
        build = Build(op)
        for constant, type_ in zip(made, op.result_tensors, strict=True):
            self.made[constant] = _bytes([type_]) * _calls(op)
            self.bytes_left -= self.made[constant]
        replace(op, [build.insert(c).results[0] for c in made], self.context, "constant")
        for constant in {*operands} & self.made.keys():
            if constant.results[0].first_use is None:
                size = self.made.pop(constant)
                self.bytes_left, self.passed = self.bytes_left + size, self.passed + size
                erase(constant)

    def _constants(self, op: GraphOp, operands: Sequence[ConstantOp]) -> list[ConstantOp]:
        arrays = [c.contents(self.context.weights) for c in operands]
        made = evaluated(op, arrays)
        for array in arrays:
            release(array)
        return [ConstantOp.of_array(a, self.context.weights, _label(op)) for a in made]

    def _parameters(self, op: GraphOp, operands: Sequence[ConstantOp]) -> list[ConstantOp]:
        """Results that are computed anew when parameters have other values, or for each call."""
        label = _label(op)
        if any(c.varies for c in operands):
            label = op.name.removeprefix("graph.")
        return [ConstantOp.of_computed(
            operands, self.context.weights, label,
            f"{op.name} {dict(op.properties)} {[*map(str, op.operand_types)]} {k}",
            _computation(op, k, self.context.weights)) for k in range(len(op.results))]

    def _remark(self, op: GraphOp, reason: str) -> None:
        self.context.remark(self.pass_, op, f"{op.name} not folded: {reason}")


def _follows(op: Operation) -> bool:
    """Whether what an operation reads are constants, or follows from nothing but constants at
    once."""
    return all(isinstance(v.owner, ConstantOp) or (isinstance(v.owner, GraphOp) and all(
        isinstance(w.owner, ConstantOp) for w in v.owner.operands)) for v in op.operands)


def _has_history(op: GraphOp, store: WeightStore) -> bool:
    """Whether somebody computes the results in another arithmetic; single numbers, which rules
    look for, are written out."""
    return store.history is not None and all(
        is_float(t.element) and t.count.constant != 1 for t in op.result_tensors)


def _computation(op: GraphOp, number: int, store: WeightStore) -> Callable[..., Array]:
    """How a result is computed. Frequent ways need no operation of the IR for that."""
    shape = op.result_tensors[0].static_shape
    if isinstance(op, ReshapeOp) and shape is not None:
        return Reshaped(shape)
    if isinstance(op, TransposeOp) and shape is not None:
        order = ints_of(op.properties, "perm")
        sizes = dict(zip(order, shape, strict=True))
        return Transposed(tuple(sizes[d] for d in range(len(order))), tuple(order))
    types = [*op.operand_tensors, *op.result_tensors]
    if store.history is None and all(str(t.element) in FLOATS for t in types):
        if isinstance(op, CastOp):
            return Converted(types[-1].dtype)
        if (formula := op.name.removeprefix("graph.")) in FORMULAS:
            return Elementwise(formula)
    return Folded.of(op, number)


def _is_constant(op: GraphOp) -> bool:
    if isinstance(op, ConstantOp) or not op.MAY_FOLD:
        return False
    if not all(isinstance(v.owner, ConstantOp) for v in op.operands):
        return False
    if any(t.static_shape is None for t in op.result_tensors):
        return False
    return not any(_symbols(value) for value in op.properties.values())


def _symbols(attribute: object) -> bool:
    """Whether an attribute holds a size that is not a plain integer."""
    match attribute:
        case ExprAttr():
            return attribute.data.constant is None
        case SizesAttr():
            return any(e.constant is None for e in attribute.data)
        case _:
            return False


def _bytes(types: Sequence[TensorType]) -> int:
    """The total size of tensors of constant shape in bytes."""
    return sum(t.byte_size.constant or 0 for t in types)


def _calls(op: GraphOp) -> int:
    """How many arrays each result becomes: one, or one for each call of its function."""
    return max((len(v.owner.weights) for v in op.operands
                if isinstance(v.owner, ConstantOp) and v.owner.varies), default=1)


def _label(op: GraphOp) -> str:
    """The node's name; if it has none, the name of a constant operand and the operation."""
    labels = [v.owner.label for v in op.operands if isinstance(v.owner, ConstantOp)]
    step = op.name.removeprefix("graph.")
    return location_name(op) or ".".join([next(filter(None, labels), "constant"), step])


def _forget_unused(context: StrataContext, module: ModuleOp, before: set[str]) -> None:
    """Drop arrays that this run added to the store and that no constant refers to any more."""
    used = {weight.key.data for op in module.walk() if isinstance(op, ConstantOp)
            for weight in op.weights if isinstance(weight.key, StringAttr)}
    recipes = [*context.weights.recipes.values(), *(context.weights.history or {}).values()]
    sources = {key for recipe in recipes for key in recipe.sources}
    for key in set(context.weights.arrays) - before - used - sources:
        del context.weights.arrays[key]
