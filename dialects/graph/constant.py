"""Tensors without operands: constants, and values computed from sizes alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Attribute
from xdsl.irdl import MessageConstraint, base, opt_prop_def, prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from dialects.definition import irdl_op_definition
from dialects.graph.base import Attributes, GraphOp, ShapeError, ints_of, sizes_of
from dialects.graph.inference import NUMBERS, check_kind
from dialects.semantics.evaluation import EvaluationContext
from dialects.semantics.numerics import widen
from dialects.strata.types import (
    Array,
    ExprAttr,
    LiteralAttr,
    SizesAttr,
    TensorType,
    WeightAttr,
    WeightsAttr,
    element_of,
    i1,
    i64,
    is_float,
    tensor,
)
from dialects.strata.weights import WeightStore
from dialects.symbolic.expr import Expr
from dialects.text.syntax import location_name

MAX_LITERAL = 16
"""The largest number of elements of a constant that is written out in the IR."""

MAX_RANGE_SIZES = 64
"""The largest number of elements of a range that is evaluated symbolically."""


@irdl_op_definition
class ConstantOp(GraphOp):
    """A constant tensor: a literal, or a handle to an array in the weight store.

    In a function that several `strata.call` share, it may have a handle for each call.

    Constraints: (C1) the value is a literal, a weight, or one weight per call; (C2) a literal has
    one value per element of the result, whose shape is constant.
    Source: ONNX Constant and initializers.
    Example: %c = graph.constant {value = literal[1.0, -inf]} : f32[2]
    """

    name = "graph.constant"
    value = prop_def(MessageConstraint(
        base(LiteralAttr) | base(WeightAttr) | base(WeightsAttr),
        "C1: the value of graph.constant is a literal, a weight or one weight per call"))
    result = result_def(TensorType)

    @staticmethod
    def of_array(array: Array, store: WeightStore, label: str) -> ConstantOp:
        """The constant for an array. One with more than 16 elements goes into the store as
        `label`.
        """
        if array.size > MAX_LITERAL:
            value: Attribute = store.add(label, array)
        else:
            value = literal_of_array(array)
        return ConstantOp.of_value(value, tensor(element_of(array.dtype), array.shape))

    @staticmethod
    def parameter(name: str, array: Array, store: WeightStore) -> ConstantOp:
        """A constant whose contents may be others when the program runs."""
        return ConstantOp.of_value(store.add_parameter(name, array),
                                   tensor(element_of(array.dtype), array.shape))

    @staticmethod
    def of_computed(
        sources: Sequence[ConstantOp], store: WeightStore, label: str, computation: str,
        compute: Callable[..., Array],
    ) -> ConstantOp:
        """The constant for an array that is computed from others, completely as the text says.

        It is a parameter if one of them is, and another array in each call if one of them is.
        """
        varying = [source for source in sources if source.varies]
        if varying:
            return ConstantOp._per_call(sources, len(varying[0].weights), store, label, computation,
                                        compute)
        if store.history is None and not any(source.is_open(store) for source in sources):
            return ConstantOp.of_array(compute(*(s.contents(store) for s in sources)), store, label)
        keys = [s.handle(store) for s in sources]
        handle, array = store.derive(label, keys, computation, compute)
        return ConstantOp.of_value(handle, tensor(element_of(array.dtype), array.shape))

    @staticmethod
    def _per_call(
        sources: Sequence[ConstantOp], calls: int, store: WeightStore, label: str,
        computation: str, compute: Callable[..., Array],
    ) -> ConstantOp:
        """The constant for an array that is computed from others in each of several calls."""
        keys = [s.weights if s.varies else [s.handle(store)] * calls for s in sources]
        names = next(map(label_of, s.weights) for s in sources if s.varies)
        made = [store.derive(f"{name}.{label}", own, computation, compute)
                for name, own in zip(names, zip(*keys, strict=True), strict=True)]
        array, handles = made[0][1], [handle for handle, _ in made]
        is_one = all(handle.key == handles[0].key for handle in handles)
        value: Attribute = handles[0] if is_one else WeightsAttr(ArrayAttr(handles))
        return ConstantOp.of_value(value, tensor(element_of(array.dtype), array.shape))

    def derived(
        self, store: WeightStore, suffix: str, computation: str, compute: Callable[[Array], Array]
    ) -> ConstantOp:
        """The constant for an array that is computed from this one alone, as the text says.

        If this one is in the store, the result is, too; its contents are not hashed. `suffix`: what
        follows the name of the weight.
        """
        if isinstance(self.value, LiteralAttr):
            return ConstantOp.of_array(compute(self.array(store)), store, f"constant{suffix}")
        made = [store.derive(f"{label_of(weight)}{suffix}", [weight], computation, compute)
                for weight in self.weights]
        array = made[0][1]
        value: Attribute = made[0][0]
        if self.varies:
            value = WeightsAttr(ArrayAttr([handle for handle, _ in made]))
        return ConstantOp.of_value(value, tensor(element_of(array.dtype), array.shape))

    @staticmethod
    def of_value(value: Attribute, type_: TensorType) -> ConstantOp:
        return ConstantOp.create(properties={"value": value}, result_types=[type_])

    @staticmethod
    def scalar(value: float | bool, element: Attribute) -> ConstantOp:
        """A constant of no dims."""
        convert = float if is_float(element) else bool if element == i1 else int
        return ConstantOp.of_value(LiteralAttr((convert(value),)), tensor(element, ()))

    @property
    def type(self) -> TensorType:
        assert isinstance(self.result.type, TensorType)
        return self.result.type

    @property
    def label(self) -> str:
        """The name of the weight, or of the one in the first call; empty for a literal."""
        return label_of(self.weights[0]) if self.weights else ""

    @property
    def varies(self) -> bool:
        """Whether it is another weight in each call of its function."""
        return isinstance(self.value, WeightsAttr)

    @property
    def weights(self) -> Sequence[WeightAttr]:
        """The handles: one, one for each call, or none for a literal."""
        if isinstance(self.value, WeightsAttr):
            return self.value.members.data
        return [self.value] if isinstance(self.value, WeightAttr) else []

    def handle(self, store: WeightStore) -> WeightAttr:
        """The handle of the only weight; that of a literal, which goes into the store."""
        if isinstance(self.value, WeightAttr):
            return self.value
        return store.add(location_name(self), self.contents(store))

    def is_held(self, store: WeightStore) -> bool:
        """Whether it is a weight that the caller already holds on the device."""
        keys = [w.key for w in self.weights]
        return any(isinstance(key, StringAttr) and key.data in store.held for key in keys)

    def is_open(self, store: WeightStore) -> bool:
        """Whether its contents may be others when the program runs."""
        return any(map(store.is_open, self.weights))

    def has_history(self, store: WeightStore) -> bool:
        """Whether it was derived, and somebody computes it in another arithmetic."""
        known = store.history or {}
        return any(isinstance(w.key, StringAttr) and w.key.data in known for w in self.weights)

    def array(self, store: WeightStore, call: int | None = None) -> Array:
        """The value, in the call of that number if it varies, on which code depends from now on.

        Raises KeyError if the store lacks the weight, and ValueError without a call for a constant
        that varies.
        """
        return self._found(store.get, call)

    def contents(self, store: WeightStore, call: int | None = None) -> Array:
        """The value, from which something is computed, or which is loaded. Raises as `array`."""
        return self._found(store.contents, call)

    def _found(self, find: Callable[[WeightAttr], Array], call: int | None) -> Array:
        if isinstance(self.value, WeightsAttr):
            if call is None:
                raise ValueError(f"the constant {self.label!r} is another array in each call")
            return find(self.value.of_call(call))
        if isinstance(self.value, WeightAttr):
            return find(self.value)
        return array_of_literal(self.value, self.type)

    def is_finite(self, store: WeightStore) -> bool:
        """Whether all elements are finite, on which code depends from now on.

        Raises KeyError if the store lacks a weight.
        """
        if self.weights:
            return all(map(store.is_finite, self.weights))
        return bool(np.isfinite(self.array(store)).all())

    def arrays(self, store: WeightStore) -> list[Array]:
        """The contents in all calls. Raises KeyError if the store lacks a weight."""
        if self.varies:
            return [store.contents(weight) for weight in self.weights]
        return [self.contents(store)]

    def verify_(self) -> None:
        if not isinstance(self.value, LiteralAttr):
            return
        count = self.type.count.constant
        if count != len(self.value.data):
            given = len(self.value.data)
            raise VerifyException(
                f"graph.constant: C2: {given} values for the shape {self.type.short}"
            )

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        return self.contents(context.weights, context.call)

    def evaluate_sizes(self, *operands: Array) -> Array | None:
        if not isinstance(self.value, LiteralAttr):
            return None
        return expressions(self.array(WeightStore()))


def label_of(weight: WeightAttr) -> str:
    """The name of a weight."""
    return weight.label.data if isinstance(weight.label, StringAttr) else ""


def literal_of_array(array: Array) -> LiteralAttr:
    """The literal of an array's elements, row-major."""
    element = element_of(array.dtype)
    plain = widen(array).astype(np.float64) if is_float(element) else widen(array)
    return LiteralAttr(tuple(plain.reshape(-1).tolist()))


