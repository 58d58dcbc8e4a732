"""Products and convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.frontend.faults import Fault
from compiler.frontend.stablehlo.node import Node
from compiler.frontend.stablehlo.ops import hlo_op
from compiler.frontend.stablehlo.ops.shapes import spread_apart, turned
from compiler.frontend.values import Value, scalar
from dialects.graph.contraction import MatmulOp
from dialects.graph.convolution import ConvOp
from dialects.graph.shape import PadOp
from dialects.strata import types as t
from dialects.strata.types import is_float
from dialects.symbolic.expr import Expr
from dialects.symbolic.size_products import product


@hlo_op("stablehlo.dot_general")
def dot_general(n: Node, a: Value, b: Value) -> Value:
    """Both become [batch, rows, sum] and [batch, sum, columns]."""
    given: dict[str, Any] = n.op.attributes.get("dot_dimension_numbers") or {}
    batches = _pairs(given, "batching") or n.op.attributes.get("batching_dims", ([], []))
    sums = _pairs(given, "contracting") or n.op.attributes.get("contracting_dims", ([], []))
    return _product(n, a, b, batches, sums)


def _pairs(given: dict[str, Any], kind: str) -> tuple[list[int], list[int]] | None:
    names = [f"{side}_{kind}_dimensions" for side in ("lhs", "rhs")]
    if not any(name in given for name in ("lhs_contracting_dimensions", *names)):
        return None
    return given.get(names[0], []), given.get(names[1], [])


@hlo_op("stablehlo.dot")
def dot(n: Node, a: Value, b: Value) -> Value:
    return _product(n, a, b, ([], []), ([a.rank - 1], [0]))


def _product(
    n: Node, a: Value, b: Value, batches: tuple[list[int], list[int]],
    sums: tuple[list[int], list[int]],
) -> Value:
    rows, columns = ([k for k in range(v.rank) if k not in (*batch, *summed)]
                     for v, batch, summed in ((a, batches[0], sums[0]), (b, batches[1], sums[1])))
    batch = [a.shape[k] for k in batches[0]]
    depth = product(a.shape[k] for k in sums[0])
    left = a.transpose([*batches[0], *rows, *sums[0]]).reshape(
        [*batch, product(a.shape[k] for k in rows), depth])
    right = b.transpose([*batches[1], *sums[1], *columns]).reshape(
        [*batch, depth, product(b.shape[k] for k in columns)])
    element = n.result.element
    left, right = (v if is_float(element) and is_float(v.element) else v.cast(element)
                   for v in (left, right))
    wide = {"to": element} if is_float(element) and left.element != element else {}
    found = n(MatmulOp, left, right, **wide)
    return found.reshape([*batch, *(a.shape[k] for k in rows), *(b.shape[k] for k in columns)])


# ---------------------------------------------------------------------- convolutions
@hlo_op("stablehlo.convolution")
def convolution(n: Node, x: Value, w: Value) -> Value:
    window: dict[str, Any] = {**_long(n.op.attributes), **n.op.attributes.get("window", {})}
    return _convolution(n, x, w, _pads(window.get("pad"), x.rank - 2))


@hlo_op("stablehlo.dynamic_conv")
def dynamic_conv(n: Node, x: Value, w: Value, padding: Value) -> Value:
    """The same, with pads that an operand gives."""
    given = [size.constant for size in n.sizes(padding, "padding")]
    if None in given:
        raise Fault("its padding must be constant")
    return _convolution(n, x, w, _pads(np.array(given).reshape(-1, 2), x.rank - 2))


def _convolution(n: Node, x: Value, w: Value, pads: list[tuple[int, int]]) -> Value:
    """x becomes [batch, channels, ...] and w [outputs, channels, ...]; spread inputs get zeros."""
    dims = _dim_numbers(n.op.attributes)
    window: dict[str, Any] = {**_long(n.op.attributes), **n.op.attributes.get("window", {})}
    rank = x.rank - 2
    strides, gaps, spread = (_listed(window.get(name), rank) for name in (
        "stride", "rhs_dilate", "lhs_dilate"))
    groups = int(n.op.attributes.get("feature_group_count", 1))
    if t.byte_width(n.result.element) > t.byte_width(x.element):  # sums of bytes, or of halves
        x, w = x.cast(n.result.element), w.cast(n.result.element)
    x = x.transpose(dims[0])
    w = turned(n, w.transpose(dims[1]), [k + 2 for k, reverse in enumerate(
        _listed(window.get("reverse"), rank, 0)) if reverse])
    if (batches := int(n.op.attributes.get("batch_group_count", 1))) > 1:
        x, groups = _as_channels(x, batches), batches
    x = _apart(x, spread)
    x, pads = _cut(n, x, pads)
    made = n(ConvOp, x, w, strides=strides, dilations=gaps,
             pads=[p[0] for p in pads] + [p[1] for p in pads],
             group=groups)
    back = [dims[2].index(k) for k in range(x.rank)]
    return made.transpose(back).cast(n.result.element)


def _as_channels(x: Value, groups: int) -> Value:
    """Groups of batches as groups of channels: [g * n, c, ...] to [n, g * c, ...]."""
    count = x.shape[0] // groups
    apart = x.reshape([groups, count, *x.shape[1:]])
    moved = apart.transpose([1, 0, *range(2, apart.rank)])
    return moved.reshape([count, x.shape[1] * groups, *x.shape[2:]])


def _dim_numbers(attributes: dict[str, Any]) -> list[list[int]]:
    """For x, w and the result: the dims in the order batch or outputs, channels, spatial ones."""
    given = attributes.get("dim_numbers") or attributes.get("dimension_numbers")
    if given is not None:
        names = (("b", "f"), ("o", "i"), ("b", "f"))
        return [[order.index(first), order.index(second),
                 *(order.index(k) for k in range(len(order) - 2))]
                for order, (first, second) in zip(given, names, strict=True)]
    raise Fault("its dims must be given as dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f]")


def _long(attributes: dict[str, Any]) -> dict[str, Any]:
    """The attributes of the generic form by the names of the pretty one."""
    names = {"window_strides": "stride", "padding": "pad", "lhs_dilation": "lhs_dilate",
             "rhs_dilation": "rhs_dilate", "window_reversal": "reverse"}
    return {short: attributes[long] for long, short in names.items() if long in attributes}


def _listed(given: Any, rank: int, default: int = 1) -> list[int]:
    return [default] * rank if given is None else [int(v) for v in given]


def _pads(given: Any, rank: int) -> list[tuple[int, int]]:
    if given is None:
        return [(0, 0)] * rank
    rows = given.tolist() if hasattr(given, "tolist") else given
    return [(int(row[0]), int(row[1])) for row in rows]


def _apart(x: Value, spread: list[int]) -> Value:
    """x with zeros between its elements."""
    for axis, step in enumerate(spread, start=2):
        if step > 1:
            x = spread_apart(x, scalar(x.build, 0, x.element), axis, step - 1)
    return x


def _cut(n: Node, x: Value, pads: list[tuple[int, int]]
         ) -> tuple[Value, list[tuple[int, int]]]:
    """Negative pads cut elements off."""
    for axis, (low, high) in enumerate(pads, start=2):
        size: Expr = x.shape[axis] + min(low, 0) + min(high, 0)
        x = x.part(axis, max(-low, 0), size)
    return x, [(max(low, 0), max(high, 0)) for low, high in pads]


def padded(n: Node, x: Value, low: list[int], high: list[int], value: float) -> Value:
    """x with borders of one value."""
    if not any((*low, *high)):
        return x
    return n(PadOp, x, low=low, high=high, mode="constant", value=value)
