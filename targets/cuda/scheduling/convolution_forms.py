"""Which kernels are convolutions that cuDNN can compute.

Such a kernel sums products of data and a filter over channels and windows, with strides, dilations,
groups and padding with zeros. After that it may have a factor per channel, a bias, an added tensor,
and a ReLU. A product of two matrices is a convolution without spatial dims. The letters of the dims
are batch `n`, the data's channels `c`, the result's channels `o`, and spatial dims `d`, `h` and `w`
as needed. A depthwise filter, which sums no channels, has `g` for the result's channels, and a
factor has an `x` before its dims. Words give the strides, dilations and leading padding where they
are not 1, 1 and 0. More words say whether f32 may be rounded, and whether cuDNN is to compile the
kernel at run time.

    relu(convolution + bias)          nhwc.ohwc.o.nhwo.s2x2.p1x1.relu
    (x @ w.T) * scale + bias + other  nc.oc.xo.o.no.no

The axes of such kernels are fused, so an axis of the convolution may be a part of an index, such as
`i0 mod 28`. A filter has the layout of the data, channels last or not; it is packed (`packing`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from dialects.loop import KernelOp, NestOp
from dialects.strata.types import TensorType
from dialects.symbolic.expr import Expr, atom_text
from passes.analyses.loop.kinds import is_contraction
from passes.contract import Border, Packing
from passes.loop_to_block.compute import is_dot
from targets.cuda.libraries.epilogues import Epilogue, elements_of, epilogue_of, used_by
from targets.cuda.libraries.words import CUDNN, FACTOR, PLACES, RELU, TF32
from targets.options import TargetOptions

_ELEMENTS = ("f16", "bf16", "f32")
_MOST_SUMMED = 1 << 20
"""The longest sum whose positions are enumerated."""

Terms = Mapping[str, int]
"""A linear expression: its atoms with their factors; '' stands for the constant."""


@dataclass(frozen=True)
class Dim:
    """A dim of the data: a stepping position `own` of the result, and a position in the window."""

    own: str
    stride: int = 1
    window: str | None = None
    dilation: int = 1
    before: int = 0

    @property
    def is_batch(self) -> bool:
        return (self.stride, self.window, self.before) == (1, None, 0)


@dataclass(frozen=True)
class Reading:
    """The roles of a nest's inputs, by position, and the letters of their dims and the result's.

    `dims`: the data's spatial dims, in order.
    """

    data: int
    letters: Mapping[int, str]
    result: str
    dims: Sequence[Dim]

    @property
    def filter_order(self) -> tuple[int, ...]:
        """The order of the filter's dims in memory: channels where the data has them."""
        last = self.letters[self.data].endswith("c")
        wanted = f"og{PLACES}c" if last else f"ogc{PLACES}"
        letters = self.letters[1 - self.data]
        return tuple(sorted(range(len(letters)), key=lambda k: wanted.index(letters[k])))


def convolution_form(kernel: KernelOp, options: TargetOptions) -> str | None:
    """The form of a kernel that cuDNN may compute; None for others."""
    product = kernel.nests[0]
    word = _precision(product, options)
    reading, epilogue = read_convolution(product), epilogue_of(kernel)
    if word is None or reading is None or epilogue is None:
        return None
    maps = used_by(kernel, product, epilogue)
    if maps is None or not elements_of(kernel) <= {*_ELEMENTS}:
        return None
    factors = {product.inputs[k]: letters for k, letters in _packed(reading).items()}
    letters = {str(e): x for e, x in zip(epilogue.sums, reading.result, strict=True)}
    scale = None if epilogue.scale is None else epilogue.scale[0]
    dims = [factors.get(a) or FACTOR * (a is scale) + _dims(m, letters)
            for a, m in zip(kernel.body.block.args, maps, strict=True)]
    result = _dims(epilogue.result, letters)
    if not _is_form([d for a, d in zip(kernel.body.block.args, dims, strict=True)
                     if a not in factors], result, reading):
        return None
    return ".".join((CUDNN, *dims, result, *_words(reading.dims, epilogue), *word))


def packing(nest: NestOp) -> Mapping[int, Packing] | None:
    """The layouts that a call needs: the filter by `Reading.filter_order`, the data as it is. None
    for a nest that is not a convolution."""
    reading = read_convolution(nest)
    if reading is None:
        return None
    order = reading.filter_order
    is_there = order == tuple(range(len(order)))
    return {reading.data: None, 1 - reading.data: None if is_there else Border(order)}


