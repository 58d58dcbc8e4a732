"""Attributes and types of VHLO, decoded when they are used.

Attributes become what the text's parser makes of them: numbers, words, lists, dictionaries, arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ComplexType

from compiler.frontend.stablehlo.bytecode.cursor import Cursor
from compiler.frontend.stablehlo.bytecode.sections import Entry, Sections
from compiler.frontend.stablehlo.literals import of_bytes
from dialects.strata import types as t
from dialects.strata.types import TensorType
from dialects.symbolic.expr import Expr

DEEPEST = 64
OPEN = -2 ** 63
"""How a size that is open is written."""
ELEMENTS: Mapping[int, Any] = {
    0: t.i1, 2: t.bf16, 3: t.f16, 4: t.f32, 5: t.f64, 6: t.f8E4M3FN, 7: t.f8E5M2, 10: t.i4,
    11: t.i8, 12: t.i16, 13: t.i32, 14: t.i64,
    15: t.ui4, 16: t.ui8, 17: t.ui16, 18: t.ui32, 19: t.ui64, 27: t.f8E4M3FNUZ, 28: t.f8E5M2FNUZ,
    29: t.f8E4M3B11FNUZ, 31: t.i2, 32: t.ui2, 35: t.f8E4M3, 36: t.f8E3M4, 37: t.f4E2M1FN,
    38: t.f6E2M3FN, 39: t.f6E3M2FN, 40: t.f8E8M0FNU}
_COMPLEX = 1
_OF_COMPLEX: Mapping[int, Any] = {-4: ComplexType(t.f32), -5: ComplexType(t.f64)}
"""Complex elements, by the negated code of their parts."""
_OF_TENSORS: Mapping[int, Any] = {**ELEMENTS, **_OF_COMPLEX}
_OTHERS: Mapping[int, str] = {
    1: "complex numbers of other parts than f32 and f64", 9: "index", 22: "token", 23: "tuple",
    24: "quantized", 25: "unranked tensor", 30: "quantized", 33: "none", 34: "tf32",
    41: "buffer", 42: "future"}
_WIDTHS: Mapping[int, int] = {9: 64}
"""Integers that are no elements of ours, and their bits."""
_FUNCTION, _INDEX, _I64, _TENSOR, _TENSOR_WITH_ENCODING = 8, 9, 14, 20, 21
_WORDS: Mapping[int, Mapping[int, str]] = {
    3: dict(enumerate(("EQ", "NE", "GE", "GT", "LE", "LT"))),
    4: dict(enumerate(("NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"))),
    5: dict(enumerate(("UNSPECIFIED", "ORIGINAL", "STATUS_RETURNING",
                       "STATUS_RETURNING_UNIFIED", "TYPED_FFI"))),
    7: dict(enumerate(("FFT", "IFFT", "RFFT", "IRFFT"))),
    11: dict(enumerate(("DEFAULT", "HIGH", "HIGHEST"))),
    12: dict(enumerate(("DEFAULT", "THREE_FRY", "PHILOX"))),
    13: {1: "UNIFORM", 2: "NORMAL"},
    16: dict(enumerate(("TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"))),
    19: dict(enumerate(("DEFAULT", "HIGHEST", "TOLERANCE")))}
"""Attributes that are one word, by their codes."""


@dataclass(frozen=True)
class Type:
    """A type: its code, and for tensors the sizes and the code of the elements. -1: open."""

    code: int
    shape: tuple[int, ...] = ()
    element: int = -1

    @property
    def is_tensor(self) -> bool:
        return self.code == _TENSOR

    @property
    def problem(self) -> str:
        """Why there are no values of this type; empty if there are."""
        if self.is_tensor and self.element in _OF_TENSORS:
            return ""
        if self.is_tensor:
            return f"elements of {_OTHERS.get(self.element, 'an unknown type')} are not supported"
        return f"values of {_OTHERS.get(self.code, 'an unknown type')} are not supported"

    def tensor(self, owner: str = "") -> TensorType:
        """As a tensor type of ours. Open sizes get names from their owner."""
        return t.tensor(_OF_TENSORS[self.element], [
            Expr.size(f"{owner}_{k}") if size < 0 else size for k, size in enumerate(self.shape)])


class Attributes:
    """The attributes and types of a file, by number."""

    def __init__(self, data: bytes, name: str, parts: Sections):
        self.data, self.name, self.parts = data, name, parts
        self.known: dict[Entry, Any] = {}
        self.open: set[Entry] = set()
        self.readers: Mapping[int, Callable[[Cursor], Any]] = {
            1: self._list, 2: lambda at: bool(at.number()), 6: self._dictionary, 8: self._float,
            9: self._integer, 10: self._alias, 14: self._string, 15: self._tensor,
            17: self.type, 18: self._signed_list, 20: self._accuracy}

    # ------------------------------------------------------------------ by number
    def attribute(self, at: Cursor) -> Any:
        """The attribute whose number comes next."""
        entries = self.parts.attributes
        return self._decoded(entries[at.index(len(entries), "attribute")], at, self._attribute)

    def type(self, at: Cursor) -> Type:
        """The type whose number comes next."""
        return self.type_of(at.number(), at)

    def type_of(self, number: int, at: Cursor) -> Type:
        entries = self.parts.types
        return self._decoded(entries[at.within(number, len(entries), "type")], at, self._type)

    def _decoded(self, entry: Entry, at: Cursor, read: Callable[[str, Cursor], Any]) -> Any:
        if entry in self.known:
            return self.known[entry]
        if entry in self.open or len(self.open) > DEEPEST:
            raise at.error("attributes contain one another")
        if not entry.encoded:
            raise at.error(f"an attribute of {entry.dialect} is written as text")
        self.open.add(entry)
        found = read(entry.dialect, Cursor(self.data, self.name, entry.start, entry.end))
        self.open.discard(entry)
        self.known[entry] = found
        return found

    # ------------------------------------------------------------------ types
    def _type(self, dialect: str, at: Cursor) -> Type:
        code = at.number()
        if dialect != "vhlo":
            return Type(-1)
        if code in (_TENSOR, _TENSOR_WITH_ENCODING):
            if code == _TENSOR_WITH_ENCODING:
                self.attribute(at)
            shape = tuple(-1 if size == OPEN else size for size in self._signed_list(at))
            if any(size < -1 for size in shape) or math.prod(s for s in shape if s > 0) >= 2 ** 63:
                raise at.error(f"there is no tensor of the sizes {list(shape)}")
            inner = self.type(at)
            return Type(_TENSOR, shape, inner.element if inner.code == _COMPLEX else inner.code)
        if code == _COMPLEX:
            part = -self.type(at).code
            return Type(code, (), part if part in _OF_COMPLEX else _COMPLEX)
        if code != _FUNCTION and code not in ELEMENTS and code not in _OTHERS:
            raise at.error(f"the type with the code {code} is not known")
        return Type(code)

    # ------------------------------------------------------------------ attributes
    def _attribute(self, dialect: str, at: Cursor) -> Any:
        code = at.number()
        if dialect == "builtin":
            return self._builtin(code, at)
        if dialect != "vhlo":
            return None  # a note of another dialect
        if code in _WORDS:
            word = at.number()
            if word not in _WORDS[code]:
                raise at.error(f"there is no word {word} in the attribute with the code {code}")
            return _WORDS[code][word]
        if code not in self.readers:
            raise at.error(f"the attribute with the code {code} is not known", "lower the program "
                           "for an older version of StableHLO, or write its text")
        return self.readers[code](at)

    def _builtin(self, code: int, at: Cursor) -> Any:
        """Dictionaries, strings, and locations: the name or the line of a source."""
        if code == 1:
            return self._dictionary(at)
        if code == 2:
            return self._string(at)
        if code == 10:  # where something is called: what is called tells more
            return self._place(at)
        if code == 11:
            return f"{self.attribute(at)}:{at.number()}"
        if code == 12:
            places = [self._place(at) for _ in range(at.count("locations"))]
            return next((place for place in places if place), "")
        if code == 14:
            name, place = self.attribute(at), self._place(at)
            return f"{name} ({place})" if place else str(name)
        return None

    def _place(self, at: Cursor) -> str:
        found = self.attribute(at)
        return found if isinstance(found, str) else ""

    def _list(self, at: Cursor) -> list[Any]:
        return [self.attribute(at) for _ in range(at.count("attributes"))]

    def _dictionary(self, at: Cursor) -> dict[str, Any]:
        return {str(self.attribute(at)): self.attribute(at) for _ in range(at.count("entries"))}

    def _signed_list(self, at: Cursor) -> list[int]:
        return [at.signed() for _ in range(at.count("numbers"))]

    def _string(self, at: Cursor) -> str:
        return self.parts.strings[at.index(len(self.parts.strings), "string")]

    def _bits(self, at: Cursor, width: int) -> int:
        return at.byte() if width <= 8 else at.signed() & ((1 << width) - 1)

    def _integer(self, at: Cursor) -> int:
        code = self.type(at).code
        element = ELEMENTS.get(code)
        width = _WIDTHS.get(code) or (t.bit_width(element) if element else 0)
        if not width or (element is not None and t.is_float(element)):
            raise at.error("an integer has the type of something else")
        found = self._bits(at, width)
        signed = element is None or not t.is_unsigned(element)
        return found - (1 << width) if signed and found >> (width - 1) else found

    def _float(self, at: Cursor) -> float:
        element = ELEMENTS.get(self.type(at).code)
        if element is None or not t.is_float(element):
            raise at.error("a number has a type whose floats are not supported")
        width = t.bit_width(element)
        bits = self._bits(at, width).to_bytes(width // 8, "little")
        return float(np.frombuffer(bits, t.tensor(element, []).dtype)[0])

    def _alias(self, at: Cursor) -> None:
        self._signed_list(at)
        at.signed()
        self._signed_list(at)

    def _accuracy(self, at: Cursor) -> None:
        for _ in range(3):
            at.signed()
        self.attribute(at)

    def _tensor(self, at: Cursor) -> Any:
        """Elements, or one for all of them."""
        type_ = self.type(at)
        if type_.element == _INDEX:  # an attribute's, such as the order of dims in memory
            type_ = Type(type_.code, type_.shape, _I64)
        data = at.bytes(at.number())
        if type_.problem or min(type_.shape, default=0) < 0:
            raise at.error(f"a constant is no tensor: {type_.problem or 'it has open sizes'}")
        try:
            return of_bytes(_truth_values(data, type_), type_.tensor(), list(type_.shape))
        except ValueError as error:
            raise at.error(str(error)) from None


def _truth_values(data: bytes, type_: Type) -> bytes:
    """Eight in a byte; older files have one in a byte."""
    count = math.prod(type_.shape)
    if type_.element != 0 or len(data) != count or count <= 1:
        return data
    return np.packbits(np.frombuffer(data, np.uint8) != 0, bitorder="little").tobytes()
