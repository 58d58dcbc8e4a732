"""Sequences and optionals during import: lists of tensors that no lower level knows of.

    known items     [x, y, z]                                      a Python list of values
    known to a run  data: T[total], shapes: i64[length, rank]      all elements one after another

A sequence is of the second kind where a loop makes it longer, or branches make it differ, or a
position is known only at run time. All its tensors have the same number of dims then. An optional
is a truth value and what is there if it is true.

A tensor of strings is a tensor of i64 indices into the model's table of strings (`texts.py`).

A `Form` tells how such a value is written as tensors, which is how it enters and leaves functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TypeAlias

import numpy as np
from xdsl.ir import Attribute

from compiler.frontend.builder import Builder
from compiler.frontend.faults import Fault
from compiler.frontend.frames import Frame
from compiler.frontend.values import Value, constant
from dialects.graph.constant import SizesOp
from dialects.graph.shape import BroadcastOp, ConcatOp, ReshapeOp
from dialects.records import dataclass
from dialects.strata import types as t
from dialects.symbolic.expr import Expr
from dialects.symbolic.size_products import product


@dataclass(frozen=True, eq=False)
class Items:
    """A sequence of known tensors."""

    element: Attribute
    items: tuple[Value, ...]

    @property
    def rank(self) -> int | None:
        """The number of dims of all of them; None where there are none. Raises Fault."""
        ranks = {v.rank for v in self.items}
        if len(ranks) > 1:
            raise Fault("its sequence holds tensors of different numbers of dims, which is not "
                        "supported where a position or the length is known only at run time")
        return ranks.pop() if ranks else None


@dataclass(frozen=True, eq=False)
class Run:
    """A sequence that is only known at run time: data: T[total], shapes: i64[length, rank]."""

    data: Value
    shapes: Value

    @property
    def element(self) -> Attribute:
        return self.data.element

    @property
    def rank(self) -> int:
        rank = self.shapes.shape[1].constant
        assert rank is not None
        return rank

    @property
    def length(self) -> Expr:
        return self.shapes.shape[0]


@dataclass(frozen=True, eq=False)
class Optional:
    """A tensor or a sequence that may be missing.

    `content` is None if it is known to be missing, and its type is not known.
    """

    present: Value
    content: Value | Items | Run | None


@dataclass(frozen=True, eq=False)
class Texts:
    """A tensor of strings, as the places of these in a table."""

    places: Value


AnyValue: TypeAlias = "Value | Items | Run | Optional | Texts"
VALUES = (Value, Items, Run, Optional, Texts)
"""The kinds of values that a name in a model may have."""


def view(frame: Frame, value: AnyValue) -> AnyValue:
    """The frame's view of a value of an enclosing function."""
    match value:
        case Value():
            return frame.view(value)
        case Items():
            return Items(value.element, tuple(map(frame.view, value.items)))
        case Run():
            return Run(frame.view(value.data), frame.view(value.shapes))
        case Optional():
            content = None if value.content is None else view(frame, value.content)
            assert not isinstance(content, Optional | Texts)
            return Optional(frame.view(value.present), content)
        case Texts():
            return Texts(frame.view(value.places))


# ---------------------------------------------------------------------- forms
@dataclass(frozen=True)
class Form:
    """How a value is written as tensors.

    `kind`: `tensor`, `texts`, `items`, `run`, or `optional`, the form of whose content is `inner`.
    `count`: of items. `rank`: of a tensor, and of the tensors of a sequence.
    """

    kind: str
    element: Attribute | None = None
    rank: int | None = None
    count: int = 0
    inner: Form | None = None

    @property
    def text(self) -> str:
        """The text that a module keeps for an input or output: `items 3`, `run`, `optional run`."""
        match self.kind:
            case "items":
                return f"items {self.count}"
            case "optional":
                return "optional" if self.inner is None else f"optional {self.inner.text}"
            case _:
                return self.kind

    def names(self, name: str) -> list[str]:
        """The names of the tensors that represent a value of this name."""
        match self.kind:
            case "tensor" | "texts":
                return [name]
            case "items":
                return [f"{name}[{k}]" for k in range(self.count)]
            case "run":
                return [f"{name}.data", f"{name}.shapes"]
            case _:
                inner = [] if self.inner is None else self.inner.names(name)
                return [f"{name}.present", *inner]

    @property
    def width(self) -> int:
        """The number of tensors."""
        match self.kind:
            case "tensor" | "texts":
                return 1
            case "items":
                return self.count
            case "run":
                return 2
            case _:
                return 1 + (0 if self.inner is None else self.inner.width)


def form_of(value: AnyValue) -> Form:
    match value:
        case Value():
            return Form("tensor", value.element, value.rank)
        case Items():
            rank = value.rank if len({v.rank for v in value.items}) == 1 else None
            return Form("items", value.element, rank, len(value.items))
        case Run():
            return Form("run", value.element, value.rank)
        case Optional():
            return Form("optional", inner=None if value.content is None
                        else form_of(value.content))
        case Texts():
            return Form("texts", value.places.element, value.places.rank)