def _precision(nest: NestOp, options: TargetOptions) -> Sequence[str] | None:
    """The words for the precision; None for types and precisions that cuDNN lacks."""
    elements = {str(v.type.element) for v in nest.inputs if isinstance(v.type, TensorType)}
    [element] = elements if len(elements) == 1 else [""]
    if element not in _ELEMENTS or not is_contraction(nest) or not is_dot(nest):
        return None
    if element != "f32" or options.precision == "f32":
        return []
    return [TF32] if options.precision == TF32 else None


def _packed(reading: Reading) -> dict[int, str]:
    """The letters of the inputs' dims after packing."""
    letters = reading.letters[1 - reading.data]
    return {**reading.letters,
            1 - reading.data: "".join(letters[k] for k in reading.filter_order)}


def _dims(map_: Sequence[Expr], letters: Mapping[str, str]) -> str:
    return "".join(letters.get(str(e), "?") for e in map_)


def _is_form(added: Sequence[str], result: str, reading: Reading) -> bool:
    """Whether factors are per channel, each added input is a bias or has the result's dims, there
    is at most one of each, and the whole result is stored."""
    whole = sorted(reading.result)
    kinds = [d if d in ("o", f"{FACTOR}o") else sorted(d) for d in added]
    return (sorted(result) == whole and all(kinds.count(kind) == 1 for kind in kinds)
            and all(isinstance(kind, str) or kind == whole for kind in kinds))


def _words(dims: Sequence[Dim], epilogue: Epilogue) -> list[str]:
    numbers = (("s", 1, [d.stride for d in dims]), ("p", 0, [d.before for d in dims]),
               ("d", 1, [d.dilation for d in dims]))
    words = [letter + "x".join(map(str, found)) for letter, usual, found in numbers
             if any(n != usual for n in found)]
    return [*words, *[RELU] * epilogue.relu]


# ---------------------------------------------------------------------- reading a nest
def read_convolution(nest: NestOp) -> Reading | None:
    """The reading of a nest as a convolution; None for other nests."""
    if len(nest.inputs) != 2 or any(p not in (None, 0.0) for p in nest.pad_values):
        return None
    if not nest.reduce_axes:
        return None
    return _read(nest, 0) or _read(nest, 1)


def _read(nest: NestOp, data: int) -> Reading | None:
    walked, filtered, stored = ([_terms(e) for e in map_] for map_ in (
        nest.input_maps[data], nest.input_maps[1 - data], nest.output_maps[0]))
    if None in (*walked, *filtered, *stored) or not _is_whole(nest, 1 - data):
        return None
    in_filter = set[str]().union(*(t for t in filtered if t)) - {""}
    channels = [k for k, t in enumerate(stored) if t and t.keys() <= in_filter]
    if len(channels) != 1 or filtered.count(stored[channels[0]]) != 1:
        return None
    outer = stored[channels[0]]
    own = [_only(t) for k, t in enumerate(stored) if k not in channels]
    summed = [_only(t) for t in filtered if t != outer]
    if None in (*own, *summed) or len({*own, *summed}) != len(own) + len(summed):
        return None
    dims = [_dim(t, own, summed) for t in walked]
    inner = [k for k, found in enumerate(dims) if found is None]
    if len(inner) != 1 or not _is_channel(nest, data, walked[inner[0]], filtered, outer, summed):
        return None
    return _lettered(nest, data, dims, stored, filtered, outer)


def _terms(expr: Expr) -> Terms | None:
    """The terms of an expression; None if it multiplies atoms."""
    if any(len(monomial) > 1 for monomial, _ in expr.terms):
        return None
    return {atom_text(monomial[0]) if monomial else "": factor for monomial, factor in expr.terms}


def _only(terms: Terms | None) -> str | None:
    """The only atom of an expression, with factor 1; None otherwise."""
    return next(iter(terms)) if terms and [*terms.values()] == [1] and "" not in terms else None


