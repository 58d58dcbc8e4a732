"""Convolutions and pooling of floats, at the graph level, with what they are by NumPy in f64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from dialects.graph import ConstantOp, ConvOp, MaxPoolOp, ReluOp, TransposeOp
from dialects.graph.convolution import convolve
from dialects.semantics.filters import JoinedGroups
from dialects.strata.func import FuncOp
from dialects.strata.types import Array, ExprAttr, element_of, tensor
from dialects.strata.weights import WeightStore
from dialects.symbolic.expr import Expr
from targets.base import TargetOptions
from targets.cuda import TARGET
from tests.lowering import lower


@dataclass(frozen=True)
class Case:
    """relu(convolution(relu(x)) + bias), whose tensors lie with channels last; x is an input.

    Or, without a filter `w`, the maximum over windows in the place of the convolution.
    `expects`: what the schedule of its kernel must say. `joined`: how many groups are one, with
    zeros between them: what is no number in one reaches all of them. `turned`: whether the result,
    too, has channels last.
    """

    name: str
    x: tuple[int, ...]
    w: tuple[int, ...] = ()
    dtype: str = "f2"
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    expects: str = "dot = 1"
    joined: int = 1
    turned: bool = False

    def arrays(self) -> list[Array]:
        """x, the filter and the bias. x holds infinities and NaN, but few."""
        rng = np.random.default_rng(len(self.name))
        x = rng.standard_normal(self.x)
        if x.size > 1000:
            x[0, 0, ..., 2], x[-1, -1, ..., -1] = np.inf, np.nan
        arrays = [x]
        if self.w:
            depth = np.prod(self.w[1:])
            arrays += [rng.standard_normal(self.w) / np.sqrt(depth), rng.standard_normal(self.w[0])]
        return [a.astype(self.dtype) for a in arrays]

    @property
    def inputs(self) -> list[Array]:
        return self.arrays()[:1]

    def expected(self) -> Array:
        total = self._expected()
        return np.moveaxis(total, 1, -1) if self.turned else total

    def _expected(self) -> Array:
        x, *others = (a.astype(np.float64) for a in self.arrays())
        x = np.maximum(x, 0)
        [op] = [op for op in self.module()[0].walk() if isinstance(op, (ConvOp, MaxPoolOp))]
        shape = op.result_tensors[0].static_shape
        assert shape is not None
        if not others:
            return self._maxima(x, shape)
        w, b = others
        group = int(self.attributes.get("group", 1))
        total = convolve(x, JoinedGroups(group, self.joined)(w), {
            **op.properties, "group": ExprAttr(Expr.of(group // self.joined))}, shape, x.dtype)
        return np.maximum(total + b.reshape(-1, *[1] * (w.ndim - 2)), 0)

    def _maxima(self, x: Array, shape: Sequence[int]) -> Array:
        kernel, strides = self.attributes["kernel"], self.attributes["strides"]
        low = self.attributes["pads"][:2]
        ends = [(p - 1) * s + k - n - lo for p, s, k, n, lo in zip(
            shape[2:], strides, kernel, x.shape[2:], low, strict=True)]
        padded = np.pad(x, [(0, 0), (0, 0), *((a, max(b, 0)) for a, b in zip(
            low, ends, strict=True))], constant_values=-np.inf)
        windows = np.lib.stride_tricks.sliding_window_view(padded, kernel, (2, 3))
        return windows[:, :, ::strides[0], ::strides[1]].max((-2, -1))

    def module(self) -> tuple[ModuleOp, WeightStore]:
        """The model at the graph level."""
        arrays, store = self.arrays(), WeightStore()
        func = FuncOp.of("main", ["x"], [tensor(element_of(arrays[0].dtype), self.x)])
        block = func.body.block
        constants = [ConstantOp.of_array(a, store, "weight") for a in arrays[1:]]
        block.add_ops([*constants, first := ReluOp.of(block.args[0])])
        kind = ConvOp if self.w else MaxPoolOp
        values = [first.results[0], *(c.results[0] for c in constants)]
        block.add_ops([op := kind.of(*values, **self.attributes),
                       last := ReluOp.of(op.results[0])])
        if self.turned:
            last = TransposeOp.of(last.results[0], perm=[0, *range(2, len(self.x)), 1])
            block.add_op(last)
        func.finish(["y"], last.results)
        return ModuleOp([func]), store

    def lowered(self, options: TargetOptions) -> tuple[ModuleOp, WeightStore]:
        """The model at block level, for the CUDA target."""
        module, store = self.module()
        for _ in lower(module, TARGET.bind(options).context(store)):
            pass
        return module, store


def _same(size: int = 1) -> Mapping[str, Any]:
    return {"pads": [size] * 4}


CASES: Sequence[Case] = [
    Case("whole tiles", (2, 32, 8, 8), (32, 32, 3, 3), attributes=_same()),
    Case("channels across tiles", (1, 24, 7, 9), (17, 24, 3, 3), attributes=_same()),
    Case("single precision", (1, 19, 7, 5), (33, 19, 3, 3), "f4", _same()),
    Case("strides, uneven borders", (2, 16, 13, 7), (24, 16, 3, 5), attributes={
        "pads": [1, 0, 2, 1], "strides": [2, 1]}),
    Case("dilated", (1, 16, 11, 9), (16, 16, 3, 3), attributes={**_same(2), "dilations": [2, 2]}),
    Case("few channels", (2, 3, 23, 21), (16, 3, 7, 7), attributes={**_same(3), "strides": [2, 2]}),
    Case("one row", (1, 4, 3, 3), (5, 4, 3, 3), expects="tails = mask"),
    Case("groups", (1, 64, 6, 7), (32, 32, 3, 3), attributes={**_same(), "group": 2}),
    Case("groups of few channels", (1, 64, 7, 9), (64, 4, 3, 3), attributes={
        **_same(), "group": 16}, joined=8),
    Case("groups of fewer results", (2, 48, 9, 5), (10, 24, 3, 3), attributes={
        **_same(), "group": 2, "strides": [2, 1]}, joined=2),
    Case("groups in single precision", (1, 32, 7, 7), (16, 8, 3, 3), "f4", {
        **_same(), "group": 4}, joined=2),
    Case("channels of no whole words", (2, 45, 5, 6), (9, 45, 3, 3), attributes=_same()),
    Case("one dim", (2, 20, 31), (18, 20, 5), attributes={"pads": [2, 2]}),
    Case("depthwise", (2, 37, 9, 13), (37, 1, 3, 3), attributes={**_same(), "group": 37},
         expects="tails = mask"),
    Case("depthwise, strides", (1, 80, 12, 9), (80, 1, 5, 5), "f4", {
        **_same(2), "group": 80, "strides": [2, 2]}, "unroll 5", turned=True),
    Case("depthwise, prime rows", (2, 37, 11, 13), (37, 1, 3, 3), attributes={
        **_same(), "group": 37}, expects="tails = mask", turned=True),
    Case("depthwise, dilated", (1, 24, 8, 6), (24, 1, 3, 3), attributes={
        **_same(2), "group": 24, "dilations": [2, 2]}, expects="unroll 3", turned=True),
    Case("maxima", (2, 24, 13, 11), attributes={
        **_same(), "kernel": [3, 3], "strides": [2, 2]}, expects="tails = mask"),
]
"""Odd and prime sizes, sums of all kinds, numbers that are none."""

STRIPS: Sequence[Case] = [
    Case("strips", (264, 9, 3, 5), (9, 1, 3, 3), attributes={**_same(), "group": 9},
         expects="tile 3 unroll 3", turned=True),
    Case("strips, strides", (140, 16, 8, 7), (16, 1, 5, 3), "f4", {
        "pads": [2, 1, 1, 1], "group": 16, "strides": [2, 1]}, "tile 2 unroll 2", turned=True),
]
"""Enough programs for several rows each: too many for Triton's interpreter."""
