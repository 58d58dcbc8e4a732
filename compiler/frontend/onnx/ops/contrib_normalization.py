"""com.microsoft: layer, RMS and group normalization, also of sums and embeddings."""

from __future__ import annotations

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.group_norm import group_normalized
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.onnx.ops.contrib import SOME, contrib_op, fixed, positive, total
from compiler.frontend.onnx.ops.normalization import layer_statistics
from compiler.frontend.onnx.ops.quantization import dequantize_linear
from compiler.frontend.values import Value
from dialects.graph.activation import SiluOp
from dialects.graph.normalization import LayerNormOp
from dialects.graph.unary import SigmoidOp
from dialects.strata import types as t
from dialects.symbolic.size_products import product

_SKIP_EPSILON = 1e-12


# ---------------------------------------------------------------------- layer normalization
@contrib_op("SkipLayerNormalization", ranks=(SOME,))
def skip_layer_normalization(
    n: Node, x: Value, skip: Value, gamma: Value, beta: Value | None = None,
    bias: Value | None = None,
) -> list[Value]:
    """Results: the normalized sum, the sum's mean, 1 / its standard deviation, and the sum."""
    added, epsilon = total(x, skip, bias), n.real("epsilon", _SKIP_EPSILON)
    parameters = [gamma] if beta is None else [gamma, beta]
    y = n(LayerNormOp, added, *parameters, axis=added.rank - 1, epsilon=epsilon)
    return [y, *layer_statistics(added, added.rank - 1, epsilon), added]


@contrib_op("EmbedLayerNormalization", ranks=(2, 2, 2, 2, 2, 1, 1, 2, 2))
def embed_layer_normalization(
    n: Node, ids: Value, segment_ids: Value | None, words: Value, positions: Value,
    segments: Value | None, gamma: Value, beta: Value, mask: Value | None = None,
    position_ids: Value | None = None,
) -> list[Value]:
    """Results: the normalized sum of embeddings, the number of ones per mask row, and the sum.

    Without position ids, the positions of a row are 0, 1, ...
    """
    if (segment_ids is None) != (segments is None):
        raise Fault("segment_ids and segment_embedding must be given together")
    if position_ids is None:
        position_ids = n.range(ids.shape[1])
    added = total(*(_looked_up(n, table, index) for table, index in (
        (words, ids), (positions, position_ids))))
    if segments is not None and segment_ids is not None:
        added = added + _looked_up(n, segments, segment_ids)
    y = n(LayerNormOp, added, gamma, beta, axis=2, epsilon=n.real("epsilon", _SKIP_EPSILON))
    return [y, _ones_per_row(n, ids, mask), added]


def _looked_up(n: Node, table: Value, index: Value) -> Value:
    n.require(0, index, table.shape[0])
    return f.gather(table, index, axis=0)


def _ones_per_row(n: Node, ids: Value, mask: Value | None) -> Value:
    """The number of ones in each row of the mask: i32[b]. Zeros without a mask."""
    if mask is None:
        return n.scalar(0, ids).broadcast(ids.shape[:1])
    ones = f.equal(mask, 1).cast(ids.element)
    return f.reduce_sum(ones, axes=[1])


@contrib_op("QEmbedLayerNormalization", ranks=(2, 2, 2, 2, 2, 1, 1, 2))
def quantized_embed_layer_normalization(
    n: Node, ids: Value, segment_ids: Value | None, words: Value, positions: Value,
    segments: Value | None, gamma: Value, beta: Value, mask: Value | None,
    *parameters: Value | None,
) -> list[Value]:
    """The same as EmbedLayerNormalization; `parameters` are five scales, then five zero points."""
    def real(index: int, x: Value | None) -> Value | None:
        scale, zero = parameters[index], parameters[index + 5]
        return None if x is None or scale is None else dequantize_linear(n, x, scale, zero)

    tables = [real(k, x) for k, x in enumerate((words, positions, segments, gamma, beta))]
    return embed_layer_normalization(n, ids, segment_ids, *tables[:3], *tables[3:], mask)[:2]


# ---------------------------------------------------------------------- RMS normalization
@onnx_op("SimplifiedLayerNormalization")
def simplified_layer_normalization(n: Node, x: Value, scale: Value) -> list[Value]:
    """Results: x / r * scale, and 1 / r, where r = sqrt(mean(x*x) + epsilon)."""
    axis = n.axis(n.integer("axis", -1), x.rank)
    return _root_mean_square(x, scale, axis, n.real("epsilon", 1e-5))