def _dim(terms: Terms | None, own: Sequence[str | None], summed: Sequence[str | None]
         ) -> Dim | None:
    """A dim of the data as positions of the result and of the window; None if it is not that."""
    assert terms is not None
    places, windows = ([a for a in terms if a in names] for names in (own, summed))
    rest = terms.keys() - {*places, *windows, ""}
    if len(places) != 1 or len(windows) > 1 or rest or terms.get("", 0) > 0:
        return None
    window = windows[0] if windows else None
    found = Dim(places[0], terms[places[0]], window, terms[window] if window else 1,
                -terms.get("", 0))
    return found if min(found.stride, found.dilation) > 0 else None


def _is_channel(
    nest: NestOp, data: int, walked: Terms | None, filtered: Sequence[Terms | None],
    outer: Terms | None, summed: Sequence[str | None],
) -> bool:
    """Whether a dim of the data is the filter's channels, with as many groups as the result has."""
    assert walked is not None and outer is not None
    inner = [a for a in walked if a in summed]
    groups = walked.keys() - {*inner}
    if len(inner) > 1 or len(groups) > 1 or any(walked[a] != 1 for a in inner):
        return False
    channels = _sizes(nest, data)[[_terms(e) for e in nest.input_maps[data]].index(walked)]
    sizes = _sizes(nest, 1 - data)
    each = sizes[filtered.index({inner[0]: 1})] if inner else 1
    results = sizes[filtered.index(outer)]
    if not groups:
        return channels == each
    [group] = groups
    of_each = outer.get(group, 0)
    return (walked[group] == each and of_each > 0 and results % of_each == 0
            and channels == each * (results // of_each))


def _sizes(nest: NestOp, position: int) -> list[int]:
    """The sizes of an input; 0 for those known only at run time."""
    type_ = nest.inputs[position].type
    assert isinstance(type_, TensorType)
    return [e.constant or 0 for e in type_.shape]


def _lettered(
    nest: NestOp, data: int, dims: Sequence[Dim | None], stored: Sequence[Terms | None],
    filtered: Sequence[Terms | None], outer: Terms | None,
) -> Reading | None:
    """The reading, with letters for the dims. The data's first dim is a batch if no window moves
    along it.

    None for a product whose data is column-major, and for more spatial dims than there are letters.
    """
    first = dims[0]
    batch = first if first is not None and first.is_batch else None
    places = [d for d in dims if d is not None and d is not batch]
    if len(places) > len(PLACES) or len({d.own for d in dims if d}) != len(stored) - 1:
        return None
    if batch is None and all(d.is_batch for d in places):
        return None
    names = PLACES[len(PLACES) - len(places):]
    letters = {d.own: x for d, x in zip(places, names, strict=True)}
    letters |= {d.window: x for d, x in zip(places, names, strict=True) if d.window}
    if batch is not None:
        letters[batch.own] = "n"
    inside = ["o" if t == outer else letters.get(_only(t) or "", "c") for t in filtered]
    inside = inside if "c" in inside else ["g" if x == "o" else x for x in inside]
    result = ["o" if t == outer else letters[_only(t) or ""] for t in stored]
    walked = ["c" if d is None else letters[d.own] for d in dims]
    if len({*inside}) != len(inside):
        return None
    return Reading(data, {data: "".join(walked), 1 - data: "".join(inside)}, "".join(result),
                   places)


def _is_whole(nest: NestOp, position: int) -> bool:
    """Whether the sum for each channel of the result reads each element of the filter once."""
    extents = [a.extent.constant or 0 for a in nest.reduce_axes]
    if not 0 < prod(extents) <= _MOST_SUMMED:
        return False
    walked = np.indices(extents).reshape(len(extents), -1)
    at = {**{a.name: 0 for a in nest.parallel_axes},
          **{a.name: i for a, i in zip(nest.reduce_axes, walked, strict=True)}}
    summed = {a.name for a in nest.reduce_axes}
    dims = [(e, size) for e, size in zip(
        nest.input_maps[position], _sizes(nest, position), strict=True) if e.symbols & summed]
    if prod(size for _, size in dims) != prod(extents):
        return False
    places = [np.broadcast_to(e.evaluate(at), prod(extents)) for e, _ in dims]
    inside = all(p.min() >= 0 and p.max() < size
                 for p, (_, size) in zip(places, dims, strict=True))
    return inside and len({*zip(*(p.tolist() for p in places), strict=True)}) == prod(extents)
