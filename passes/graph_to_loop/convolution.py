"""Convolutions: sums of products over input channels and kernel positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from xdsl.ir import SSAValue

from dialects.graph.base import Build, int_of
from dialects.graph.convolution import ConvOp, ConvTransposeOp, kernel_sizes
from dialects.graph.window import Window
from dialects.loop import EmptyOp
from dialects.semantics.numerics import widen
from dialects.strata.types import TensorType, i1, is_float, tensor, wide_element
from dialects.symbolic.expr import Expr
from dialects.symbolic.ranges import is_at_most
from passes.graph_to_loop.contraction import contract
from passes.graph_to_loop.nests import (
    Domain,
    Read,
    assume_equal,
    converted,
    copy,
    make_nest,
    type_of,
)
from passes.graph_to_loop.rules import lowers
from passes.graph_to_loop.scalars import Body, Number, Scalar
from passes.rewrites.graph.matching import constant_array
from passes.rewriting import Rewriter


# ---------------------------------------------------------------------- conv
@lowers(ConvOp)
def conv(op: ConvOp, at: Rewriter) -> SSAValue:
    x, w, result = type_of(op.x), type_of(op.w), type_of(op.result)
    window = Window.of(kernel_sizes(w), op.properties, "C3")
    group = int_of(op.properties, "group", 1)
    assume_equal(at, x.shape[1], w.shape[1] * group)
    channels = _Channels.of(group, w.shape[1], w.shape[0])
    domain = Domain()
    [n] = domain.parallel(x.shape[0])
    outer = channels.outer(domain)
    places = domain.parallel(*result.shape[2:])
    inner = channels.inner(domain)
    taps = domain.reduce(*window.kernel)
    source = [p * s + k * d - low for p, s, k, d, low in zip(
        places, window.strides, taps, window.dilations, window.low, strict=True)]
    pad = _zero(x) if any((*window.low, *window.high)) else None
    total = contract(
        at, domain, Read(op.x, [n, channels.source(outer, inner), *source], pad),
        Read(op.w, [channels.result(outer), channels.within(inner), *taps]), result,
        index=[n, channels.result(outer), *places])
    return _finish(at, total, op.b, result)


def _zero(x: TensorType) -> Number:
    return 0.0 if is_float(x.element) else 0


@dataclass(frozen=True)
class _Channels:
    """The channel axes of a convolution with groups, as few as possible.

    With one group: output and input channels. Depthwise, with one input and one output channel per
    group: the group. Otherwise the group, and the output and input channels within the group.
    """

    group: int
    inputs: Expr
    outputs: Expr
    """The number of output channels per group."""

    @staticmethod
    def of(group: int, inputs: Expr, all_outputs: Expr) -> _Channels:
        return _Channels(group, inputs, all_outputs // group)

    @property
    def depthwise(self) -> bool:
        return self.group > 1 and self.inputs.constant == self.outputs.constant == 1

    def outer(self, domain: Domain) -> list[Expr]:
        """The parallel axes."""
        if self.group == 1:
            return domain.parallel(self.outputs)
        return domain.parallel(self.group, *([] if self.depthwise else [self.outputs]))

    def inner(self, domain: Domain) -> list[Expr]:
        """The reduce axes."""
        return [] if self.depthwise else domain.reduce(self.inputs)

    def result(self, outer: list[Expr]) -> Expr:
        """The output channel."""
        return outer[0] if len(outer) == 1 else outer[0] * self.outputs + outer[1]

    def within(self, inner: list[Expr]) -> Expr:
        """The input channel, counted within its group."""
        return inner[0] if inner else Expr.of(0)

    def result_within(self, outer: list[Expr]) -> Expr:
        """The output channel, counted within its group."""
        return Expr.of(0) if self.depthwise else outer[-1]

    def source(self, outer: list[Expr], inner: list[Expr]) -> Expr:
        """The input channel."""
        if self.group == 1:
            return inner[0]
        return outer[0] if self.depthwise else outer[0] * self.inputs + inner[0]


def _finish(
    at: Build, total: SSAValue, bias: SSAValue | None, result: TensorType,
    ahead: Sequence[int] | None = None,
) -> SSAValue:
    """Add the bias and round to the result's element type; skip the first `ahead` sums."""
    whole = type_of(total).shape == result.shape
    if bias is None and whole:
        return converted(at, total, result.element)
    domain = Domain()
    point = domain.parallel(*result.shape)
    source = point if ahead is None else [i + a for i, a in zip(point, ahead, strict=True)]
    if bias is None:
        return make_nest(at, domain, [Read(total, source)], result, copy)
    reads = [Read(total, source), Read(bias, [point[1]])]
    return make_nest(at, domain, reads, result,
                     lambda body, read: read[0] + read[1].to(read[0].element))


# ---------------------------------------------------------------------- conv_transpose
@dataclass(frozen=True)
class _Part:
    """Results of adjacent phases along one dim that sum the same number of taps.

    For stride s, a result at p has the phase v in p + low = s*u + v. It sums the sources at u - j
    with the taps at v + s*j.
    """

    first: int
    phases: int
    taps: int


