"""The LSTM layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

import numpy as np
from xdsl.dialects.builtin import IntegerAttr, StringAttr
from xdsl.ir import SSAValue
from xdsl.irdl import operand_def, opt_prop_def, prop_def, result_def, var_operand_def

from dialects.definition import irdl_op_definition
from dialects.graph.base import Attributes, Build, CompositeOp, ShapeError, flag_of, int_of, text_of
from dialects.graph.composite import cast, part, reshaped, scalar, wide
from dialects.graph.contraction import MatmulOp
from dialects.graph.elementwise import AddOp, MulOp
from dialects.graph.inference import FLOATS, check_kind, check_rank, check_same_element, same_size
from dialects.graph.shape import BroadcastOp, ConcatOp, TransposeOp
from dialects.graph.unary import SigmoidOp, TanhOp
from dialects.records import dataclass
from dialects.semantics.carriers import as_in
from dialects.semantics.evaluation import EvaluationContext
from dialects.semantics.numerics import rounded, sigmoid, widen
from dialects.strata.types import Array, ExprAttr, TensorType, tensor, tensor_type
from dialects.symbolic.expr import Expr

_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
"""For each direction, whether time runs backwards."""

T = TypeVar("T")

MAX_STEPS = 4096
"""Longer sequences would be unrolled into too many operations."""

_OPTIONAL = ("has_bias", "has_initial_h", "has_initial_c")


@irdl_op_definition
class LstmOp(CompositeOp):
    """A long short-term memory layer.

    Results: Y [seq, dirs, batch, h], Y_h and Y_c [dirs, batch, h].
    Operands: x [seq, batch, in], w [dirs, 4h, in], r [dirs, 4h, h], then as the flags say
    b [dirs, 8h] (of w, then of r), initial_h and initial_c [dirs, batch, h], zero when missing.
    Gates in the order i, o, f, c: [i, o, f, g] = x_t @ w' + h @ r' + b; with sigmoids of i, o, f,
    c = f*c + i*tanh(g) and h = o*tanh(c). Time runs backwards in the direction "reverse" and in
    the second of "bidirectional". f16 and bf16 are computed in f32 and rounded once.
    Constraints: (C1) equal float element types; (C2) the direction is one of the three; (C3) the
    operands have the shapes above; (C4) one operand after r per flag that is set.
    To decompose it, seq must be a constant from 1 to 4096.
    Source: ONNX LSTM with default activations, layout 0, no peepholes, no clip.
    Example: %y, %h, %c = graph.lstm %x, %w, %r {hidden_size = 5, direction = "forward"} :
        f32[7, 1, n, 5], f32[1, n, 5], f32[1, n, 5]
        given %x: f32[7, n, 3], %w: f32[1, 20, 3], %r: f32[1, 20, 5]
    """

    name = "graph.lstm"
    x = operand_def(TensorType)
    w = operand_def(TensorType)
    r = operand_def(TensorType)
    extras = var_operand_def(TensorType)
    hidden_size = prop_def(ExprAttr)
    direction = prop_def(StringAttr)
    has_bias = opt_prop_def(IntegerAttr)
    has_initial_h = opt_prop_def(IntegerAttr)
    has_initial_c = opt_prop_def(IntegerAttr)
    y = result_def(TensorType)
    y_h = result_def(TensorType)
    y_c = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        check_same_element(types)
        check_kind(FLOATS, types[0].element, "C1")
        if text_of(attributes, "direction") not in _DIRECTIONS:
            raise ShapeError(f"C2: unknown direction {attributes['direction']}")
        check_rank(types[0], 3, "x", "C3")
        seq, batch, _ = types[0].shape
        hidden = int_of(attributes, "hidden_size")
        dirs = len(_DIRECTIONS[text_of(attributes, "direction")])
        _check_shapes(types, attributes, hidden, dirs)
        state = tensor(types[0].element, [dirs, batch, hidden])
        return [tensor(types[0].element, [seq, dirs, batch, hidden]), state, state]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Sequence[Array]:
        parts = _split(self.properties, list(map(widen, operands)))
        runs = [self._run(d, reverse, parts) for d, reverse in enumerate(self._reversed)]
        stacked = [np.stack(values, axis) for axis, values in
                   zip((1, 0, 0), zip(*runs, strict=True), strict=True)]
        return [rounded(v, t) for v, t in zip(stacked, self.result_tensors, strict=True)]

    def _run(self, d: int, reverse: bool, parts: _Parts[Array]) -> tuple[Array, Array, Array]:
        """One direction: all hidden states, and the last hidden and cell state."""
        x, size = parts.x, int_of(self.properties, "hidden_size")
        zeros = np.zeros((x.shape[1], size), x.dtype)
        h = parts.initial_h[d] if parts.initial_h is not None else zeros
        c = parts.initial_c[d] if parts.initial_c is not None else zeros
        gates = x @ parts.w[d].T
        if parts.b is not None:
            gates += parts.b[d, :4 * size] + parts.b[d, 4 * size:]
        y = as_in(np.zeros((x.shape[0], *h.shape), x.dtype), x)
        for t in _times(x.shape[0], reverse):
            i, o, f, g = np.split(gates[t] + h @ parts.r[d].T, 4, axis=1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = y[t] = sigmoid(o) * np.tanh(c)
        return y, h, c

    @property
    def _reversed(self) -> tuple[bool, ...]:
        return _DIRECTIONS[self.direction.data]

    def decompose(self, build: Build) -> Sequence[SSAValue]:
        steps = tensor_type(self.x).shape[0].constant
        if steps is None or not 1 <= steps <= MAX_STEPS:
            raise ShapeError(
                f"graph.lstm needs a constant sequence length from 1 to {MAX_STEPS} to be "
                f"unrolled, not {tensor_type(self.x).shape[0]}: fix that size, or run it on the "
                "reference target"
            )
        parts = _split(self.properties, [wide(build, v) for v in self.operands])
        runs = [_Direction(build, parts, int_of(self.properties, "hidden_size"), d)
                .unroll(_times(steps, reverse)) for d, reverse in enumerate(self._reversed)]
        results = [build(ConcatOp, *values, axis=axis) for axis, values in
                   zip((1, 0, 0), zip(*runs, strict=True), strict=True)]
        return [cast(build, v, t.element) for v, t in
                zip(results, self.result_tensors, strict=True)]


def _times(steps: int, reverse: bool) -> Sequence[int]:
    return range(steps)[::-1] if reverse else range(steps)


def _check_shapes(
    types: Sequence[TensorType], attributes: Attributes, hidden: int, dirs: int
) -> None:
    _, batch, features = types[0].shape
    state = (dirs, batch, hidden)
    optional = dict(zip(_OPTIONAL, ((dirs, 8 * hidden), state, state), strict=True))
    wanted = [(dirs, 4 * hidden, features), (dirs, 4 * hidden, hidden)]
    wanted += [shape for flag, shape in optional.items() if flag_of(attributes, flag)]
    if len(types) != 1 + len(wanted):
        raise ShapeError(f"C4: the flags ask for {1 + len(wanted)} operands, not {len(types)}")
    for type_, shape in zip(types[1:], wanted, strict=True):
        expected = tensor(type_.element, shape)
        check_rank(type_, expected.rank, f"an operand like {expected.short}", "C3")
        for size, other in zip(type_.shape, expected.shape, strict=True):
            same_size(size, other, f"C3: {type_.short} must be {expected.short}")


@dataclass(frozen=True)
class _Parts(Generic[T]):
    """The operands by name."""

    x: T
    w: T
    r: T
    b: T | None
    initial_h: T | None
    initial_c: T | None


def _split(attributes: Attributes, operands: list[T]) -> _Parts[T]:
    x, w, r, *rest = operands
    extras = iter(rest)
    return _Parts(x, w, r, *(next(extras) if flag_of(attributes, f) else None for f in _OPTIONAL))


@dataclass(frozen=True)
class _Direction:
    """One direction of the layer as operations."""

    build: Build
    parts: _Parts[SSAValue]
    hidden: int
    index: int

    def unroll(self, times: Sequence[int]) -> tuple[SSAValue, SSAValue, SSAValue]:
        """All hidden states [seq, 1, batch, h], the last hidden and cell state [1, batch, h]."""
        gates, recurrent = self._input_gates(), self._transposed(self.parts.r)
        h, c = self._initial(self.parts.initial_h), self._initial(self.parts.initial_c)
        states: dict[int, SSAValue] = {}
        for t in times:
            now = reshaped(self.build, part(self.build, gates, 0, t, 1), self._sizes(4))
            h, c = self._step(self.build(AddOp, now, self.build(MatmulOp, h, recurrent)), c)
            states[t] = reshaped(self.build, h, (1, 1, *self._sizes()))
        y = self.build(ConcatOp, *(states[t] for t in sorted(states)), axis=0)
        last = (1, *self._sizes())
        return y, reshaped(self.build, h, last), reshaped(self.build, c, last)

    def _sizes(self, factor: int = 1) -> tuple[Expr, int]:
        """[batch, factor * h]."""
        return tensor_type(self.parts.x).shape[1], factor * self.hidden

    def _own(self, value: SSAValue) -> SSAValue:
        """This direction's part of a weight or state, without the first dim."""
        return reshaped(self.build, part(self.build, value, 0, self.index, 1),
                        tensor_type(value).shape[1:])

    def _transposed(self, weight: SSAValue) -> SSAValue:
        return self.build(TransposeOp, self._own(weight), perm=[1, 0])

    def _input_gates(self) -> SSAValue:
        """The part of all gates that comes from x and the bias: [seq, batch, 4h]."""
        gates = self.build(MatmulOp, self.parts.x, self._transposed(self.parts.w))
        if self.parts.b is None:
            return gates
        bias, size = self._own(self.parts.b), 4 * self.hidden
        halves = [part(self.build, bias, 0, start, size) for start in (0, size)]
        return self.build(AddOp, gates, self.build(AddOp, *halves))

    def _initial(self, state: SSAValue | None) -> SSAValue:
        if state is not None:
            return self._own(state)
        return self.build(BroadcastOp, scalar(self.build, 0, self.parts.x),
                          shape=list(self._sizes()))

    def _step(self, gates: SSAValue, c: SSAValue) -> tuple[SSAValue, SSAValue]:
        """(h, c) after one step."""
        build = self.build
        i, o, f, g = (part(build, gates, 1, k * self.hidden, self.hidden) for k in range(4))
        kept = build(MulOp, build(SigmoidOp, f), c)
        c = build(AddOp, kept, build(MulOp, build(SigmoidOp, i), build(TanhOp, g)))
        return build(MulOp, build(SigmoidOp, o), build(TanhOp, c)), c