def array_of_literal(value: LiteralAttr, type_: TensorType) -> Array:
    """The array of a literal, whose type has constant sizes (C2)."""
    shape = type_.static_shape
    assert shape is not None
    # NumPy would turn Python integers above 2**63 among smaller ones into f64.
    wide = np.uint64 if type_.dtype == np.uint64 else None
    return np.array(value.data, wide).astype(type_.dtype).reshape(shape)


def expressions(array: Array) -> Array:
    """An integer array as an object array of size expressions."""
    result = np.empty(array.shape, object)
    result.reshape(-1)[:] = [Expr.of(v) for v in array.reshape(-1).tolist()]
    return result


# ---------------------------------------------------------------------- from sizes
@irdl_op_definition
class SizesOp(GraphOp):
    """A tensor of size expressions, of shape [] or [n].

    Constraints: (C1) `shape` has at most one dim, and its number of elements is the number of
    values; (C2) elements are numbers.
    Source: ONNX Shape, Size.
    Example: %s = graph.sizes {values = [n, 2*n + 1], shape = [2], to = i64} : i64[2]
        given %x: f32[n]
    """

    name = "graph.sizes"
    values = prop_def(SizesAttr)
    shape = prop_def(SizesAttr)
    to = opt_prop_def(Attribute)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: object, attributes: Attributes) -> list[TensorType]:
        shape, values = ints_of(attributes, "shape"), sizes_of(attributes, "values")
        if len(shape) > 1 or math.prod(shape) != len(values):
            raise ShapeError(f"C1: {len(values)} values do not fill the shape {list(shape)}")
        check_kind(NUMBERS, attributes.get("to", i64))
        return [tensor(attributes.get("to", i64), shape)]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        values = np.array(context.ints(self.values), np.int64)
        return values.astype(self.result_tensors[0].dtype).reshape(context.ints(self.shape))

    def evaluate_sizes(self, *operands: Array) -> Array | None:
        result = np.empty(ints_of(self.properties, "shape"), object)
        result.reshape(-1)[:] = self.values.data
        return result


