"""Parses `--input NAME=VALUE` and creates the arrays.

    x=x.npy                       a file; - is standard input
    sr=16000    k=[1, 2, 3]       a number or a list, in the model's type and rank
    x=random    x=zeros           of the model's own sizes
    x=1x3x224x224=random          of these sizes
    x=1x3x224x224xf32=0.5         ... the type is checked; random, zeros, ones, range, or a number

Values are first parsed without the model, and files are read. The model's signature then turns
them into arrays. No conversion may change a value: 3.5 is not an integer, and 300 does not fit an
i8.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler.diagnostics import Problem, StrataError

if TYPE_CHECKING:
    from dialects.strata.array_type import ArrayType
    from dialects.strata.types import Array

FILLS = ("random", "zeros", "ones", "range")
FORMS = ("x=FILE.npy, x=16000, x=[1,2,3], x=random, x=1x3x224x224xf32=zeros; "
         f"fillings are {', '.join(FILLS)} and numbers")
STANDARD = "-"
_SHAPE = re.compile(r"(?P<sizes>\d+(x\d+)*)?x?(?P<element>(?<!\d)(i|ui|f|bf)\d\w*)?", re.ASCII)
_WORDS = {"nan": "NaN", "inf": "Infinity", "true": "true", "false": "false"}

Random = Callable[[tuple[int, ...]], "Array"]
"""A function from a shape to the random array of an input."""


@dataclass(frozen=True)
class Literal:
    """Numbers that are written out: a single one, or nested lists."""

    numbers: Any

    def array(self, name: str, type_: ArrayType) -> Array:
        """The array in the type's dtype. Raises StrataError for values that do not fit."""
        try:
            plain = np.array(self.numbers)
        except ValueError:  # raised for lists of different lengths
            plain = np.array(None)
        if plain.dtype == object or plain.dtype.kind not in "bifu":
            raise _refused(name, "its lists have different lengths, or hold no numbers")
        if not plain.ndim and all(size.constant == 1 for size in type_.shape):
            plain = plain.reshape([1] * type_.rank)
        if not plain.ndim and type_.rank:
            raise _refused(name, f"one number is given for {type_.short}",
                           f"name its sizes: --input {name}=SIZES={self.numbers}, such as 2x3=0.5")
        return converted(name, plain, type_)


@dataclass(frozen=True)
class Filled:
    """An array with a filling, of explicit sizes or of the model's."""

    filling: str | float
    sizes: tuple[int, ...] | None = None
    element: str = ""

    def array(
        self, name: str, type_: ArrayType, own: tuple[int, ...], random: Random
    ) -> Array:
        """The array. `own`: the sizes to use if none are given."""
        if self.element not in ("", type_.element):
            raise _refused(name, f"it is given as {self.element}; the model takes {type_.short}")
        shape = own if self.sizes is None else self.sizes
        count = math.prod(shape)
        if self.filling == "random":
            return random(shape)
        try:
            if self.filling == "range":
                top = largest_integer(type_)
                plain = np.arange(count) if top is None else np.arange(count) % (top + 1)
            else:
                number = {"zeros": 0, "ones": 1}.get(str(self.filling), self.filling)
                plain = np.full(count, converted(name, np.array(number), type_))
        except (MemoryError, ValueError):
            raise StrataError(f"there is no memory for input '{name}' of shape {list(shape)}"
                              ) from None
        return plain.astype(type_.dtype).reshape(shape)


def parse_value(name: str, text: str) -> Literal | Filled | Path:
    """Parse a value: numbers, a filling, or a file. Raises StrataError for anything else."""
    shape, equals, filling = text.rpartition("=")
    match = _SHAPE.fullmatch(shape) if equals else None
    if text == STANDARD or text.endswith((".npy", ".npz")) or (
            match is None and os.path.exists(text)):
        return Path(text)
    number = _number(filling)
    if equals and filling not in FILLS and number is None:
        raise _refused(name, f"'{filling}' fills nothing", FORMS)
    if match is not None:
        sizes = match["sizes"]
        return Filled(filling if number is None else number,
                      None if sizes is None else tuple(map(int, sizes.split("x"))),
                      match["element"] or "")
    if text in FILLS:
        return Filled(text)
    numbers = _numbers(text)
    if numbers is None:
        what = "there is no such file" if re.search(r"[./]", text) else "it is not a value"
        raise _refused(name, f"'{text}': {what}", FORMS)
    return Literal(numbers)


def converted(name: str, plain: Array, type_: ArrayType) -> Array:
    """Convert numbers to a type. Raises StrataError if it cannot represent all of them."""
    if type_.is_float:
        with np.errstate(all="ignore"):
            found = plain.astype(type_.dtype)
            back = found.astype(np.float64)
        lost = np.isfinite(plain.astype(np.float64)) & ~np.isfinite(back)
    else:
        wide = plain.astype(object)
        low, high = _range(type_)
        lost = np.array([not (math.isfinite(v) and v == int(v) and low <= v <= high)
                         for v in wide.reshape(-1)], np.bool_).reshape(plain.shape)
        found = plain if lost.any() else np.array(
            [int(v) for v in wide.reshape(-1)], np.int64 if low < 0 else np.uint64
        ).reshape(plain.shape).astype(type_.dtype)
    if lost.any():
        raise _refused(name, f"{type_.element} has no {plain[lost].reshape(-1)[0]}")
    return found


def largest_integer(type_: ArrayType) -> int | None:
    """The largest number of an integer type; None for floats."""
    return None if type_.is_float else _range(type_)[1]


def _range(type_: ArrayType) -> tuple[int, int]:
    """The smallest and the largest number of an integer type: i1 has 0 and 1."""
    bits = int(re.sub(r"\D", "", type_.element))
    if type_.element.startswith("ui") or bits == 1:
        return 0, 2**bits - 1
    return -2**(bits - 1), 2**(bits - 1) - 1


def _number(text: str) -> float | int | None:
    found = _numbers(text)
    return found if isinstance(found, int | float) else None


def _numbers(text: str) -> Any:
    """The numbers of a text such as `[[1, -inf], [nan, 2e3]]`; None for anything else."""
    words = re.sub(r"[A-Za-z]\w*", lambda m: _WORDS.get(m[0].lower(), "?"),
                   re.sub(r"(?<=\d)[eE](?=[-+]?\d)", "\0", text)).replace("\0", "e")
    try:
        found: Any = json.loads(re.sub(r"(?<![\d.])\+(?=[\d.I])", "", words))
    except (ValueError, RecursionError):
        return None
    return None if found is None or isinstance(found, str | dict) else found


def _refused(name: str, what: str, hint: str = "") -> StrataError:
    return StrataError(f"--input {name} cannot be used", [Problem(what, hint=hint)])


def check_once(option: str, names: Sequence[str]) -> None:
    """Raise StrataError if an option gives the same name more than once."""
    twice = next((n for k, n in enumerate(names) if n in names[:k]), None)
    if twice is not None:
        raise StrataError(f"{option} names '{twice}' more than once", exit_status=2)
