"""Transposed convolutions: each result sums the sources that reach it, over channels and taps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from xdsl.ir import SSAValue

from dialects.graph.base import Build, int_of
from dialects.graph.convolution import ConvTransposeOp, kernel_sizes
from dialects.graph.window import Window
from dialects.loop import EmptyOp
from dialects.semantics.numerics import widen
from dialects.strata.types import TensorType, i1, is_float, tensor, wide_element
from dialects.symbolic.expr import Expr
from dialects.symbolic.ranges import is_at_most
from dialects.symbolic.size_products import product as product_of
from passes.graph_to_loop.contraction import contract
from passes.graph_to_loop.convolution import Channels, finish, zero_of
from passes.graph_to_loop.nests import (
    Domain,
    Read,
    assume_equal,
    copy,
    make_nest,
    type_of,
)
from passes.graph_to_loop.phases import Phases, Spatial, products_of
from passes.graph_to_loop.rules import lowers
from passes.graph_to_loop.scalars import Body, Scalar
from passes.rewrites.graph.matching import constant_array, is_settled
from passes.rewriting import Rewriter

MOST_PARTS = 16
"""The most kernels of a transposed convolution, so that each leaves no product out."""


class _Part(NamedTuple):
    """Results of adjacent phases along one dim that sum the same number of taps.

    For stride s, a result at p has the phase v in p + low = s*u + v. It sums the sources at u - j
    with the taps at v + s*j.
    """

    first: int
    phases: int
    taps: int


class _Spread(NamedTuple):
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
    channels = Channels(group, w.shape[0] // group, w.shape[1])
    if at.context.facts.phases:
        return _by_phase(op, at, window, channels)
    dims = [_Spread.of(window, k, result.shape[k + 2]) for k in range(window.rank)]
    if _may_be_infinite(op.w, at) and any(d.stretch > 1 for d in dims):
        return finish(at, _added_apart(op, at, window, channels), op.b, result)
    source = _stretched(at, op.x, [1, 1, *(d.stretch for d in dims)])
    choices = list(product(*(d.parts for d in dims)))
    sums = [_phases(op, at, source, channels, dims, parts) for parts in choices]
    total = sums[0] if len(sums) == 1 else _interleaved(at, dims, choices, sums)
    return finish(at, total, op.b, result, [0, 0, *(d.ahead for d in dims)])


def _phases(
    op: ConvTransposeOp, at: Rewriter, source: SSAValue, channels: Channels,
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
                zero_of(x) if outside else None)
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


# ---------------------------------------------------------------------- phase by phase
def _by_phase(
    op: ConvTransposeOp, at: Rewriter, window: Window, channels: Channels
) -> SSAValue:
    """The results of each phase as a convolution; of all phases together where that is faster."""
    x, result = type_of(op.x), type_of(op.result)
    dims = [Spatial(result.shape[k + 2], x.shape[k + 2], window.kernel[k], window.strides[k],
                    window.dilations[k], window.low[k]) for k in range(window.rank)]
    parts = list(product(*(d.apart() for d in dims)))
    joined = [d.joined() for d in dims]
    whole = list(product(*(j for j in joined if j is not None)))
    if whole and None not in joined and _are_faster_joined(op, at, whole[0], parts):
        return finish(at, _of_phases(op, at, channels, whole[0], result), op.b, result)
    summing = [phases for phases in parts if all(p.taps for p in phases)]
    inside = _inside(summing) if _may_be_infinite(op.w, at) else None
    if inside is not None and at.context.facts.programs == 1:
        summing = inside
    is_filled = sum((_results(s) for s in summing), Expr.of(0)) == product_of(result.shape[2:])
    made = at.insert(EmptyOp.of(result)).results[0] if is_filled else _only_bias(op, at)
    for phases in summing:
        made = _placed(op, at, channels, phases, made)
    return made


def _inside(parts: Sequence[Sequence[Phases]]) -> list[Sequence[Phases]] | None:
    """The phases in parts that read nothing beyond the ends of the data, so that no product needs
    to be left out; None if there are too many, or sizes are open."""
    found: list[Sequence[Phases]] = []
    for phases in parts:
        cut = [p.parted() for p in phases]
        known = [c for c in cut if c is not None]
        if len(known) < len(cut):
            return None
        found += product(*known)
    return found if len(found) <= MOST_PARTS else None


def _results(parts: Sequence[Phases]) -> Expr:
    return product_of([p.places * p.count for p in parts])


def _only_bias(op: ConvTransposeOp, at: Rewriter) -> SSAValue:
    """The results that no source reaches, everywhere."""
    result, domain = type_of(op.result), Domain()
    point = domain.parallel(*result.shape)
    reads = [] if op.b is None else [Read(op.b, [point[1]])]
    return make_nest(at, domain, reads, result, lambda body, read: read[0] if read else (
        body.constant(0, result.element)))


def _are_faster_joined(
    op: ConvTransposeOp, at: Rewriter, whole: Sequence[Phases], parts: Sequence[Sequence[Phases]]
) -> bool:
    """Whether all phases are faster in one kernel, for all that it multiplies with zeros. Phases of
    one tap that all exist are columns of one product."""
    x, w = type_of(op.x), type_of(op.w)
    if all(p.taps == 1 and not p.ends_early for p in whole):
        return True
    apart = sum((products_of(part) for part in parts), Expr.of(0))
    zeros = x.shape[0] * w.shape[0] * w.shape[1] * (products_of(whole) - apart)
    assert at.context.rules is not None, "only a target asks for phases"
    return at.context.rules.joins_phases(zeros.constant, len(parts), x.element)


def _of_phases(
    op: ConvTransposeOp, at: Rewriter, channels: Channels, parts: Sequence[Phases],
    result: TensorType,
) -> SSAValue:
    """The sums of some phases: where they belong in the result, or all that there are of one."""
    domain = Domain()
    [n] = domain.parallel(result.shape[0])
    outer = channels.outer(domain)
    places = domain.parallel(*(p.places for p in parts))
    phases = [domain.parallel(p.count)[0] if p.count > 1 else Expr.of(0) for p in parts]
    inner = channels.inner(domain)
    terms = [domain.reduce(p.taps)[0] if p.taps > 1 else Expr.of(0) for p in parts]
    rows = list(zip(parts, places, phases, terms, strict=True))
    source = [p.source(*at_) for p, *at_ in rows]
    outside = [(i, p.dim.sources) for i, p in zip(source, parts, strict=True) if not p.is_inside]
    channel = channels.source(outer, inner)
    data = Read(op.x, [n, channel, *source], zero_of(type_of(op.x)) if outside else None)
    weights = Read(op.w, [channel, channels.result_within(outer),
                          *(p.tap(v, j) for p, _, v, j in rows)],
                   zero_of(type_of(op.w)) if any(p.ends_early for p in parts) else None)
    is_whole = any(p.count > 1 for p in parts)
    placed = [p.result(u, v) for p, u, v, _ in rows] if is_whole else places
    sizes = result.shape[2:] if is_whole else [p.places for p in parts]
    type_ = tensor(result.element, [*result.shape[:2], *sizes])
    index = [n, channels.result(outer), *placed]
    if not outside or not _may_be_infinite(op.w, at):
        return contract(at, domain, data, weights, type_, index=index)
    return _selected(at, domain, [data, weights], type_, index, outside)


def _placed(
    op: ConvTransposeOp, at: Rewriter, channels: Channels, parts: Sequence[Phases], into: SSAValue
) -> SSAValue:
    """`into` with the results of one phase, and their bias."""
    result, domain = type_of(op.result), Domain()
    sums = _of_phases(op, at, channels, parts, result)
    point = domain.parallel(*result.shape[:2], *(p.places for p in parts))
    reads = [Read(sums, point), *([] if op.b is None else [Read(op.b, [point[1]])])]

    def total(body: Body, read: Sequence[Scalar]) -> Scalar:
        return read[0] if len(read) == 1 else read[0] + read[1].to(read[0].element)

    index = [*point[:2], *(p.result(u, Expr.of(0)) for p, u in zip(parts, point[2:], strict=True))]
    return make_nest(at, domain, reads, result, total, index=index, into=into)


def _may_be_infinite(w: SSAValue, at: Rewriter) -> bool:
    """Whether 0 times an element of the filter may be NaN; true for filters known only at run time.
    """
    if not is_float(type_of(w).element):
        return False
    array = constant_array(w, at.context) if is_settled(w, at.context) else None
    return array is None or not bool(np.isfinite(widen(array)).all())


def _added_apart(
    op: ConvTransposeOp, at: Rewriter, window: Window, channels: Channels
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
    reads = [Read(op.x, [n, channel, *source], zero_of(x)),
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
