"""Samples of convolutions, pools and resizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from xdsl.ir import Block

import dialects.graph as g
from dialects.semantics.evaluation import EvaluationContext
from dialects.strata.types import LiteralAttr, element_of, tensor
from tests.op_samples.sample import (
    BF16,
    F16,
    F32,
    F64,
    I8,
    I32,
    U8,
    E,
    Random,
    S,
    Sample,
    onnx,
    torch,
)

_WITH_NAN = np.where(np.arange(63).reshape(1, 1, 7, 9) == 17, np.nan, -1.0).astype(np.float32)


def _conv(
    x: Sequence[int], w: Sequence[int], dims: str, bias: bool = False, make: Any = F32,
    known: bool = True, **attributes: Any
) -> Sample:
    operands = [make(*x), make(*w), *([make(w[0])] if bias else [])]
    sizes = f"{dims}; {' '.join(map(str, w))}{f'; {w[0]}' if bias else ''}"
    reference = onnx("Conv", **attributes) if known else None
    return S(g.ConvOp, *operands, dims=sizes, reference=reference, **attributes)


_CONVS = [
    _conv((2, 3, 7, 9), (5, 3, 3, 3), "n 3 h w", strides=[1, 1], dilations=[1, 1],
          pads=[1, 1, 1, 1], group=1),
    _conv((2, 3, 7, 9), (5, 3, 3, 2), "n 3 h w", bias=True, strides=[2, 3], dilations=[1, 1],
          pads=[1, 0, 0, 2], group=1),
    _conv((1, 4, 11, 11), (6, 2, 3, 3), "n 4 h w", bias=True, strides=[1, 1], dilations=[2, 1],
          pads=[2, 1, 2, 1], group=2),
    _conv((2, 5, 6, 7), (5, 1, 3, 3), "n 5 h w", bias=True, strides=[2, 2], pads=[1, 1, 1, 1],
          group=5),
    _conv((1, 3, 5, 5), (6, 1, 2, 2), "n 3 h w", group=3),
    _conv((2, 8, 5, 3), (7, 8, 1, 1), "n 8 h w", bias=True),
    _conv((2, 8, 5, 3), (7, 8, 1, 1), "n 8 h w", strides=[2, 2]),
    _conv((2, 3, 13), (4, 3, 5), "n 3 t_", strides=[3], pads=[2, 2]),
    _conv((1, 2, 5, 6, 7), (3, 2, 3, 2, 1), "n 2 d h w", bias=True, strides=[1, 2, 1],
          pads=[1, 0, 0, 1, 1, 0]),
    _conv((1, 1, 1, 1), (1, 1, 1, 1), "n 1 h w"),
    _conv((0, 3, 5, 5), (2, 3, 3, 3), "n 3 h w", known=False),
    _conv((2, 3, 7), (4, 3, 3), "n 3 h", make=F16, known=False),
    _conv((2, 3, 7), (4, 3, 3), "n 3 h", make=BF16, known=False),
    _conv((2, 3, 7), (4, 3, 3), "n 3 h", make=F64, known=False),
    S(g.ConvOp, BF16(1, 4, 9, 9), BF16(3, 4, 3, 3), dims="n 4 h w; 3 4 3 3", tolerance=0.1,
      reference=torch(lambda m, x, w: m.nn.functional.conv2d(x, w))),
]


def _transposed(
    x: Sequence[int], w: Sequence[int], dims: str, make: Any = F32, known: bool = True,
    bias: int = 0, **attributes: Any
) -> Sample:
    operands: list[Random] = [make(*x), make(*w), *([make(bias)] if bias else [])]
    sizes = f"{dims}; {' '.join(map(str, w))}{f'; {bias}' if bias else ''}"
    reference = onnx("ConvTranspose", **attributes) if known else None
    return S(g.ConvTransposeOp, *operands, dims=sizes, reference=reference, **attributes)


_TRANSPOSED = [
    _transposed((2, 3, 5, 4), (3, 4, 3, 3), "n 3 h w", bias=4, strides=[2, 2],
                pads=[1, 1, 1, 1], output_padding=[1, 1]),
    _transposed((1, 4, 5), (4, 3, 4), "n 4 h", bias=6, strides=[3], dilations=[2], pads=[0, 2],
                group=2),
    _transposed((2, 3, 5, 4), (3, 2, 2, 2), "n 3 h w", strides=[2, 2]),
    _transposed((2, 3, 5), (3, 1, 3), "n 3 h", group=3, strides=[1], pads=[1, 1]),
    _transposed((0, 3, 5), (3, 2, 2), "n 3 h", known=False),
    _transposed((2, 3, 2), (3, 4, 1), "n 3 2", bias=4, pads=[1, 1], known=False),
    _transposed((2, 3, 2, 4), (3, 4, 2, 2), "n 3 2 4", strides=[2, 1], pads=[2, 2, 0, 0],
                known=False),
    _transposed((2, 3, 5), (3, 2, 2), "n 3 h", make=F16, known=False),
    _transposed((1, 2, 3, 4, 2), (2, 3, 2, 1, 3), "n 2 d h w", strides=[2, 1, 2]),
]


_FLAGS = ("ceil_mode", "toward_zero", "count_include_pad")


def _max_pool(x: Any, dims: str, known: bool = True, **attributes: Any) -> Sample:
    given = {("kernel_shape" if k == "kernel" else k): v for k, v in attributes.items()}
    reference = onnx("MaxPool", **given) if known else None
    return S(g.MaxPoolOp, x, dims=dims, reference=reference,
             **{k: bool(v) if k in _FLAGS else v for k, v in attributes.items()})


def _avg_pool(x: Any, dims: str, known: bool = True, **attributes: Any) -> Sample:
    given = {("kernel_shape" if k == "kernel" else k): v for k, v in attributes.items()}
    reference = onnx("AveragePool", **given) if known else None
    return S(g.AvgPoolOp, x, dims=dims, reference=reference,
             **{k: bool(v) if k in _FLAGS else v for k, v in attributes.items()})


_POOLS = [
    *(pool(F32(2, 3, 7, 9), "n 3 h w", kernel=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1])
      for pool in (_max_pool, _avg_pool)),
    *(pool(F32(2, 3, 8, 10), "n 3 h w", kernel=[3, 3], strides=[2, 3], pads=[1, 1, 1, 1],
           ceil_mode=1) for pool in (_max_pool, _avg_pool)),
    *(pool(F32(1, 2, 11), "n 2 h", kernel=[3], strides=[2], dilations=[2], pads=[1, 1])
      for pool in (_max_pool, _avg_pool)),
    *(pool(F32(1, 2, 5, 4, 6), "n 2 d h w", kernel=[2, 2, 3]) for pool in (_max_pool, _avg_pool)),
    *(pool(F32(0, 2, 5), "n 2 h", kernel=[2], known=False) for pool in (_max_pool, _avg_pool)),
    *(pool(_WITH_NAN, "n 1 h w", kernel=[2, 2], known=False) for pool in (_max_pool, _avg_pool)),
    *(pool(make(2, 3, 9), "n 3 h", kernel=[3], strides=[2], known=False)
      for pool in (_max_pool, _avg_pool) for make in (F16, BF16, F64)),
    _max_pool(np.full((1, 1, 5), -np.inf, np.float32), "n 1 h", known=False, kernel=[3],
              pads=[1, 1]),
    _max_pool(I8(1, 2, 7), "n 2 h", kernel=[3], pads=[1, 1]),
    _max_pool(U8(1, 2, 7), "n 2 h", kernel=[3], pads=[1, 1]),
    _avg_pool(F32(2, 3, 7, 9), "n 3 h w", kernel=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1],
              count_include_pad=1),
    S(g.AvgPoolOp, F32(2, 3, 8, 10), dims="n 3 h w", kernel=[3, 3], strides=[2, 3],
      pads=[1, 1, 1, 1], ceil_mode=True, count_include_pad=True,
      reference=torch(lambda m, x: m.nn.functional.avg_pool2d(
          x, 3, (2, 3), 1, ceil_mode=True, count_include_pad=True))),
    *(pool(F32(1, 3, *sizes), "n 3 h w", known=False, kernel=[3, 2], strides=[3, 2],
           toward_zero=True, **more)  # one window is larger than x, or whole ones fit
      for sizes in ((1, 1), (2, 4), (7, 1), (9, 5))
      for pool, more in ((_max_pool, {}), (_avg_pool, {}), (_avg_pool, {"count_include_pad": 1}))),
    _avg_pool(F32(1, 2, 1), "n 2 h", known=False, kernel=[3], strides=[4], dilations=[2],
              pads=[1, 1], toward_zero=True),  # the window skips x
]


def _resize(
    shape: Sequence[int], result: Sequence[int], mode: str, coordinates: str,
    nearest: str = "floor", dims: str = "", sizes: Sequence[Any] | None = None,
    scales: Sequence[float] = (), known: bool = True, make: Any = F32,
) -> Sample:
    constants = [np.array(scales, np.float32)] if scales else [None, np.array(result, np.int64)]
    reference = onnx("Resize", 0, None, *constants, mode=mode, nearest_mode=nearest,
                     coordinate_transformation_mode=coordinates)
    return S(g.ResizeOp, make(*shape), dims=dims, shape=list(sizes or result), mode=mode,
             scales=LiteralAttr(tuple(scales)), coordinates=coordinates, nearest=nearest,
             reference=reference if known else None)


_RESIZES = [
    *(_resize((1, 2, 5, 7), (1, 2, 9, 4), mode, coordinates, dims="n 2 5 7",
              sizes=[E("n"), 2, 9, 4])
      for mode in ("nearest", "linear", "cubic")
      for coordinates in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")),
    *(_resize((1, 1, 4, 6), (1, 1, 8, 9), "nearest", "half_pixel", nearest,
              scales=(1.0, 1.0, 2.0, 1.5))
      for nearest in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")),
    *(_resize((1, 2, 4, 6), (1, 2, 8, 18), mode, "asymmetric", scales=(1.0, 1.0, 2.0, 3.0),
              dims="n 2 h w", sizes=[E("n"), 2, E("2*h"), E("3*w")])
      for mode in ("nearest", "linear")),
    *(_resize((1, 2, 5, 3), (1, 2, 12, 7), mode, "half_pixel_symmetric",
              scales=(1.0, 1.0, 2.4, 2.5)) for mode in ("nearest", "linear")),
    *(_resize((1, 2, 5, 3), (1, 2, 1, 1), mode, "pytorch_half_pixel")
      for mode in ("nearest", "linear")),
    _resize((1, 2, 1, 3), (1, 2, 5, 6), "linear", "half_pixel", dims="n 2 1 w",
            sizes=[E("n"), 2, 5, E("2*w")]),
    _resize((1, 1, 6, 6), (1, 1, 14, 14), "nearest", "asymmetric", known=False),
    _resize((2, 0, 4), (2, 0, 8), "linear", "half_pixel", known=False),
    _resize((1, 1, 4), (1, 1, 8), "nearest", "asymmetric", make=I8, known=False),
    _resize((1, 1, 4), (1, 1, 7), "linear", "half_pixel", make=F16, known=False),
    _resize((1, 1, 4), (1, 1, 7), "linear", "half_pixel", make=BF16, known=False),
]

def _places(x: Random | np.ndarray, dims: str, pooled: str, **attributes: Any) -> Sample:
    """Where the elements of a max pool are. The largest of windows are computed here."""
    array = x if isinstance(x, np.ndarray) else x.make(np.random.default_rng(5))
    context = EvaluationContext()
    value = Block(arg_types=[tensor(element_of(array.dtype), array.shape)]).args[0]
    y = g.MaxPoolOp.of(value, **attributes).evaluate(context, array)
    return S(g.MaxPoolIndicesOp, array, y, dims=f"{dims}; {pooled}", **attributes)


_NANS = np.where(np.arange(168).reshape(2, 2, 7, 6) % 5 < 2, np.nan, np.float32(1))
"""Windows with several NaN, some, and none."""
_PLACES = [
    _places(F32(2, 3, 7), "n 3 7", "n 3 3", kernel=[2], strides=[2]),
    _places(F32(1, 2, 6, 5), "n c 6 5", "n c 6 5", kernel=[3, 3], pads=[1, 1, 1, 1]),
    _places(F32(2, 2, 6, 5), "n c 6 5", "n c 2 2", kernel=[3, 2], strides=[3, 2]),
    _places(np.full((1, 1, 5), -np.inf, np.float32), "n 1 5", "n 1 3", kernel=[3], strides=[2],
            pads=[1, 1]),
    _places(U8(1, 2, 9), "1 c 9", "1 c 5", kernel=[2], strides=[2], ceil_mode=True),
    *(_places(_NANS, "n 2 7 6", "n 2 4 3", kernel=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1],
              last_nan=last) for last in (False, True)),
    _places(_NANS, "n 2 7 6", "n 2 7 6", kernel=[2, 2], dilations=[2, 2], pads=[1, 1, 1, 1],
            last_nan=True),
]

def _filter_gradient(
    x: Sequence[int], y: Sequence[int], dims: str, kernel: Sequence[int], pads: Sequence[int],
    make: Any = F32, strides: Sequence[int] | None = None, dilations: Sequence[int] | None = None,
    group: int = 1, known: bool = True
) -> Sample:
    """`pads` are the same at both ends."""
    ones, shape = [1] * len(kernel), [y[1], x[1] // group, *kernel]

    def gradient(m: Any, x: Any, y: Any) -> Any:
        return m.ops.aten.convolution_backward(
            y, x, x.new_zeros(shape), None, strides or ones, pads, dilations or ones, False,
            [0] * len(kernel), group, [False, True, False])[1]

    return S(g.ConvFilterGradientOp, make(*x), make(*y), dims=dims,
             reference=torch(gradient) if known else None, kernel=list(kernel), group=group,
             pads=[*pads, *pads], strides=strides, dilations=dilations)


_FILTER_GRADIENTS = [
    _filter_gradient((2, 3, 7, 9), (2, 5, 7, 9), "n 3 h w; n 5 h w", (3, 3), (1, 1)),
    _filter_gradient((3, 17, 7, 6), (3, 19, 3, 3), "n 17 h w; n 19 p q", (3, 2), (0, 1),
                     strides=[2, 3]),
    _filter_gradient((2, 16, 9), (2, 18, 7), "n 16 h; n 18 p", (2,), (1,), dilations=[4]),
    _filter_gradient((2, 6, 8, 5), (2, 4, 6, 5), "n 6 8 5; n 4 6 5", (3, 1), (0, 0), group=2),
    _filter_gradient((2, 6, 8), (2, 4, 3), "n 6 h; n 4 p", (3,), (0,), strides=[2], group=2),
    _filter_gradient((2, 5, 6, 7), (2, 5, 6, 7), "n 5 h w; n 5 h w", (3, 3), (1, 1), group=5),
    _filter_gradient((1, 2, 4, 5, 3), (1, 3, 4, 5, 3), "n 2 d h w; n 3 d h w", (3, 3, 1),
                     (1, 1, 0)),
    _filter_gradient((2, 16, 4), (2, 16, 4), "n 16 h; n 16 h", (1,), (0,)),
    _filter_gradient((0, 3, 5), (0, 2, 3), "n 3 h; n 2 p", (3,), (0,), known=False),
    *(_filter_gradient((2, 16, 6), (2, 17, 6), "n 16 h; n 17 h", (3,), (1,), make, known=False)
      for make in (F16, BF16, F64, I32)),
]


_INTEGERS = [
    S(g.ConvOp, I32(2, 3, 7, 5), I32(4, 3, 3, 3), dims="n 3 h w; 4 3 3 3", pads=[1, 1, 1, 1]),
    S(g.ConvOp, I32(1, 4, 9), I32(6, 2, 2), I32(6), dims="n 4 h; 6 2 2; 6", group=2, strides=[2]),
    S(g.ConvTransposeOp, I32(1, 2, 5), I32(2, 3, 3), dims="n 2 h; 2 3 3", strides=[2]),
]

WINDOWS = [*_CONVS, *_TRANSPOSED, *_FILTER_GRADIENTS, *_POOLS, *_PLACES, *_INTEGERS, *_RESIZES]