@dataclass(frozen=True)
class _Spread:
    """One spatial dim of a transposed convolution, in the simplest of three forms.

    Stride 1: the result at p sums the sources at p + low - position*dilation.
    Phases: each result sums only the taps that meet a source, as `_Part` says. Whole groups of
    `stride` results are computed, and the first and the last group may extend beyond the ends.
    Otherwise, with a dilation or fewer taps than phases, zeros are inserted between the sources,
    which are then `stretch` apart, and the stride becomes 1.
    """

    result_size: Expr
    kernel: int
    stride: int
    dilation: int
    low: int

    @staticmethod
    def of(window: Window, dim: int, result: Expr) -> _Spread:
        return _Spread(result, window.kernel[dim], window.strides[dim], window.dilations[dim],
                       window.low[dim])

    @property
    def by_phases(self) -> bool:
        return 1 < self.stride <= self.kernel and self.dilation == 1

    @property
    def stretch(self) -> int:
        return 1 if self.by_phases else self.stride

    @property
    def ahead(self) -> int:
        """The number of results that are computed before the first one that is needed."""
        return self.low % self.stride if self.by_phases else 0

    @property
    def places(self) -> Expr:
        """The extent of the axis that sources and results share."""
        if not self.by_phases:
            return self.result_size
        return (self.result_size + (self.ahead - 1)) // self.stride + 1

    @property
    def parts(self) -> list[_Part]:
        if not self.by_phases:
            return [_Part(0, 1, self.kernel)]
        whole, rest = divmod(self.kernel, self.stride)
        parts = [_Part(0, rest, whole + 1), _Part(rest, self.stride - rest, whole)]
        return [part for part in parts if part.phases]

    def is_inside(self, part: _Part, size: Expr) -> bool:
        """Whether no result of the part reads beyond the `size` sources."""
        return self.by_phases and part.taps == 1 and self.low < self.stride and is_at_most(
            self.places, size)

    def source(self, place: Expr, tap: Expr) -> Expr:
        if self.by_phases:
            return place + self.low // self.stride - tap
        return place + self.low - tap * self.dilation

    def tap(self, phase: Expr, tap: Expr) -> Expr:
        """The index at which the filter is read."""
        return phase + tap * self.stride if self.by_phases else tap

    def target(self, place: Expr, phase: Expr) -> Expr:
        return place * self.stride + phase if self.by_phases else place


