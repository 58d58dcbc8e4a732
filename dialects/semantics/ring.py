"""Exact arithmetic in place of floating point: sums and products in a ring of residues.

In the integers modulo M = p*q, addition and multiplication are exact, so the order of additions,
tiles and splits cannot change a result, and results are equal or differ. docs/ring.md specifies
what every other operation means, and why M is the product of two primes with p | q - 1:

    exp(x) = (1 mod p, g**x mod q)      g has order p modulo q, so exp(x + y) == exp(x) * exp(y)
    1 / x                               componentwise, with 1 / 0 == 0

A residue is stored as the number in -M/2 ... M/2 that it stands for. All of them are exact in the
float type of the array, so memory, comparisons, copies and conversions work as for numbers. Any
number m * 2**e stands for its residue (2 is invertible), hence constants need no conversion.
Nothing here imports xDSL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any, cast

import numpy as np

from dialects.semantics.carriers import Carrier
from dialects.semantics.residues import Formula, Numbers, Residues

AS_NUMBERS = frozenset((
    "maximum", "minimum", "fmax", "fmin", "clip", "absolute", "fabs", "sign", "negative",
    "positive", "floor", "ceil", "trunc", "rint", "copysign", "fmod", "remainder", "floor_divide",
    "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "isnan", "isinf",
    "isfinite", "signbit", "logical_and", "logical_or", "logical_not", "logical_xor"))
"""Functions that compute with the numbers that residues are stored as."""
_NONE = frozenset({np.einsum, np.dot, np.inner, np.vdot, np.tensordot, np.convolve, np.interp})


class RingError(ValueError):
    """An operation has no meaning in the ring."""


class Ring(Residues):
    """The ring, and arrays of its elements."""

    @cached_property
    def array(self) -> type[Carrier]:
        """The class of arrays with this arithmetic."""
        return cast("type[Carrier]", type("RingArray", (_RingArray,), {"ring": self}))

    def wrap(self, array: Numbers) -> Numbers:
        """An array with this arithmetic, floats as residues.

        Integers have it, too, because they may become floats.
        """
        if not _is_float(array.dtype):
            return array.view(self.array)
        residues: Numbers = self.embedded(np.asarray(array)).astype(array.dtype)
        return residues.view(self.array)

    def view(self, memory: Numbers) -> Numbers:
        """The same memory, in which every number stands for its residue."""
        return memory.view(self.array)

    def random(self, like: Numbers, random: np.random.Generator) -> Numbers:
        """Random residues in an array of the same shape and dtype."""
        half = self.modulus // 2
        made: Numbers = cast(Any, random).integers(-half, half + 1, like.shape)
        return self.view(np.asarray(made, like.dtype))


class _RingArray(Carrier):
    """Residues. NumPy calls the methods below instead of its own functions."""

    ring: Residues

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = (), **options: Any
    ) -> Any:
        plain = [_plain(x) for x in inputs]
        if method == "at":
            return self._at(ufunc, *plain)
        found = self._computed(ufunc, method, plain, options)
        if out:
            target = _plain(out[0])
            target[...] = found
            return out[0]
        return _wrapped(found, type(self))

    def _computed(
        self, ufunc: np.ufunc, method: str, inputs: Sequence[Any], options: dict[str, Any]
    ) -> Any:
        compute = getattr(ufunc, method)
        if not any(isinstance(x, float) or _is_float(np.result_type(x)) for x in inputs):
            return np.asarray(compute(*inputs, **options))
        ring, dtype = self.ring, np.dtype(options.get("dtype") or np.result_type(*inputs))
        given = [ring.embedded(_rounded(x, dtype)) for x in (
            inputs if method == "__call__" else inputs[:1])]
        formula = ring.formulas.get(ufunc)
        if formula is None and ufunc.__name__ not in AS_NUMBERS:
            raise RingError(f"{ufunc.__name__} has no meaning in the ring")
        options.pop("dtype", None)
        if method == "reduce":
            found = _reduced(ring, ufunc, given[0], options)
        elif method == "accumulate":
            found = _accumulated(ring, ufunc, given[0], *inputs[1:], **options)
        elif formula is None:
            found = compute(*given, **options)
        else:
            found = _with_specials(ring, ufunc, formula, given)
        return found.astype(dtype) if _is_float(np.result_type(found)) else found

    def _at(self, ufunc: np.ufunc, target: Numbers, places: Any, values: Any) -> None:
        """Merge values into elements that may occur repeatedly."""
        wide = self.ring.embedded(target)
        given = self.ring.embedded(np.asarray(values))
        if ufunc is np.multiply:
            _multiply_at(self.ring, wide, places, given)
        elif ufunc is np.add or ufunc.__name__ in AS_NUMBERS:
            ufunc.at(wide, places, given)
        else:
            raise RingError(f"{ufunc.__name__}.at has no meaning in the ring")
        target[...] = self.ring.embedded(wide)

    def __array_function__(
        self, function: Any, types: Any, args: Any, kwargs: Any
    ) -> Any:
        if function in _NONE:
            raise RingError(f"{function.__name__} has no meaning in the ring")
        found = super().__array_function__(function, types, args, kwargs)
        if isinstance(found, tuple | list):
            many = cast("Sequence[Any]", found)
            return [_wrapped(x, type(self)) for x in many]
        return _wrapped(found, type(self))

    def numbers(self) -> Numbers:
        return self.ring.embedded(_plain(self)).astype(self.dtype)

    def function(self, name: str) -> Carrier:
        ring, plain = self.ring, _plain(self)
        found = _with_specials(ring, None, partial(ring.scrambled, name), [ring.embedded(plain)])
        return cast(Carrier, found.astype(self.dtype).view(type(self)))


def _with_specials(
    ring: Residues, ufunc: np.ufunc | None, formula: Formula, given: Sequence[Numbers]
) -> Numbers:
    """A formula on residues, and what floats give where an operand is infinite or NaN."""
    if all(np.isfinite(x).all() for x in given):
        return formula(*given)
    clean = [np.where(np.isfinite(x), x, 0.0) for x in given]
    found = formula(*clean)
    with np.errstate(all="ignore"):
        plain = np.full(found.shape, np.nan) if ufunc is None else ufunc(*given)
    if ufunc is np.matmul:
        return np.where(np.isfinite(plain), found, plain)
    finite = np.logical_and.reduce(np.broadcast_arrays(*map(np.isfinite, given)))
    return np.where(finite, found, ring.embedded(plain))


def _reduced(ring: Residues, ufunc: np.ufunc, x: Numbers, options: Mapping[str, Any]) -> Numbers:
    if ufunc is np.multiply:
        return _products(ring, x, options)
    found = np.asarray(ufunc.reduce(x, **options))
    return ring.embedded(found)  # sums of residues are exact in f64


def _multiply_at(ring: Residues, target: Numbers, places: Any, values: Numbers) -> None:
    numbers = cast(Any, np.arange(target.size).reshape(target.shape))[places]
    flat, broadcast = target.reshape(-1), cast(Any, np.broadcast)
    for place, value in broadcast(numbers, values):
        flat[place] = ring.product(flat[place:place + 1], np.array([value]))[0]


def _products(ring: Residues, x: Numbers, options: Mapping[str, Any]) -> Numbers:
    axes = options.get("axis", 0)
    axes = tuple(range(x.ndim)) if axes is None else np.atleast_1d(axes).tolist()
    kept = [d for d in range(x.ndim) if d not in {a % x.ndim for a in axes}]
    sizes = [x.shape[d] for d in kept]
    count = int(np.prod([x.shape[a] for a in axes], dtype=np.int64))
    rows = x.transpose(*kept, *(a % x.ndim for a in axes)).reshape(*sizes, count)
    total = np.ones(sizes)
    for k in range(rows.shape[-1]):
        total = _with_specials(ring, np.multiply, ring.product, [total, rows[..., k]])
    return total.reshape([1 if d not in kept else n for d, n in enumerate(x.shape)]
                         ) if options.get("keepdims") else total


def _accumulated(
    ring: Residues, ufunc: np.ufunc, x: Numbers, axis: int = 0, *_: Any, **options: Any
) -> Numbers:
    if ufunc is not np.multiply:
        return ring.embedded(ufunc.accumulate(x, options.get("axis", axis)))
    rows = np.moveaxis(x, options.get("axis", axis), 0)
    found = np.empty(rows.shape)
    for k, row in enumerate(rows):
        found[k] = row if not k else _with_specials(
            ring, np.multiply, ring.product, [found[k - 1], row])
    return np.moveaxis(found, 0, options.get("axis", axis))


def _rounded(x: Any, dtype: np.dtype[Any]) -> Numbers:
    """An operand; a number without a type is rounded to that of the others, as NumPy does."""
    return np.asarray(x, dtype if type(x) in (int, float) else None)


def _plain(x: Any) -> Any:
    return x.view(np.ndarray) if isinstance(x, Carrier) else x


def _wrapped(x: Any, class_: type[Carrier]) -> Any:
    is_array = isinstance(x, (np.ndarray, np.generic))
    return np.asarray(cast(Any, x)).view(class_) if is_array else x


def _is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" or dtype.name == "bfloat16"