@irdl_op_definition
class RangeOp(GraphOp):
    """start + k*step for k from 0 to count - 1, all three computed from sizes.

    Constraints: (C1) elements are numbers; (C2) count is not negative.
    Source: ONNX Range.
    Example: %r = graph.range {start = 0, step = 2, count = n, to = i64} : i64[n] given %x: f32[n]
    """

    name = "graph.range"
    start = prop_def(ExprAttr)
    step = prop_def(ExprAttr)
    count = prop_def(ExprAttr)
    to = opt_prop_def(Attribute)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: object, attributes: Attributes) -> list[TensorType]:
        count = attributes["count"]
        assert isinstance(count, ExprAttr)
        check_kind(NUMBERS, attributes.get("to", i64), "C1")
        if count.data.constant is not None and count.data.constant < 0:
            raise ShapeError(f"C2: the count {count.data} is negative")
        return [tensor(attributes.get("to", i64), [count.data])]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        steps = np.arange(context.int(self.count), dtype=np.int64)
        values = context.int(self.start) + steps * context.int(self.step)
        return values.astype(self.result_tensors[0].dtype)

    def evaluate_sizes(self, *operands: Array) -> Array | None:
        count = self.count.data.constant
        if count is None or count > MAX_RANGE_SIZES:
            return None
        result = np.empty(count, object)
        result[:] = [self.start.data + self.step.data * k for k in range(count)]
        return result
