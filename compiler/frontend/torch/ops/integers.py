"""Greatest common divisors, and integers that are combined bit by bit."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.frontend import formulas as f
from compiler.frontend.loops import Loop, Turn
from compiler.frontend.node import fixed
from compiler.frontend.peeling import repeat
from compiler.frontend.torch.node import Node
from compiler.frontend.torch.ops import aten_op
from compiler.frontend.values import Value
from dialects.graph.bits import BitcastOp
from dialects.strata import types as t
from dialects.symbolic.expr import Expr


@aten_op("aten.gcd.default", "prims.gcd.default")
def greatest_common_divisor(n: Node, a: Value, b: Value) -> Value:
    """By Euclid's algorithm, whose steps end once no element changes. gcd(0, 0) is 0."""
    node = n.build.node
    initial = [abs(v.cast(n.element)).broadcast(n.shape) for v in (a, b)]

    def goes_on(rest: Value) -> Value:
        left = (~f.equal(rest, 0)).cast(t.i32)
        return (f.reduce_max(left, axes=range(left.rank)) if left.rank else left) > 0

    def turn(step: Expr, values: list[Value]) -> Turn:
        whole, rest = values
        done = f.equal(rest, 0)
        left = f.where(done, 0, whole % f.where(done, 1, rest))
        return Turn(goes_on(left), [f.where(done, whole, rest), left], [])

    loop = Loop(f"{node}_body", None, goes_on(initial[1]), initial)
    [found, _], _ = repeat(n.build, loop, turn)
    n.build.node = node
    return found


@aten_op("prims.xor_sum.default", ignored=("output_dtype",))
def exclusive_or(n: Node, x: Value, dims: Sequence[int] | None) -> Value:
    """Over these dims: none for an empty list. Raises Fault for dims that are not constant."""
    chosen = n.axes(dims, x.rank) if dims or dims is None else []
    return _folded(n, x.cast(n.element), chosen, False)


@aten_op("aten.hash_tensor.default", ignored=("mode",))
def hash_tensor(n: Node, x: Value, dims: Sequence[int], keep: bool) -> Value:
    """The exclusive or of the elements' bits, as ui64: those of floats in f64, of others in i64."""
    bits = x.cast(t.f64 if t.is_float(x.element) else t.i64)
    bits = n(BitcastOp, bits, to=t.i64) if t.is_float(bits.element) else bits
    found = _folded(n, bits, n.axes(dims, x.rank), keep)
    return n(BitcastOp, found, to=t.ui64)


def _folded(n: Node, x: Value, axes: Sequence[int], keep: bool) -> Value:
    """Halves of each axis are combined until one entry is left; 0 where there is none."""
    kept = [Expr.of(1) if k in axes else s for k, s in enumerate(x.shape)
            if keep or k not in axes]
    counts = {axis: fixed(x.shape[axis], "reduced dims") for axis in axes}
    if 0 in counts.values():
        return n.scalar(0, x.element).broadcast(kept)
    for axis, count in counts.items():
        while count > 1:
            half = count // 2
            pairs = x.part(axis, 0, half) ^ x.part(axis, half, half)
            x = f.concat([pairs, x.part(axis, 2 * half, 1)], axis) if count % 2 else pairs
            count = half + count % 2
    return x.reshape(kept)
