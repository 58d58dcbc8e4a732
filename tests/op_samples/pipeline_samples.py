"""Samples that once went wrong between the graph level and the targets: keep them."""

from __future__ import annotations

import numpy as np

import dialects.graph as g
from tests.op_samples.sample import F32, F64, I64, E, S, Sample

PIPELINE_SAMPLES: list[Sample] = [
    # windows whose positions are fewer than a tile: the rest of the tile is inside the image
    S(g.MaxPoolOp, F64(2, 3, 23), dims="n 3 h", kernel=[3], strides=[2]),
    S(g.AvgPoolOp, F32(1, 2, 5, 4, 6), dims="n 2 d h w", kernel=[2, 2, 3]),
    S(g.ConvOp, np.full((1, 4, 9, 9), np.inf, np.float32), F32(6, 2, 3, 3), dims="n 4 h w; 6 2 3 3",
      group=2),
    # results of one group of channels beside those of the next, in tiles longer than a group
    S(g.ConvTransposeOp, F32(1, 4, 3, 4), F32(4, 3, 2, 2), dims="n 4 h w; 4 3 2 2", group=2,
      strides=[3, 2], output_padding=[1, 1]),
    S(g.ConvOp, F32(2, 6, 5), F32(9, 2, 3), dims="n 6 h; 9 2 3", group=3),
    # parts of a tensor, in tiles longer than a part
    S(g.ConcatOp, F32(3, 70), F32(3, 5), F32(3, 67), dims="a n; a m; a k", axis=1),
    S(g.ConcatOp, F32(5, 3), F32(70, 3), F32(1, 3), dims="a 3; b 3; c 3", axis=0),
    # empty tensors and empty sums
    S(g.MatmulOp, F32(3, 0), F32(0, 70), dims="m k; k n"),
    S(g.SoftmaxOp, F32(0, 70), dims="n m", axis=0),
    S(g.SliceOp, F32(4, 3), dims="n 3", starts=[0, 5], sizes=[E("n"), 0], steps=[1, 1]),
    S(g.ConvOp, F32(2, 3, 0, 5), F32(4, 3, 1, 1), dims="n 3 h w; 4 3 1 1", pads=[1, 0, 1, 1]),
    S(g.MatmulOp, F32(2, 0, 3), F32(2, 3, 0), dims="b m 3; b 3 k"),
    # a border at one end only, where the window has one position
    S(g.ConvOp, F32(3, 33, 3, 7), F32(3, 33, 1, 1), dims="n 33 h w; 3 33 1 1", pads=[0, 1, 1, 1]),
    # one index of no dims beside another
    S(g.GatherNdOp, F32(5, 7), I64(2, low=0, high=5), dims="5 7; 2"),
]
