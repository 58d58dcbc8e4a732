"""ArgMax, ArgMin, TopK, Hardmax, EyeLike, and cumulative sums and products."""

from __future__ import annotations

from compiler.frontend import formulas as f
from compiler.frontend.choices import choose
from compiler.frontend.elements import constant_of
from compiler.frontend.faults import Fault
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.onnx.ops.run_sizes import element
from compiler.frontend.values import Value
from dialects.graph.base import GraphOp
from dialects.graph.cumulative import CumulativeProdOp, CumulativeSumOp
from dialects.graph.ordering import ArgMaxOp, ArgMinOp, TopKOp
from dialects.strata import types as t
from dialects.strata.assumptions import Outcome
from dialects.symbolic.expr import Expr
from dialects.symbolic.size_products import product

_ARGS: dict[str, type[GraphOp]] = {"ArgMax": ArgMaxOp, "ArgMin": ArgMinOp}
_CUMULATIVE: dict[str, type[GraphOp]] = {"CumSum": CumulativeSumOp, "CumProd": CumulativeProdOp}


@onnx_op(*_ARGS)
def arg(n: Node, x: Value) -> Value:
    return n(_ARGS[n.op_type], x, axis=n.axis(n.integer("axis"), x.rank),
             keepdims=n.flag("keepdims", True), last=n.flag("select_last_index"))


@onnx_op(*_CUMULATIVE)
def cumulative(n: Node, x: Value, axis: Value) -> Value:
    """Along an axis; if only a run knows it, the results along all axes, of which one is chosen."""
    given = element(n, axis, "axis")
    known = constant_of(given)
    if known is not None:
        return _cumulative(n, x, n.axis(known, x.rank))
    n.require_index(axis, x.rank)
    found, at = _cumulative(n, x, 0), axis.reshape([]).cast(t.i64)
    for k in range(1, x.rank):
        is_own = f.equal(at, k) | f.equal(at, k - x.rank)
        found = f.where(is_own, _cumulative(n, x, k), found)
    return found


def _cumulative(n: Node, x: Value, axis: int) -> Value:
    return n(_CUMULATIVE[n.op_type], x, axis=axis, exclusive=n.flag("exclusive"),
             reverse=n.flag("reverse"))


# ---------------------------------------------------------------------- top k
@onnx_op("TopK")
def top_k_by_attribute(n: Node, x: Value) -> list[Value]:
    return _top_k(n, x, Expr.of(n.integer("k")))


@onnx_op("TopK", since=10)
def top_k(n: Node, x: Value, k: Value) -> list[Value]:
    return _top_k(n, x, n.known_size(k, "k"))


def _top_k(n: Node, x: Value, k: Expr) -> list[Value]:
    """The result is sorted, even if the node does not require that."""
    return n.build.results(TopKOp, x, axis=n.axis(n.integer("axis", -1), x.rank), k=k,
                           largest=n.flag("largest", True))


# ---------------------------------------------------------------------- hardmax
@onnx_op("Hardmax", since=13)
def hardmax(n: Node, x: Value) -> Value:
    """1 at the first largest element of an axis, 0 elsewhere."""
    return _hardmax(n, x, n.axis(n.integer("axis", -1), x.rank))


@onnx_op("Hardmax")
def hardmax_of_matrix(n: Node, x: Value) -> Value:
    """Hardmax over the dims from `axis` on, joined to one, as before opset 13."""
    axis = n.axis(n.integer("axis", 1), x.rank)
    rows = x.reshape([*x.shape[:axis], product(x.shape[axis:])])
    return _hardmax(n, rows, rows.rank - 1).reshape(x.shape)


def _hardmax(n: Node, x: Value, axis: int) -> Value:
    if _is_empty(n, x.shape[axis]):
        return x
    where = n(ArgMaxOp, x, axis=axis, keepdims=True, last=False)
    return f.equal(n.positions(x, axis), where).cast(x.element)


def _is_empty(n: Node, size: Expr) -> bool:
    """Whether a size is 0; that of an open one is a choice, which the size of a call decides."""
    if size.constant is not None:
        return size.constant == 0
    return choose(n.build, [Outcome("some", Expr.of(1), "<=", size),
                            Outcome("empty", size, "==", Expr.of(0))]) == "empty"


@onnx_op("EyeLike")
def eye_like(n: Node, x: Value) -> Value:
    """Ones on the diagonal k, zeros elsewhere."""
    if x.rank != 2:
        raise Fault(f"{x.type.short} is not a matrix")
    rows = n.range(x.shape[0], start=n.integer("k"))
    diagonal = f.equal(n.positions(x, 1), rows.reshape([x.shape[0], 1]))
    return diagonal.cast(n.element("dtype", x.element))
