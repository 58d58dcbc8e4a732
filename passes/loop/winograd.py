"""`loop-winograd`: compute neighbouring sums of a convolution together, with fewer products.

    %y = nest (n, h, w, o, reduce c, k: 3) ins(%x[n, h, w + k, c], %f[o, c, k])
    ->  %v = nest (q: 6, n, h, t, c, reduce j: 6) ins(%B[q, j], %x[n, h, 4*t + j, c])
        %m = nest (q: 6, n, h, t, o, reduce c)    ins(%v[q, n, h, t, c], %u[q, o, c])
        %y = nest (n, h, w, o, reduce q: 6)       ins(%A[w mod 4, q], %m[q, n, h, w floordiv 4, o])

Six products per channel yield four sums of three taps, which need twelve products otherwise
(S. Winograd, Arithmetic Complexity of Computations; A. Toom). Along the window, x and the filter
are polynomials, and they are multiplied by multiplying their values at six points. The filter's
values %u are computed at compile time. The transforms of x and of the products are small dense sums
like any others, so later passes need not know about them. Two windows of one convolution are
shortened one after the other: 36 products for 16 sums of nine taps, or 24 for 8 where one window
has four points.

The transforms amplify each rounding error (`Window.loss`). On the other hand, sums of products are
shorter, and they are added up from sums of PART terms. Over 16 to 256 channels of noise, six points
in one window give 0.7 to 1.3 times the error of onnxruntime's direct convolutions (root mean
square), and 0.9 to 2.8 times in two windows. Where most values are zero, direct sums are short as
well, and the whole loss shows: 2.5 and 5 times after a ReLU and a pooling. The target decides where
it pays, and how much accuracy may be lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import IntAttr, ModuleOp
from xdsl.ir import Block, Region, SSAValue

from dialects.graph import ConstantOp
from dialects.graph.base import Build
from dialects.loop import Axis, NestOp, YieldOp, extents_of, fresh_axes, scalar_type
from dialects.records import dataclass
from dialects.semantics.filters import FilterAtPoints
from dialects.strata.types import Array, TensorType, f32, is_float, tensor
from dialects.strata.weights import WeightStore
from dialects.symbolic.expr import Expr
from dialects.symbolic.ranges import is_at_most, is_nonnegative, lower_bound, upper_bound
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import set_location
from passes.analyses.loop.kinds import is_contraction
from passes.analyses.loop.windows import Window, input_table, output_table, weight_parts, windows_of
from passes.base import StrataContext, StrataPass
from passes.contract import Rules
from passes.loop_to_block.compute import product_operands
from passes.rewrites.loop.nests import Read, reads_of
from passes.rewriting import erase_unused, functions, replace

PART = 32
"""The number of products that are summed in a row; the transforms amplify the error of each sum."""


class LoopWinograd(StrataPass):
    """Shorten the windows of convolutions with constant filters."""

    name = "loop-winograd"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        if context.rules is None or context.exact:
            return
        for func in functions(module):
            shortened = [_shorten(nest, context.rules, context) for nest in func.body.block.ops
                         if isinstance(nest, NestOp)]
            if any(shortened):
                erase_unused(func.body.block, context)  # filters that only their transforms used


def _shorten(nest: NestOp, rules: Rules, context: StrataContext) -> bool:
    """Replace a nest by nests with fewer products, along the windows that the target chooses."""
    found = _filter_of(nest)
    if found is None:
        return False
    data, constant = found
    windows = rules.shorten(nest, data, windows_of(nest, data))
    if not windows or not constant.is_finite(context.weights):
        return False  # a transform would spread an infinity or a NaN over all taps
    shortening = _Shortening(nest, data, tuple(windows), Build(nest), context.weights)
    replace(nest, [shortening.result(constant)], context, "winograd")
    return True


def _filter_of(nest: NestOp) -> tuple[int, ConstantOp] | None:
    """The number of the data input and the constant filter, if the nest reads exactly these two."""
    if not is_contraction(nest) or len(nest.inputs) != 2 or product_operands(nest) is None:
        return None
    if nest.into or scalar_type(nest.results[0]) != f32:
        return None
    for data, value in enumerate(reversed(nest.inputs)):
        if isinstance(value.owner, ConstantOp) and nest.pad_values[1 - data] is None and (
                scalar_type(nest.inputs[data]) == f32 and is_float(scalar_type(value))):
            return data, value.owner
    return None


@dataclass
class _Shortening:
    """The nests that replace one: a transform per window, the products, another per window."""

    nest: NestOp
    data: int
    windows: tuple[Window, ...]
    at: Build
    weights: WeightStore

    def __post_init__(self) -> None:
        self.extents = extents_of(self.nest.axes)
        self.fresh = fresh_axes(self.extents)
        self.points = [next(self.fresh) for _ in self.windows]
        """The axes over the points of each window."""
        self.step = next(self.fresh)
        """The axis that a transform sums over."""

    def result(self, constant: ConstantOp) -> SSAValue:
        values = self._values()
        products = self._products(values, self._filter(constant))
        for k in reversed(range(len(self.windows))):
            products = self._sums(k, products)
        return products

    # ------------------------------------------------------------------ the data's values
    def _values(self) -> Read:
        """The data transformed to all points, and where the products read it.

        Its dims: the points of the last window, ..., of the first, then the data's own dims with
        their borders, where tiles replace the positions of a window.
        """
        read = reads_of(self.nest)[self.data]
        value, spans = read.value, [self._span(d, e) for d, e in enumerate(read.map)]
        starts, sizes = [low for low, _ in spans], [size for _, size in spans]
        at = [e - low for e, low in zip(read.map, starts, strict=True)]
        for k, window in enumerate(self.windows):
            value = self._transformed(value, k, starts, sizes, read.pad is not None or k == 0)
            starts = [Expr.of(0)] * len(starts)
            sizes[window.dim] = window.tiles(self.extents[window.axis])
            at[window.dim] = Expr.symbol(window.axis)
        points = [Expr.symbol(p) for p in reversed(self.points)]
        return Read(value, (*points, *at))

    def _span(self, dim: int, expr: Expr) -> tuple[Expr, Expr]:
        """Where the products begin to read a dim of the data, and the number of positions read."""
        low, high = lower_bound(expr, self.extents), upper_bound(expr, self.extents)
        assert low is not None and high is not None, "windows are of affine reads"
        for window in self.windows:
            if window.dim == dim:
                return low, window.positions(self.extents[window.axis])
        return low, high - low + 1

    def _transformed(
        self, x: SSAValue, k: int, starts: Sequence[Expr], sizes: Sequence[Expr], padded: bool
    ) -> SSAValue:
        """v[q, ..., t, ...] = sum over j of B[q, j] * x[..., position j of tile t, ...]."""
        assert isinstance(x.type, TensorType)
        window, before = self.windows[k], x.type.rank - len(sizes)
        shape = [*x.type.shape[:before], *sizes]
        own = before + window.dim
        shape[own] = window.tiles(self.extents[window.axis])
        axes = [Axis(next(self.fresh), size) for size in shape]
        point = [Expr.symbol(a.name) for a in axes]
        q, j = Expr.symbol(self.points[k]), Expr.symbol(self.step)
        where = [*point[:before], *(p + s for p, s in zip(point[before:], starts, strict=True))]
        where[own] = window.position(point[own], j) + starts[window.dim]
        domain = [self._points(k), *axes, Axis(self.step, Expr.of(window.points), True)]
        pad = 0.0 if padded and not _is_inside(where, x.type.shape, domain) else None
        table = self._constant(input_table(window.points), "winograd.input")
        return self._nest(domain, Read(table, (q, j)), Read(x, tuple(where), pad), (q, *point))

    # ------------------------------------------------------------------ products
    def _filter(self, constant: ConstantOp) -> SSAValue:
        """The filter at all points, as a constant."""
        windows = ", ".join(f"{w.taps} at {w.points} points for {w.count}" for w in self.windows)
        map_ = self.nest.input_maps[1 - self.data]
        values = _filter_at_points(map_, tuple(reversed(self.windows)))
        return self.at.insert(constant.derived(
            self.weights, ".values", f"winograd [{', '.join(map(str, map_))}] {windows}",
            values)).results[0]

    def _products(self, data: Read, values: SSAValue) -> SSAValue:
        """The nest of the products at all points, without the windows."""
        taps = {w.taps for w in self.windows}
        points = [Expr.symbol(p) for p in reversed(self.points)]
        axes = [*(self._points(k) for k in reversed(range(len(self.windows)))),
                *(Axis(a.name, self._tiles(a.name), a.reduce) for a in self.nest.axes
                  if a.name not in taps)]
        map_ = [e for e in self.nest.input_maps[1 - self.data] if e.as_symbol not in taps]
        products = self._nest(axes, data, Read(values, (*points, *map_)),
                              (*points, *self.nest.output_maps[0]))
        assert isinstance(products.owner, NestOp)
        products.owner.part = IntAttr(PART)
        return products

    def _tiles(self, axis: Symbol) -> Expr:
        """The extent of an axis in the products."""
        extent = self.extents[axis]
        return next((w.tiles(extent) for w in self.windows if w.axis == axis), extent)

    # ------------------------------------------------------------------ sums
    def _sums(self, k: int, products: SSAValue) -> SSAValue:
        """y[..., w, ...] = sum over q of A[place of w, q] * m[q, ..., tile of w, ...]."""
        window, left = self.windows[k], self.points[:k]
        w, q = Expr.symbol(window.axis), Expr.symbol(self.points[k])
        points = [Expr.symbol(p) for p in reversed(left)]
        tiled = {v.axis for v in self.windows[:k]}
        axes = [*(self._points(j) for j in reversed(range(k))),
                *(Axis(a.name, self._tiles(a.name) if a.name in tiled else a.extent)
                  for a in self.nest.parallel_axes),
                self._points(k, True)]
        stored = self.nest.output_maps[0]
        source = [e.substitute({window.axis: window.tile_of(w)}) for e in stored]
        table = self._constant(output_table(window.points, window.count), "winograd.output")
        return self._nest(axes, Read(table, (window.place_of(w), q)),
                          Read(products, (q, *points, *source)), (*points, *stored))

    # ------------------------------------------------------------------ common
    def _points(self, k: int, summed: bool = False) -> Axis:
        """The axis over the points of a window."""
        return Axis(self.points[k], Expr.of(self.windows[k].points), summed)

    def _constant(self, array: Array, label: str) -> SSAValue:
        array = np.ascontiguousarray(array, np.float32)
        return self.at.insert(
            ConstantOp.of_array(array, self.weights, label)).results[0]

    def _nest(
        self, axes: Sequence[Axis], a: Read, b: Read, stored: Sequence[Expr]
    ) -> SSAValue:
        """The sum of a * b over the reduce axes; each dim is as long as its index requires."""
        bounds = [upper_bound(e, extents_of(axes)) for e in stored]
        assert None not in bounds
        type_ = tensor(f32, [b + 1 for b in bounds if b is not None])
        unit = {a.name: 0 for a in axes if a.extent.constant == 1}
        a_map, b_map, y_map = ([e.substitute(unit) for e in m] for m in (a.map, b.map, stored))
        block = Block(arg_types=[f32, f32])
        product = arith.MulfOp(block.args[0], block.args[1])
        block.add_ops([product, YieldOp.of(product.result)])
        nest = NestOp.of([a for a in axes if a.name not in unit], [a.value, b.value],
                         [a_map, b_map], [type_], [y_map], combiners=["add"],
                         pads=[a.pad, b.pad], body=Region(block))
        self.at.insert(nest)
        set_location(nest, self.nest)
        nest.results[0].name_hint = self.nest.results[0].name_hint
        return nest.results[0]


def _is_inside(map_: Sequence[Expr], shape: Sequence[Expr], axes: Sequence[Axis]) -> bool:
    """Whether a read certainly stays inside its tensor."""
    extents = extents_of(axes)
    bounds = [(lower_bound(e, extents), upper_bound(e, extents)) for e in map_]
    return all(low is not None and high is not None and is_nonnegative(low)
               and is_at_most(high, size - 1)
               for (low, high), size in zip(bounds, shape, strict=True))


def _filter_at_points(map_: Sequence[Expr], windows: Sequence[Window]) -> FilterAtPoints:
    """How the filter at all points is computed.

    `map_`: the index expressions of the filter. `windows`: from the last to the first.
    """
    dims = [next(d for d, e in enumerate(map_) if e.as_symbol == w.taps) for w in windows]
    parts = [weight_parts(w.points, w.count) for w in windows]
    table = reduce(np.kron, (rows for rows, _ in parts))
    divisors = reduce(np.kron, (below for _, below in parts))
    return FilterAtPoints(tuple(dims), tuple(w.points for w in windows),
                          tuple(map(tuple, table.tolist())), tuple(divisors.tolist()))