@lowers(ConvTransposeOp)
def conv_transpose(op: ConvTransposeOp, at: Rewriter) -> SSAValue:
    x, w, result = type_of(op.x), type_of(op.w), type_of(op.result)
    window = Window.of(kernel_sizes(w), op.properties, "C3")
    group = int_of(op.properties, "group", 1)
    assume_equal(at, x.shape[1], w.shape[0])
    channels = _Channels(group, w.shape[0] // group, w.shape[1])
    dims = [_Spread.of(window, k, result.shape[k + 2]) for k in range(window.rank)]
    if _may_be_infinite(op.w, at) and any(d.stretch > 1 for d in dims):
        return _finish(at, _added_apart(op, at, window, channels), op.b, result)
    source = _stretched(at, op.x, [1, 1, *(d.stretch for d in dims)])
    choices = list(product(*(d.parts for d in dims)))
    sums = [_phases(op, at, source, channels, dims, parts) for parts in choices]
    total = sums[0] if len(sums) == 1 else _interleaved(at, dims, choices, sums)
    return _finish(at, total, op.b, result, [0, 0, *(d.ahead for d in dims)])


def _phases(
    op: ConvTransposeOp, at: Rewriter, source: SSAValue, channels: _Channels,
    dims: Sequence[_Spread], parts: Sequence[_Part],
) -> SSAValue:
    """The sums of one part along each dim, with adjacent phases."""
    x, result = type_of(op.x), type_of(op.result)
    domain = Domain()
    [n] = domain.parallel(x.shape[0])
    outer = channels.outer(domain)
    places = domain.parallel(*(d.places for d in dims))
    phases = [domain.parallel(p.phases)[0] if p.phases > 1 else Expr.of(0) for p in parts]
    inner = channels.inner(domain)
    taps = [domain.reduce(p.taps)[0] if p.taps > 1 else Expr.of(0) for p in parts]
    rows = list(zip(dims, parts, places, phases, taps, strict=True))
    sizes = type_of(source).shape[2:]
    places_read = [d.source(u, j) for d, _, u, _, j in rows]
    outside = [(i, size) for i, size, d, p in zip(places_read, sizes, dims, parts, strict=True)
               if not d.is_inside(p, size)]
    data = Read(source, [n, channels.source(outer, inner), *places_read],
                _zero(x) if outside else None)
    weights = Read(op.w, [channels.source(outer, inner), channels.result_within(outer),
                          *(d.tap(v + p.first, j) for d, p, _, v, j in rows)])
    shape = [*result.shape[:2], *(d.places * p.phases for d, p in zip(dims, parts, strict=True))]
    index = [n, channels.result(outer), *(u * p.phases + v for _, p, u, v, _ in rows)]
    type_ = tensor(result.element, shape)
    if not outside or not _may_be_infinite(op.w, at):
        return contract(at, domain, data, weights, type_, index=index)
    return _selected(at, domain, [data, weights], type_, index, outside)


def _selected(
    at: Build, domain: Domain, reads: Sequence[Read], result: TensorType, index: Sequence[Expr],
    bounds: Sequence[tuple[Expr, Expr]],
) -> SSAValue:
    """Like `contract`, but only for products whose source exists: (index, size) in `bounds`."""
    element = wide_element(result.element)

    def product_there(body: Body, read: Sequence[Scalar]) -> Scalar:
        there = _all_inside(body, body.constant(True, i1), bounds)
        return there.where(read[0].to(element) * read[1].to(element), 0)

    combiner = "add" if any(a.reduce for a in domain.axes) else "none"
    return make_nest(at, domain, reads, tensor(element, result.shape), product_there,
                     index=index, combiner=combiner)


def _all_inside(body: Body, there: Scalar, bounds: Sequence[tuple[Expr, Expr]]) -> Scalar:
    for i, size in bounds:
        there = there & body.index(i).compare("ge", 0) & body.index(i - size).compare("lt", 0)
    return there


def _interleaved(
    at: Build, dims: Sequence[_Spread], choices: Sequence[Sequence[_Part]],
    sums: Sequence[SSAValue],
) -> SSAValue:
    """Interleave the phases of all parts into the order of the results."""
    first = type_of(sums[0])
    whole_type = tensor(first.element, [
        *first.shape[:2], *(d.places * sum(p.phases for p in d.parts) for d in dims)])
    whole = at.insert(EmptyOp.of(whole_type)).results[0]
    for parts, value in zip(choices, sums, strict=True):
        domain = Domain()
        point = domain.parallel(*first.shape[:2])
        places = domain.parallel(*(d.places for d in dims))
        phases = domain.parallel(*(p.phases for p in parts))
        rows = list(zip(dims, parts, places, phases, strict=True))
        source = [*point, *(u * p.phases + v for _, p, u, v in rows)]
        target = [*point, *(d.target(u, v + p.first) for d, p, u, v in rows)]
        whole = make_nest(at, domain, [Read(value, source)], whole_type, copy, index=target,
                          into=whole)
    return whole


def _may_be_infinite(w: SSAValue, at: Rewriter) -> bool:
    """Whether 0 times an element of the filter may be NaN; true for filters known only at run time.
    """
    if not is_float(type_of(w).element):
        return False
    array = constant_array(w, at.context)
    return array is None or not bool(np.isfinite(widen(array)).all())


def _added_apart(
    op: ConvTransposeOp, at: Rewriter, window: Window, channels: _Channels
) -> SSAValue:
    """The sums over existing sources only, for filters where inserted zeros could yield NaN."""
    x, result = type_of(op.x), type_of(op.result)
    domain = Domain()
    [n], outer = domain.parallel(x.shape[0]), channels.outer(domain)
    places = domain.parallel(*result.shape[2:])
    inner, taps = channels.inner(domain), domain.reduce(*window.kernel)
    ahead = [p + low - k * d for p, low, k, d in zip(
        places, window.low, taps, window.dilations, strict=True)]
    source = [a // s for a, s in zip(ahead, window.strides, strict=True)]
    rows = list(zip(ahead, source, window.strides, x.shape[2:], strict=True))
    element = wide_element(result.element)

    def added(body: Body, read: Sequence[Scalar]) -> Scalar:
        there = body.constant(True, i1)
        for a, s, stride, _ in rows:
            there = there & body.index(a - s * stride).compare("eq", 0)
        there = _all_inside(body, there, [(s, size) for _, s, _, size in rows])
        product = read[0].to(element) * read[1].to(element)
        return there.where(product, 0)

    channel = channels.source(outer, inner)
    reads = [Read(op.x, [n, channel, *source], _zero(x)),
             Read(op.w, [channel, channels.result_within(outer), *taps])]
    return make_nest(at, domain, reads, tensor(element, result.shape), added,
                     index=[n, channels.result(outer), *places], combiner="add")


def _stretched(at: Build, x: SSAValue, steps: Sequence[int]) -> SSAValue:
    """x with step - 1 zeros inserted between neighbours along each dim."""
    if max(steps) == 1:
        return x
    type_ = type_of(x)
    sizes = [(size - 1) * step + 1 for size, step in zip(type_.shape, steps, strict=True)]
    result = tensor(type_.element, sizes)
    zeros = Domain()
    zeros.parallel(*sizes)
    empty = make_nest(at, zeros, [], result,
                      lambda body, read: body.constant(0, type_.element))
    domain = Domain()
    point = domain.parallel(*type_.shape)
    spread = [i * step for i, step in zip(point, steps, strict=True)]
    return make_nest(at, domain, [Read(x, point)], result, copy, index=spread, into=empty)
