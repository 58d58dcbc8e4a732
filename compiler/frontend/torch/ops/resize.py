"""Upsampling and interpolation."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.frontend.torch.node import Node
from compiler.frontend.torch.ops import aten_op
from compiler.frontend.values import Value
from dialects.graph.resize import ResizeOp
from dialects.strata.types import LiteralAttr
from dialects.symbolic.expr import Size


@aten_op(*(f"aten.upsample_nearest{k}d.vec" for k in (1, 2, 3)))
def nearest(n: Node, x: Value, sizes: object, scales: Sequence[float] | None) -> Value:
    return _resized(n, x, "nearest", "asymmetric", scales)


@aten_op(*(f"aten._upsample_nearest_exact{k}d.vec" for k in (1, 2, 3)))
def nearest_exact(n: Node, x: Value, sizes: object, scales: Sequence[float] | None) -> Value:
    return _resized(n, x, "nearest", "half_pixel", scales, "round_prefer_ceil")


@aten_op(*(f"aten.upsample_nearest{k}d.default" for k in (1, 2, 3)))
def nearest_of_sizes(n: Node, x: Value, sizes: Sequence[Size], *scales: float | None) -> Value:
    return _resized(n, x, "nearest", "asymmetric", scales)


@aten_op(*(f"aten._upsample_nearest_exact{k}d.default" for k in (1, 2, 3)))
def nearest_exact_of_sizes(
    n: Node, x: Value, sizes: Sequence[Size], *scales: float | None
) -> Value:
    return _resized(n, x, "nearest", "half_pixel", scales, "round_prefer_ceil")


@aten_op("aten.upsample_linear1d.vec", "aten.upsample_bilinear2d.vec",
         "aten.upsample_trilinear3d.vec", "aten.upsample_bicubic2d.vec")
def interpolated(
    n: Node, x: Value, sizes: object, align_corners: bool, scales: Sequence[float] | None
) -> Value:
    mode = "cubic" if "cubic" in n.op else "linear"
    return _resized(n, x, mode, "align_corners" if align_corners else "half_pixel", scales)


@aten_op("aten.upsample_linear1d.default", "aten.upsample_bilinear2d.default",
         "aten.upsample_trilinear3d.default", "aten.upsample_bicubic2d.default")
def interpolated_of_sizes(
    n: Node, x: Value, sizes: Sequence[Size], align_corners: bool, *scales: float | None
) -> Value:
    return interpolated(n, x, sizes, align_corners, scales)


def _resized(
    n: Node, x: Value, mode: str, coordinates: str, scales: Sequence[float | None] | None,
    rounding: str = "floor",
) -> Value:
    """Resample x [n, c, s...] to the result's sizes, by the given scales if there are any.

    A dim whose scale is missing or not positive is resampled by the quotient of its sizes. Such
    dims come first, since an operation has either all scales or none.
    """
    known = [s if s and s > 0 else None for s in scales or [None] * (x.rank - 2)]

    def resample(x: Value, shape: Sequence[Size], factors: Sequence[float]) -> Value:
        return n(ResizeOp, x, shape=list(shape), scales=LiteralAttr(tuple(factors)), mode=mode,
                 coordinates=coordinates, nearest=rounding)

    if None in known:
        spatial = [old if scale else new
                   for old, new, scale in zip(x.shape[2:], n.shape[2:], known, strict=True)]
        x = resample(x, [*x.shape[:2], *spatial], ())
    if any(known):
        x = resample(x, n.shape, [1.0, 1.0, *(float(s or 1.0) for s in known)])
    return x
