"""Elementwise operations, reductions, products, and orders, as operators of ATen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import getitem
from typing import Any

from compiler.fx.writer import Unwritable, Writer, writes
from dialects.graph import elementwise as e
from dialects.graph import exponential as x
from dialects.graph import logic
from dialects.graph import trigonometric as tr
from dialects.graph import unary as u
from dialects.graph.base import GraphOp, flag_of, int_of, ints_of
from dialects.graph.bits import BitcastOp, PhiloxOp, ShiftLeftOp, ShiftRightOp
from dialects.graph.contraction import MatmulOp
from dialects.graph.cumulative import CumulativeProdOp, CumulativeSumOp
from dialects.graph.grouped import GroupedMatmulOp
from dialects.graph.normalization import LogSoftmaxOp, SoftmaxOp
from dialects.graph.ordering import ArgMaxOp, ArgMinOp, TopKOp
from dialects.graph.reduce import (
    ReduceMaxOp,
    ReduceMeanOp,
    ReduceMinOp,
    ReduceProdOp,
    ReduceSumOp,
)
from dialects.graph.search import SearchSortedOp
from dialects.semantics.numerics import highest, lowest
from dialects.semantics.philox import philox
from dialects.strata import types as t
from dialects.strata.types import tensor_type

_PLAIN: Mapping[type[GraphOp], str] = {
    e.AddOp: "add.Tensor", e.SubOp: "sub.Tensor", e.MulOp: "mul.Tensor",
    e.ModOp: "remainder.Tensor",
    e.FmodOp: "fmod.Tensor", e.PowOp: "pow.Tensor_Tensor", e.MaxOp: "maximum.default",
    e.MinOp: "minimum.default", logic.AndOp: "bitwise_and.Tensor",
    logic.OrOp: "bitwise_or.Tensor", logic.XorOp: "bitwise_xor.Tensor",
    logic.EqualOp: "eq.Tensor", logic.LessOp: "lt.Tensor", logic.LessEqualOp: "le.Tensor",
    logic.GreaterOp: "gt.Tensor", logic.GreaterEqualOp: "ge.Tensor", logic.WhereOp: "where.self",
    u.NegOp: "neg.default", u.AbsOp: "abs.default", u.ExpOp: "exp.default",
    u.LogOp: "log.default", u.SqrtOp: "sqrt.default", u.ReciprocalOp: "reciprocal.default",
    u.TanhOp: "tanh.default", u.ErfOp: "erf.default", u.SinOp: "sin.default",
    u.CosOp: "cos.default", u.SigmoidOp: "sigmoid.default", u.FloorOp: "floor.default",
    u.CeilOp: "ceil.default", u.RoundOp: "round.default", u.IsnanOp: "isnan.default",
    u.IsinfOp: "isinf.default", x.Log1pOp: "log1p.default", x.Expm1Op: "expm1.default",
    x.Exp2Op: "exp2.default", x.Log2Op: "log2.default", x.Log10Op: "log10.default",
    tr.TanOp: "tan.default", tr.AsinOp: "asin.default", tr.AcosOp: "acos.default",
    tr.AtanOp: "atan.default", tr.SinhOp: "sinh.default", tr.CoshOp: "cosh.default",
    tr.AsinhOp: "asinh.default", tr.AcoshOp: "acosh.default", tr.AtanhOp: "atanh.default",
    ShiftLeftOp: "bitwise_left_shift.Tensor", ShiftRightOp: "bitwise_right_shift.Tensor",
}


@writes(*_PLAIN)
def plain(w: Writer, op: GraphOp) -> Any:
    return w.call(_PLAIN[type(op)], *w.operands(op))


@writes(e.DivOp)
def quotient(w: Writer, op: GraphOp) -> Any:
    """Integers are divided toward zero."""
    if t.is_float(op.result_tensors[0].element):
        return w.call("div.Tensor", *w.operands(op))
    return w.call("div.Tensor_mode", *w.operands(op), rounding_mode="trunc")


@writes(u.NotOp)
def inverted(w: Writer, op: GraphOp) -> Any:
    return w.call("bitwise_not.default", w.operand(op))


@writes(u.SignOp)
def sign(w: Writer, op: GraphOp) -> Any:
    """NaN has itself as sign."""
    given = w.operand(op)
    found = w.call("sign.default", given)
    if not t.is_float(op.result_tensors[0].element):
        return found
    return w.call("where.self", w.call("isnan.default", given), given, found)


@writes(u.CastOp)
def cast(w: Writer, op: u.CastOp) -> Any:
    if op.rounding or op.saturates:
        raise Unwritable("it rounds or saturates")
    return w.cast(w.operand(op), w.dtype_of(op.result_tensors[0]))


@writes(BitcastOp)
def bitcast(w: Writer, op: BitcastOp) -> Any:
    if op.to == t.i1:
        return w.call("ne.Scalar", w.operand(op), 0)
    return w.call("view.dtype", w.operand(op), w.dtype_of(op.result_tensors[0]))


@dataclass(frozen=True)
class _Word:
    """A node of 64-bit integers, with the operators of which random bits are made."""

    writer: Writer
    node: Any

    def _with(self, name: str, other: _Word | int) -> _Word:
        kind, given = ("Tensor", other.node) if isinstance(other, _Word) else ("Scalar", other)
        shift = "Tensor_" if name.endswith("shift") else ""
        return _Word(self.writer, self.writer.call(f"{name}.{shift}{kind}", self.node, given))

    def __add__(self, other: int) -> _Word:
        return self._with("add", other)

    def __mul__(self, other: int) -> _Word:
        return self._with("mul", other)

    def __and__(self, other: int) -> _Word:
        return self._with("bitwise_and", other)

    def __or__(self, other: _Word) -> _Word:
        return self._with("bitwise_or", other)

    def __xor__(self, other: _Word | int) -> _Word:
        return self._with("bitwise_xor", other)

    def __lshift__(self, bits: int) -> _Word:
        return self._with("bitwise_left_shift", bits)

    def __rshift__(self, bits: int) -> _Word:
        return self._with("bitwise_right_shift", bits)


@writes(PhiloxOp)
def random_bits(w: Writer, op: PhiloxOp) -> Any:
    place, seed = (_Word(w, node) for node in w.operands(op))
    return philox(place, seed, int_of(op.properties, "draw")).node


# ---------------------------------------------------------------------- reductions
_REDUCTIONS: Mapping[type[GraphOp], str] = {
    ReduceMaxOp: "amax.default", ReduceMinOp: "amin.default"}


@writes(ReduceMaxOp, ReduceMinOp, ReduceSumOp, ReduceMeanOp)
def reduction(w: Writer, op: GraphOp) -> Any:
    axes, keep = list(ints_of(op.properties, "axes")), flag_of(op.properties, "keepdims")
    given, dtype = w.operand(op), w.dtype_of(op.result_tensors[0])
    if not axes:
        return w.call("alias.default", given)
    if type(op) in _REDUCTIONS:
        return w.call(_REDUCTIONS[type(op)], _not_empty(w, op, given, axes), axes, keep)
    if isinstance(op, ReduceSumOp):
        return w.call("sum.dim_IntList", given, axes, keep, dtype=dtype)
    if not dtype.is_floating_point:
        raise Unwritable("ATen has no mean of integers")
    return w.call("mean.dim", given, axes, keep, dtype=dtype)


def _not_empty(w: Writer, op: GraphOp, node: Any, axes: list[int]) -> Any:
    """The operand of an extremum with one more, neutral, entry of each axis that may be empty."""
    x, dtype = op.operand_tensors[0], op.result_tensors[0].dtype
    neutral = lowest(dtype) if isinstance(op, ReduceMaxOp) else highest(dtype)
    for axis in axes:
        if not x.shape[axis].constant:
            pads = [0] * (2 * (x.rank - axis - 1)) + [0, 1]
            node = w.call("constant_pad_nd.default", node, pads, neutral)
    return node


@writes(ReduceProdOp)
def product(w: Writer, op: GraphOp) -> Any:
    """One axis after another, the last first."""
    node, dtype = w.operand(op), w.dtype_of(op.result_tensors[0])
    for axis in ints_of(op.properties, "axes")[::-1]:
        node = w.call("prod.dim_int", node, axis, flag_of(op.properties, "keepdims"), dtype=dtype)
    return node


@writes(MatmulOp)
def matmul(w: Writer, op: MatmulOp) -> Any:
    """With `to`, operands are converted first."""
    given, result = w.operands(op), op.result_tensors[0]
    if any(tensor_type(v).element != result.element for v in op.operands):
        given = [w.cast(node, w.dtype_of(result)) for node in given]
    return w.call("matmul.default", *given)


@writes(GroupedMatmulOp)
def grouped(w: Writer, op: GroupedMatmulOp) -> Any:
    """All rows times each matrix, of which a row takes one: PyTorch's own operator needs rows of 16
    bytes. Rows after the last group are 0."""
    a, b, ends = w.operands(op)
    rows, count = tensor_type(op.operands[0]).shape[0], tensor_type(op.operands[1]).shape[0]
    groups = w.call("searchsorted.Tensor", ends, w.call("arange.default", w.size(rows)),
                    right=True)
    numbers = w.call("arange.default", w.size(count))
    numbers = w.call("reshape.default", numbers, [-1, 1])
    is_it = w.call("unsqueeze.default", w.call("eq.Tensor", numbers, groups), -1)
    products = w.call("matmul.default", w.call("unsqueeze.default", a, 0), b)
    zero = w.call("full.default", [], 0, dtype=w.dtype_of(op.result_tensors[0]))
    return w.call("sum.dim_IntList", w.call("where.self", is_it, products, zero), [0], False,
                  dtype=w.dtype_of(op.result_tensors[0]))


@writes(SoftmaxOp, LogSoftmaxOp)
def softmax(w: Writer, op: GraphOp) -> Any:
    name = "_softmax.default" if isinstance(op, SoftmaxOp) else "_log_softmax.default"
    return w.call(name, w.operand(op), int_of(op.properties, "axis"), False)


# ---------------------------------------------------------------------- orders
@writes(CumulativeSumOp, CumulativeProdOp)
def cumulative(w: Writer, op: GraphOp) -> Any:
    """Reversed by flipping; exclusive ones start with 0 or 1."""
    axis, node = int_of(op.properties, "axis"), w.operand(op)
    reverse, dtype = flag_of(op.properties, "reverse"), w.dtype_of(op.result_tensors[0])
    node = w.call("flip.default", node, [axis]) if reverse else node
    is_sum = isinstance(op, CumulativeSumOp)
    if flag_of(op.properties, "exclusive"):
        rank = op.result_tensors[0].rank
        pads = [0] * (2 * (rank - axis - 1)) + [1, -1]
        node = w.call("constant_pad_nd.default", node, pads, 0 if is_sum else 1)
    node = w.call("cumsum.default" if is_sum else "cumprod.default", node, axis, dtype=dtype)
    return w.call("flip.default", node, [axis]) if reverse else node


@writes(TopKOp)
def top_k(w: Writer, op: TopKOp) -> list[Any]:
    """The first entries of a stable sort."""
    axis = int_of(op.properties, "axis")
    both = w.call("sort.stable", w.operand(op), stable=True, dim=axis,
                  descending=flag_of(op.properties, "largest"))
    return [w.call("slice.Tensor", w.graph.call_function(getitem, (both, k)), axis, 0,
                   w.size(op.k.data)) for k in range(2)]


@writes(ArgMaxOp, ArgMinOp)
def position(w: Writer, op: GraphOp) -> Any:
    if flag_of(op.properties, "last"):
        raise Unwritable("ATen finds the first of equal elements, not the last")
    name = "argmax.default" if isinstance(op, ArgMaxOp) else "argmin.default"
    return w.call(name, w.operand(op), int_of(op.properties, "axis"),
                  flag_of(op.properties, "keepdims"))


@writes(SearchSortedOp)
def search_sorted(w: Writer, op: SearchSortedOp) -> Any:
    return w.call("searchsorted.Tensor", *w.operands(op), right=True)


