"""com.microsoft: positions, as rotations of the parts of a head or as biases of the scores."""

from __future__ import annotations

import numpy as np

from compiler.frontend.faults import Fault
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops.contrib import contrib_op, fixed, positive, refuse, single, total
from compiler.frontend.onnx.ops.contrib_attention import merge_heads, places, split_heads
from compiler.frontend.onnx.ops.slicing import take
from compiler.frontend.values import Value
from dialects import types as t
from dialects.expr import Expr
from dialects.graph.elementwise import AddOp, DivOp, MaxOp, MinOp, MulOp, SubOp
from dialects.graph.gather import GatherOp
from dialects.graph.logic import GreaterOp, LessOp, WhereOp
from dialects.graph.shape import ConcatOp
from dialects.graph.unary import AbsOp, CosOp, LogOp, SinOp


# ---------------------------------------------------------------------- rotations
def rotated(
    n: Node, x: Value, where: Value, cos: Value, sin: Value, interleaved: bool
) -> Value:
    """x [b, h, s, d] with the pairs of its first entries turned by their position's angles.

    `where`: the positions, [s] or [b, s]. `cos`, `sin`: [positions, r/2]. The pairs are the halves
    of the first r entries of a head or, interleaved, neighbours.
    """
    half, size = fixed(n, cos.shape[1], "rotary sizes"), fixed(n, x.shape[3], "head sizes")
    if 2 * half > size:
        raise Fault(f"{half} angles do not fit heads of {size}")
    factors = [n(GatherOp, table, where, axis=0) for table in (cos, sin)]
    c, s = (n.reshape(f, [f.shape[0], 1, *f.shape[1:]]) if f.rank == 3 else f for f in factors)
    turned = n.part(x, 3, 0, 2 * half)
    left, right = _neighbours(n, turned) if interleaved else (
        n.part(turned, 3, k * half, half) for k in (0, 1))
    pair = [n(SubOp, n(MulOp, left, c), n(MulOp, right, s)),
            n(AddOp, n(MulOp, right, c), n(MulOp, left, s))]
    if interleaved:
        both = [n.reshape(v, [*v.shape, 1]) for v in pair]
        pair = [n.reshape(n(ConcatOp, *both, axis=4), turned.shape)]
    rest = [n.part(x, 3, 2 * half, size - 2 * half)] if size > 2 * half else []
    parts = [*pair, *rest]
    return n(ConcatOp, *parts, axis=3) if len(parts) > 1 else parts[0]


def _neighbours(n: Node, x: Value) -> list[Value]:
    """The even and the odd entries of the last dim."""
    sizes = [*x.shape[:-1], x.shape[-1] // 2]
    return [take(n, x, [*[Expr.of(0)] * (x.rank - 1), Expr.of(k)], sizes,
                 [*[1] * (x.rank - 1), 2]) for k in (0, 1)]


@contrib_op("RotaryEmbedding", ranks=((3, 4), (0, 1, 2), 2, 2))
def rotary_embedding(n: Node, x: Value, ids: Value, cos: Value, sin: Value) -> Value:
    """x is [b, s, h*d] or [b, h, s, d]; the ids are positions [b, s], or [1], the first one."""
    refuse(n, "is_packed_batching")
    heads = x if x.rank == 4 else split_heads(n, x, _heads(n, x, cos))
    where = ids if ids.rank == 2 else n(AddOp, n.reshape(ids, [1]), places(n, heads.shape[2]))
    y = rotated(n, heads, where, cos, sin, n.flag("interleaved"))
    return y if x.rank == 4 else merge_heads(n, y)


def _heads(n: Node, x: Value, cos: Value) -> int:
    """Without rotary_embedding_dim a head is as long as its angles are many."""
    if n.integer("rotary_embedding_dim"):
        return positive(n, "num_heads")
    return fixed(n, x.shape[-1], "hidden sizes") // (2 * fixed(n, cos.shape[1], "rotary sizes"))


@contrib_op("GemmaRotaryEmbedding", ranks=(3, 4, 4, 4, 4))
def gemma_rotary_embedding(
    n: Node, angles: Value, q: Value, q_turned: Value, k: Value, k_turned: Value
) -> list[Value]:
    """x * cos(angles) + turned x * sin(angles), for q and k."""
    wide = n.reshape(angles, [angles.shape[0], 1, *angles.shape[1:]])
    cos, sin = (n.cast(n(op, wide), q.element) for op in (CosOp, SinOp))
    return [n(AddOp, n(MulOp, x, cos), n(MulOp, turned, sin))
            for x, turned in ((q, q_turned), (k, k_turned))]


# ---------------------------------------------------------------------- biases
@contrib_op("RelativePositionBias", ranks=(2,))
def relative_position_bias(
    n: Node, table: Value, query_length: Value, key_length: Value
) -> Value:
    """[1, heads, queries, keys]: the table's entry for the bucket of each distance.

    Half of the buckets hold one distance each, the others ever more, up to max_distance. The
    table, of the shape [buckets, heads], lies in memory head by head.
    """
    buckets, heads = (fixed(n, s, "buckets and heads") for s in table.shape)
    queries, keys = (single(n, v, "lengths") for v in (query_length, key_length))
    distance = n(SubOp, places(n, queries, column=True), places(n, keys))
    both = n.flag("is_bidirectional")
    count = buckets // 2 if both else buckets
    zero = n.scalar(0, distance)
    bucket = _bucket(n, n(AbsOp, distance) if both else n(MaxOp, distance, zero), count)
    if both:
        offset = n(WhereOp, n(LessOp, distance, zero), n.scalar(count, distance), zero)
        bucket = total(n, bucket, offset)
    by_head = n(GatherOp, n.reshape(table, [heads, buckets]), bucket, axis=1)
    return n.reshape(by_head, [1, *by_head.shape])


def _bucket(n: Node, distance: Value, count: int) -> Value:
    """The distance itself below count / 2; beyond, on a logarithmic scale."""
    exact = count // 2
    if exact < 1 or n.integer("max_distance") <= exact:
        raise Fault(f"{count} buckets and max_distance {n.integer('max_distance')} do not fit")
    step = (count - exact) / np.log(n.integer("max_distance") / exact)
    far = n(MaxOp, n.cast(distance, t.f32), n.scalar(exact, n.cast(distance, t.f32)))
    steps = n(MulOp, n(LogOp, n(DivOp, far, n.scalar(exact, far))), n.scalar(step, far))
    coarse = n(AddOp, n.cast(steps, t.i64), n.scalar(exact, distance))
    coarse = n(MinOp, coarse, n.scalar(count - 1, coarse))
    return n(WhereOp, n(GreaterOp, n.scalar(exact, distance), distance), distance, coarse)
