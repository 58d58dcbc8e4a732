"""The ring of residues that `ring.py` computes in: its elements and functions, as arrays of f64.

Nothing here imports xDSL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, cached_property, partial
from typing import Any

import numpy as np

from dialects.records import dataclass

Numbers = np.ndarray[Any, Any]
Formula = Callable[..., Numbers]
LOG2E = np.float32(1.4426950408889634)
LOW = 1 << 12
"""Factors of matrix products are split below this bit, so that f64 sums their products exactly."""


@dataclass(frozen=True)
class Residues:
    """The ring modulo p*q, whose residues are exact in floats with `bits` bits of mantissa.

    `seed` chooses among the largest such pairs of primes, and the functions without algebra.
    """

    bits: int = 24
    seed: int = 0

    @cached_property
    def primes(self) -> tuple[int, int]:
        """p and q, with p | q - 1 and p*q < 2**(bits + 1)."""
        found = _pairs(2 << self.bits)
        return found[self.seed % min(len(found), 8)]

    @cached_property
    def modulus(self) -> int:
        p, q = self.primes
        return p * q

    # ------------------------------------------------------------------ residues
    def embedded(self, x: Numbers) -> Numbers:
        """Numbers as residues, in f64. Infinities and NaN stay."""
        wide = np.asarray(x, np.float64)
        flat, made = wide.reshape(-1), None
        for k in range(0, flat.size, _PIECE):
            piece = flat[k:k + _PIECE]
            embedded = self._embedded(piece)
            if made is None and embedded is not piece:
                made = flat.copy()
            if made is not None:
                made[k:k + _PIECE] = embedded
        return wide if made is None else made.reshape(wide.shape)

    def _embedded(self, piece: Numbers) -> Numbers:
        """Numbers as residues; the argument itself if it has nothing else."""
        whole = np.rint(piece)
        if np.array_equal(whole, piece):
            top = np.abs(whole, out=whole).max(initial=0.0)
            if top <= self.modulus // 2:
                return piece
            if top <= _EXACT:
                return self._reduced(piece)
        with np.errstate(invalid="ignore"):
            fine = (np.rint(piece) == piece) & (np.abs(piece) <= self.modulus // 2)
        fine |= ~np.isfinite(piece)
        mantissa, exponent = np.frexp(np.where(fine, 0.0, piece))
        exponent += _LEAST - 53
        residues = self._reduced(mantissa * _EXACT) * self._powers_of_two[exponent]
        return np.where(fine, piece, self._reduced(residues))

    @cached_property
    def _powers_of_two(self) -> Numbers:
        half = pow(2, -1, self.modulus)
        return self.centered(np.array([pow(2 if e >= 0 else half, abs(e), self.modulus)
                                       for e in range(-_LEAST, _MOST)], np.int64))

    def centered(self, x: Numbers) -> Numbers:
        """Integers, of which floats hold at most 2**53, as residues in f64."""
        if x.dtype.kind != "f":
            rest = np.asarray(x, np.int64) % self.modulus
            return np.where(rest > self.modulus // 2, rest - self.modulus, rest).astype(np.float64)
        flat = x.reshape(-1)
        made: Numbers = np.empty(flat.shape)
        for k in range(0, flat.size, _PIECE):
            made[k:k + _PIECE] = self._reduced(flat[k:k + _PIECE])
        return made.reshape(x.shape)

    def _reduced(self, piece: Numbers) -> Numbers:
        """Whole numbers as residues. Each step is exact, but for which multiple of the modulus is
        taken away: the second time, that is right as well.
        """
        for _ in range(2):
            multiple = piece * (1 / self.modulus)
            np.rint(multiple, out=multiple)
            multiple *= self.modulus
            piece = np.subtract(piece, multiple, out=multiple)
        return piece

    def parts(self, x: Numbers) -> tuple[Numbers, Numbers]:
        """The residues modulo p and modulo q."""
        whole = x.astype(np.int64)
        return whole % self.primes[0], whole % self.primes[1]

    def joined(self, x: Numbers, y: Numbers) -> Numbers:
        """The residue that is x modulo p and y modulo q."""
        p, q = self.primes
        first, second = q * pow(q, -1, p), p * pow(p, -1, q)  # (1, 0) and (0, 1)
        return self.centered(x * (first % self.modulus) % self.modulus
                             + y * (second % self.modulus) % self.modulus)

    # ------------------------------------------------------------------ functions
    @cached_property
    def inverses(self) -> tuple[Numbers, Numbers]:
        p, q = self.primes
        return _inverses(p), _inverses(q)

    @cached_property
    def powers(self) -> Numbers:
        """g**k modulo q, for k < p, where g has order p."""
        p, q = self.primes
        bases = (pow(a, (q - 1) // p, q) for a in range(2, q))
        base = next(b for b in bases if b != 1)
        return np.array([pow(base, k, q) for k in range(p)], np.int64)

    def inverse(self, x: Numbers) -> Numbers:
        a, b = self.parts(x)
        return self.joined(self.inverses[0][a], self.inverses[1][b])

    def sum(self, x: Numbers, y: Numbers) -> Numbers:
        return self.centered(x + y)

    def difference(self, x: Numbers, y: Numbers) -> Numbers:
        return self.centered(x - y)

    def quotient(self, x: Numbers, y: Numbers) -> Numbers:
        return self.product(x, self.inverse(y))

    def square(self, x: Numbers) -> Numbers:
        return self.product(x, x)

    def expm1(self, x: Numbers) -> Numbers:
        return self.centered(self.exp(x) - 1)

    def exp2(self, x: Numbers) -> Numbers:
        """exp2(x * log2(e)) == exp(x), for log2(e) in f32."""
        return self.exp(self.quotient(x, self.embedded(np.asarray(LOG2E))))

    def log1p(self, x: Numbers) -> Numbers:
        return self.scrambled("log", self.centered(x + 1))

    def arctan2(self, x: Numbers, y: Numbers) -> Numbers:
        return self.scrambled("arctan2", self.centered(x + self.scrambled("second", y)))

    def product(self, x: Numbers, y: Numbers) -> Numbers:
        return self.centered(x * y)  # less than 2**50

    def exp(self, x: Numbers) -> Numbers:
        p, _ = self.primes
        return self.joined(np.ones((), np.int64), self.powers[x.astype(np.int64) % p])

    def scrambled(self, name: str, x: Numbers) -> Numbers:
        """A bijection without algebra, by its name: three rounds in which one part moves another.
        """
        p, q = self.primes
        first, second, third = _tables(p, q, self.seed, name)
        a, b = self.parts(x)
        b = (b + first[a]) % q
        a = (a + second[b]) % p
        return self.joined(a, (b + third[a]) % q)

    def power(self, x: Numbers, y: Numbers) -> Numbers:
        """x**y for whole -64 <= y <= 64, a root for halves; else without algebra."""
        x, y = np.broadcast_arrays(x, y)
        result = self.scrambled("power", self.centered(
            x.astype(np.int64) + self.scrambled("exponent", y).astype(np.int64)))
        for number in np.unique(y):
            if abs(number) <= 64:
                result = np.where(y == number, self._whole_power(x, int(number)), result)
        half = self.embedded(np.array(0.5))
        root = self.scrambled("sqrt", x)
        result = np.where(y == half, root, result)
        return np.where(y == -half, self.inverse(root), result)

    def _whole_power(self, x: Numbers, number: int) -> Numbers:
        base, result = (x if number >= 0 else self.inverse(x)), np.ones(x.shape)
        for _ in range(abs(number)):
            result = self.product(result, base)
        return result

    def matmul(self, x: Numbers, y: Numbers) -> Numbers:
        """The product of matrices, as two products whose sums are exact in f64."""
        high = np.floor(x / LOW)
        upper = self.centered(np.matmul(high, y)) * LOW
        lower = self.centered(np.matmul(x - high * LOW, y))
        return self.centered(upper + lower)

    @cached_property
    def formulas(self) -> Mapping[np.ufunc, Formula]:
        """What ufuncs mean on residues in f64, where it is not what they mean on numbers."""
        found: dict[np.ufunc, Formula] = {
            getattr(np, name): partial(self.scrambled, name) for name in SCRAMBLERS}
        return found | {
            np.add: self.sum, np.subtract: self.difference, np.multiply: self.product,
            np.divide: self.quotient, np.reciprocal: self.inverse, np.square: self.square,
            np.exp: self.exp, np.expm1: self.expm1, np.exp2: self.exp2, np.log1p: self.log1p,
            np.power: self.power, np.float_power: self.power, np.matmul: self.matmul,
            np.arctan2: self.arctan2,
        }


SCRAMBLERS = (
    "sqrt", "cbrt", "log", "log2", "log10", "tanh", "sin", "cos", "tan", "arcsin", "arccos",
    "arctan", "sinh", "cosh", "arcsinh", "arccosh", "arctanh")
_LEAST, _MOST = 1200, 1100
_EXACT = 2.0**53
_PIECE = 1 << 14
"""How many elements are computed at once, so that they stay in a cache."""


@cache
def _tables(p: int, q: int, seed: int, name: str) -> tuple[Numbers, Numbers, Numbers]:
    """Numbers modulo q for each residue modulo p, the other way round, and the first way again."""
    random = np.random.default_rng([seed, *name.encode()])
    return random.integers(0, q, p), random.integers(0, p, q), random.integers(0, q, p)


def _inverses(p: int) -> Numbers:
    return np.array([0, *(pow(k, -1, p) for k in range(1, p))], np.int64)


def _pairs(limit: int) -> list[tuple[int, int]]:
    """Pairs of odd primes p, q with p | q - 1 and p*q < limit, the largest p first."""
    found: list[tuple[int, int]] = []
    for p in range(int((limit / 2) ** 0.5), 2, -1):
        q = next((k * p + 1 for k in range(2, 64, 2) if _is_prime(k * p + 1)), 0)
        if p % 2 and _is_prime(p) and q and p * q < limit:
            found.append((p, q))
        if len(found) == 8:
            break
    return found


def _is_prime(n: int) -> bool:
    return n > 1 and all(n % k for k in range(2, int(n**0.5) + 1))