@contrib_op("SkipSimplifiedLayerNormalization", ranks=(SOME,))
def skip_simplified_layer_normalization(
    n: Node, x: Value, skip: Value, gamma: Value, bias: Value | None = None
) -> list[Value]:
    """Results: the normalized sum, the sum's mean, 1 / its root mean square, and the sum."""
    added = total(x, skip, bias)
    axis, epsilon = added.rank - 1, n.real("epsilon", _SKIP_EPSILON)
    y, inverse = _root_mean_square(added, gamma, axis, epsilon)
    return [y, layer_statistics(added, axis, epsilon)[0], inverse, added]


def _root_mean_square(
    x: Value, scale: Value, axis: int, epsilon: float
) -> list[Value]:
    """x / r * scale and 1 / r for r = sqrt(mean(x*x) + epsilon), computed in f32 at least."""
    wide = _wide(x)
    square = f.reduce_mean(wide * wide, axes=list(range(axis, x.rank)), keepdims=True)
    inverse = f.reciprocal(f.sqrt(square + epsilon))
    y = wide * inverse * scale.cast(wide.element)
    return [y.cast(scale.element), inverse]


def _wide(x: Value) -> Value:
    return x if t.byte_width(x.element) > 2 else x.cast(t.f32)


@contrib_op("GatedRMSNorm", ranks=(SOME, 1))
def gated_rms_norm(n: Node, x: Value, scale: Value, gate: Value) -> Value:
    """Normalize the last dim in groups as long as the scale, and multiply by f(gate)."""
    name = n.text("activation", "silu")
    if name not in ("silu", "swish", "sigmoid"):
        raise Fault(f"its activation is '{name}'; it must be silu, swish or sigmoid")
    groups = x.reshape([*x.shape[:-1], x.shape[-1] // scale.shape[0], scale.shape[0]])
    wide = scale.cast(t.f32)
    y, _ = _root_mean_square(groups.cast(t.f32), wide, x.rank, n.real("epsilon", 1e-5))
    factor = n(SigmoidOp if name == "sigmoid" else SiluOp, gate.cast(t.f32))
    return (y.reshape(x.shape) * factor).cast(x.element)


# ---------------------------------------------------------------------- group normalization
@contrib_op("GroupNorm", ranks=(range(2, 9), 1, 1))
def group_norm(n: Node, x: Value, gamma: Value, beta: Value) -> Value:
    """Normalize each group of channels of each item.

    The channels are the last dim unless `channels_last` is 0.
    """
    if not n.flag("channels_last", True):
        last = x.transpose([0, *range(2, x.rank), 1])
        return _grouped(n, last, gamma, beta).transpose([0, x.rank - 1, *range(1, x.rank - 1)])
    return _grouped(n, x, gamma, beta)


@contrib_op("SkipGroupNorm", ranks=(range(2, 9), 1, 1, range(2, 9), 1))
def skip_group_norm(
    n: Node, x: Value, gamma: Value, beta: Value, skip: Value, bias: Value | None = None
) -> list[Value]:
    """Results: the normalized x + skip + bias, and that sum. The skip may be [n, c]."""
    if not n.flag("channels_last", True):
        raise Fault("channels_last = 0 is not supported")
    if skip.rank == 2:
        skip = skip.reshape([skip.shape[0], *[1] * (x.rank - 2), skip.shape[1]])
    added = total(x, skip, bias)
    return [_grouped(n, added, gamma, beta), added]


def _grouped(n: Node, x: Value, gamma: Value, beta: Value) -> Value:
    """Group normalization of x [n, ..., c], computed in f32."""
    groups, channels = positive(n, "groups"), fixed(n, gamma.shape[0], "channels")
    if channels % groups:
        raise Fault(f"{groups} groups do not divide {channels} channels")
    flat = x.reshape([x.shape[0], product(x.shape[1:-1]), channels]).transpose([0, 2, 1])
    y = group_normalized(flat, groups, gamma, beta, n.real("epsilon", 1e-5), t.f32,
                         channels_last=True).result.transpose([0, 2, 1]).reshape(x.shape)
    return (f.silu(y) if n.flag("activation") else y).cast(x.element)
