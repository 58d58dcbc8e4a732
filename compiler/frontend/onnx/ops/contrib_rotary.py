"""com.microsoft: positions, as rotations of the entries of a head, or as biases of the scores."""

from __future__ import annotations

import numpy as np

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops.contrib import (
    contrib_op,
    fixed,
    positive,
    refuse,
    share,
    total,
)
from compiler.frontend.onnx.ops.contrib_attention import merge_heads, places, split_heads
from compiler.frontend.onnx.ops.slicing import take
from compiler.frontend.values import Value
from dialects.graph.inference import certain_sign
from dialects.graph.logic import GreaterOp
from dialects.graph.unary import CosOp, SinOp
from dialects.strata import types as t
from dialects.symbolic.expr import Expr
from dialects.symbolic.ranges import is_at_most


# ---------------------------------------------------------------------- rotations
def rotated(
    n: Node, x: Value, where: Value, cos: Value, sin: Value, interleaved: bool
) -> Value:
    """x [b, h, s, d] with pairs of the first r entries of each head rotated by their position's
    angles.

    `where`: the positions, [s] or [b, s]. `cos`, `sin`: [positions, r/2]. Entry k is paired with
    entry k + r/2 or, if interleaved, entry 2*k with entry 2*k + 1.

    A reshape gives the two entries of a pair a dim of their own. The pairs times the cosine, plus
    the exchanged pairs, with opposite sign for the first entry, times the sine, are the result.
    This way no halves are concatenated.
    """
    half, size = cos.shape[1], x.shape[3]
    if certain_sign(size - 2 * half) == -1:
        raise Fault(f"{half} angles per position need heads of at least {2 * half} entries, not "
                    f"{size}")
    if not is_at_most(2 * half, size):
        n.build.assume(2 * half, "<=", size)
    n.require(0, where, cos.shape[0])
    factors = [f.gather(table, where, axis=0) for table in (cos, sin)]
    spread = [half, 1] if interleaved else [1, half]
    c, s = (v.reshape([*([v.shape[0], 1] if v.rank == 3 else []), v.shape[-2], *spread])
            for v in factors)
    turned = x.part(3, 0, 2 * half)
    axis = 4 if interleaved else 3
    pairs = turned.reshape([*x.shape[:3], *([half, 2] if interleaved else [2, half])])
    signs = n.constant(np.array([-1, 1], x.type.dtype).reshape(
        [1, 2] if interleaved else [2, 1]))
    others = _exchanged(n, pairs, axis) * signs
    y = (pairs * c + others * s).reshape(turned.shape)
    rest = x.part(3, 2 * half, size - 2 * half)
    return y if rest.shape[3].constant == 0 else f.concat([y, rest], axis=3)


def _exchanged(n: Node, pairs: Value, axis: int) -> Value:
    """The two entries of a dim, exchanged."""
    starts = [Expr.of(int(d == axis)) for d in range(pairs.rank)]
    return take(n, pairs, starts, pairs.shape, [-1 if d == axis else 1 for d in range(pairs.rank)])


@contrib_op("RotaryEmbedding", ranks=((3, 4), (0, 1, 2), 2, 2))
def rotary_embedding(n: Node, x: Value, ids: Value, cos: Value, sin: Value) -> Value:
    """x is [b, s, h*d] or [b, h, s, d]. The ids are positions [b, s], or the first position, [1].
    """
    refuse(n, "is_packed_batching")
    heads = x if x.rank == 4 else _split(n, x, cos)
    where = ids if ids.rank == 2 else ids.reshape([1]) + places(n, heads.shape[2])
    y = rotated(n, heads, where, cos, sin, n.flag("interleaved"))
    return y if x.rank == 4 else merge_heads(y)


def _split(n: Node, x: Value, cos: Value) -> Value:
    """x [b, s, h*d] as [b, h, s, d].

    Without rotary_embedding_dim, a head has two entries for each angle of a position.
    """
    if n.integer("rotary_embedding_dim"):
        return split_heads(n, x, positive(n, "num_heads"))
    size = 2 * cos.shape[1]
    apart = x.reshape([*x.shape[:2], share(n, x.shape[-1], size, "entries of a head"), size])
    return apart.transpose([0, 2, 1, 3])


@contrib_op("GemmaRotaryEmbedding", ranks=(3, 4, 4, 4, 4))
def gemma_rotary_embedding(
    n: Node, angles: Value, q: Value, q_turned: Value, k: Value, k_turned: Value
) -> list[Value]:
    """x * cos(angles) + turned x * sin(angles), for q and k."""
    wide = angles.reshape([angles.shape[0], 1, *angles.shape[1:]])
    cos, sin = (n(op, wide).cast(q.element) for op in (CosOp, SinOp))
    return [x * cos + turned * sin for x, turned in ((q, q_turned), (k, k_turned))]


# ---------------------------------------------------------------------- biases
@contrib_op("RelativePositionBias", ranks=(2,))
def relative_position_bias(
    n: Node, table: Value, query_length: Value, key_length: Value
) -> Value:
    """The table's entry for the bucket of each distance: [1, heads, queries, keys].

    Half of the buckets stand for one distance each. The others cover ranges that grow
    logarithmically up to max_distance. The table has the shape [buckets, heads], but its memory is
    ordered by head.
    """
    buckets, heads = (fixed(n, s, "buckets and heads") for s in table.shape)
    queries, keys = (n.known_size(v, "lengths") for v in (query_length, key_length))
    distance = places(n, queries, column=True) - places(n, keys)
    both = n.flag("is_bidirectional")
    count = buckets // 2 if both else buckets
    zero = n.scalar(0, distance)
    bucket = _bucket(n, abs(distance) if both else f.maximum(distance, zero), count)
    if both:
        offset = f.where(distance < zero, count, zero)
        bucket = total(bucket, offset)
    by_head = f.gather(table.reshape([heads, buckets]), bucket, axis=1)
    return by_head.reshape([1, *by_head.shape])


def _bucket(n: Node, distance: Value, count: int) -> Value:
    """The bucket of a distance: the distance itself below count / 2, and on a log scale above."""
    exact = count // 2
    if exact < 1 or n.integer("max_distance") <= exact:
        raise Fault(f"max_distance is {n.integer('max_distance')}; it must be more than half "
                    f"of the {count} buckets, of which there must be at least 2")
    step = (count - exact) / np.log(n.integer("max_distance") / exact)
    far = f.maximum(distance.cast(t.f32), exact)
    steps = f.log(far / exact) * step
    coarse = steps.cast(t.i64) + exact
    coarse = f.minimum(coarse, count - 1)
    return f.where(n(GreaterOp, n.scalar(exact, distance), distance), distance, coarse)