def common(a: Form, b: Form) -> Form:
    """A form in which both can be represented. Raises Fault if there is none."""
    if a == b:
        return a
    kinds = {a.kind, b.kind}
    if kinds == {"optional"}:
        inner = b.inner if a.inner is None else a.inner if b.inner is None else (
            common(a.inner, b.inner))
        return Form("optional", inner=inner)
    if not kinds <= {"items", "run"} or a.element != b.element:
        raise Fault(f"a {_text(a)} and a {_text(b)} cannot be one value")
    ranks = {f.rank for f in (a, b) if f.rank is not None or f.count}
    if len(ranks) != 1 or None in ranks:
        raise Fault("its sequences hold tensors of different numbers of dims")
    return Form("run", a.element, ranks.pop())


def _text(form: Form) -> str:
    word = {"items": "sequence", "run": "sequence", "texts": "tensor of strings"}.get(
        form.kind, form.kind)
    return word if form.element is None or form.kind == "texts" else f"{word} of {form.element}"


def tensors(build: Builder, value: AnyValue, form: Form) -> list[Value]:
    """The tensors that represent a value in a given form, which it must be able to have."""
    match value:
        case Value():
            return [value]
        case Items() if form.kind == "items":
            return list(value.items)
        case Items():
            return tensors(build, at_run(build, value, form.rank), form)
        case Run():
            return [value.data, value.shapes]
        case Optional():
            return [value.present, *_content(build, value, form.inner)]
        case Texts():
            return [value.places]


def _content(build: Builder, value: Optional, form: Form | None) -> list[Value]:
    if form is None:
        return []
    content = _nothing(build, form) if value.content is None else value.content
    return tensors(build, content, form)


def _nothing(build: Builder, form: Form) -> AnyValue:
    """The placeholder for missing content."""
    assert form.element is not None
    if form.kind == "tensor":
        return empty(build, form.element, form.rank or 0)
    return Items(form.element, tuple(
        empty(build, form.element, form.rank or 0) for _ in range(form.count)))


def empty(build: Builder, element: Attribute, rank: int) -> Value:
    """A tensor without elements or, for rank 0, a zero."""
    zero = constant(build, np.zeros((), t.dtype_of(element)), node=build.node)
    return build(BroadcastOp, zero, shape=[0] * rank) if rank else zero


def whole(form: Form, parts: Iterator[Value]) -> AnyValue:
    """The value that tensors of this form represent."""
    match form.kind:
        case "tensor":
            return next(parts)
        case "texts":
            return Texts(next(parts))
        case "items":
            assert form.element is not None
            return Items(form.element, tuple(next(parts) for _ in range(form.count)))
        case "run":
            return Run(next(parts), next(parts))
        case _:
            present = next(parts)
            content = None if form.inner is None else whole(form.inner, parts)
            assert not isinstance(content, Optional | Texts)
            return Optional(present, content)


def at_run(build: Builder, value: Items | Run, rank: int | None = None) -> Run:
    """A sequence in the form of one that is known only at run time.

    `rank`: the rank of the tensors of an empty sequence. Raises Fault if it is not known.
    """
    if isinstance(value, Run):
        return value
    rank = value.rank if value.items else rank
    if rank is None:
        raise Fault("its sequence is empty, and the number of dims of its tensors is unknown")
    if not value.items:
        return Run(empty(build, value.element, 1), constant(build, np.zeros((0, rank), np.int64)))
    rows = [shape_row(build, v) for v in value.items]
    flat = [flattened(build, v) for v in value.items]
    if len(rows) == 1:
        return Run(flat[0], rows[0])
    return Run(build(ConcatOp, *flat, axis=0), build(ConcatOp, *rows, axis=0))


def flattened(build: Builder, value: Value) -> Value:
    return build(ReshapeOp, value, shape=[product(value.shape)])


def shape_row(build: Builder, value: Value) -> Value:
    """A tensor's sizes as i64[1, rank]."""
    sizes = build(SizesOp, values=list(value.shape), shape=[value.rank], to=t.i64)
    return build(ReshapeOp, sizes, shape=[1, value.rank])


# ---------------------------------------------------------------------- in and out of functions
@dataclass
class Forms:
    """The forms of several values, which may become more general."""

    forms: list[Form]

    @staticmethod
    def of(values: Sequence[AnyValue]) -> Forms:
        return Forms([form_of(v) for v in values])

    def learn(self, others: Forms) -> bool:
        """Change each form to the common one; returns whether one changed. Raises Fault."""
        news = [a if a.kind == b.kind in ("tensor", "texts") else common(a, b)
                for a, b in zip(self.forms, others.forms, strict=True)]
        changed, self.forms = news != self.forms, news
        return changed

    def split(self, build: Builder, values: Sequence[AnyValue]) -> list[Value]:
        return [p for v, f in zip(values, self.forms, strict=True) for p in tensors(build, v, f)]

    @property
    def places(self) -> list[range]:
        """The positions of each value's tensors among all tensors."""
        ends = list(accumulate(form.width for form in self.forms))
        return [range(end - f.width, end) for f, end in zip(self.forms, ends, strict=True)]

    @property
    def ranks(self) -> set[tuple[int, int]]:
        """The dims, as (tensor, dim), whose size is a rank: the second dim of every `shapes`."""
        return {(places[-1], 1) for places, form in zip(self.places, self.forms, strict=True)
                if "run" in (form.kind, form.inner and form.inner.kind)}

    def join(self, parts: Sequence[Value]) -> list[AnyValue]:
        rest = iter(parts)
        return [whole(form, rest) for form in self.forms]
