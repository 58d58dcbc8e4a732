"""Symbolic integer expressions: the sizes of tensors and the indices into them.

An expression is a polynomial with integer coefficients over *atoms*. An atom is a symbol (a size
such as `batch`, an axis such as `i0`: dialects/symbolic/symbol.py) or a call: `floordiv`, `mod`,
`max`, `min`. Expressions are immutable and normalized, so equal expressions of this form compare
equal:

    (batch + 1) * 2 == 2*batch + 2          (4*h) floordiv 2 == 2*h

Division rounds towards minus infinity, `mod` takes the divisor's sign (MLIR's affine semantics,
Python's `//` and `%`). The text form is `2*h + w - 1`, `(h - 1) floordiv 2 + 1`, `max(a, b)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, NoReturn, TypeAlias, TypeVar

import numpy as np

from dialects.symbolic.interned import Interned
from dialects.symbolic.remembered import computed_once, remembered
from dialects.symbolic.symbol import Symbol

Size: TypeAlias = "int | Expr"
Atom: TypeAlias = "Symbol | Call"
Monomial: TypeAlias = "tuple[Atom, ...]"
"""A product of atoms, sorted by their text."""
T = TypeVar("T")


def _made(class_: type[T], **fields: object) -> T:
    """A new immutable object."""
    made = object.__new__(class_)
    made.__dict__.update(fields)
    return made


class Call:
    """`op(args)`, where op is one of `floordiv`, `mod`, `max`, `min`. Equal calls are the same
    object."""

    __match_args__ = "op", "args"
    op: str
    args: tuple[Expr, ...]

    def __new__(cls, op: str, args: tuple[Expr, ...]) -> Call:
        key = op, args
        found = _CALLS.find(key)
        return _CALLS.keep(key, _made(cls, op=op, args=args)) if found is None else found

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"an expression does not change: {name} of {self.text}")

    def __reduce__(self) -> tuple[type[Call], tuple[str, tuple[Expr, ...]]]:
        return Call, (self.op, self.args)

    @computed_once
    def text(self) -> str:
        if self.op in ("max", "min"):
            return f"{self.op}({', '.join(map(str, self.args))})"
        left, right = (_in_parentheses(a) for a in self.args)
        return f"({left} {self.op} {right})"

    @computed_once
    def symbols(self) -> frozenset[Symbol]:
        """All symbols in the call."""
        return frozenset[Symbol]().union(*(a.symbols for a in self.args))

    def __repr__(self) -> str:
        return f"Call({self.text})"


class Expr:
    """A polynomial: `terms` maps products of atoms to non-zero integer coefficients, sorted.

    Equal expressions are the same object.
    """

    __match_args__ = ("terms",)
    terms: tuple[tuple[Monomial, int], ...]

    def __new__(cls, terms: tuple[tuple[Monomial, int], ...]) -> Expr:
        reference = _EXPRS.references.get(terms)
        if reference is not None and (found := reference()) is not None:
            return found
        return _EXPRS.keep(terms, _made(cls, terms=terms))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"an expression does not change: {name} of {self.text}")

    def __reduce__(self) -> tuple[type[Expr], tuple[tuple[tuple[Monomial, int], ...]]]:
        return Expr, (self.terms,)

    # ------------------------------------------------------------------ construction
    @staticmethod
    def of(value: Size | np.integer[Any]) -> Expr:
        """An expression from an integer or an expression."""
        return value if isinstance(value, Expr) else _constant(int(value))

    @staticmethod
    def symbol(symbol: Symbol) -> Expr:
        return _symbol(symbol)

    @staticmethod
    def size(name: str) -> Expr:
        """A size of the model, by the model's own name for it."""
        return _symbol(Symbol.size(name))

    @staticmethod
    def axis(name: str) -> Expr:
        """An axis of a nest, by its name."""
        return _symbol(Symbol.axis(name))

    @staticmethod
    def gathered(number: int) -> Expr:
        """The value of a nest's input, by its number."""
        return _symbol(Symbol.gathered(number))

    @staticmethod
    def place(dim: int) -> Expr:
        """The position along a dim of a tile."""
        return _symbol(Symbol.place(dim))

    @staticmethod
    def operand(name: int | str) -> Expr:
        """An SSA value, by its position among an operation's operands or by its name."""
        return _symbol(Symbol.operand(name))

    # ------------------------------------------------------------------ inspection
    @computed_once
    def constant(self) -> int | None:
        """The value, if the expression is a plain integer."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and not self.terms[0][0]:
            return self.terms[0][1]
        return None

    @computed_once
    def symbols(self) -> frozenset[Symbol]:
        """All symbols in the expression, including those inside calls."""
        return frozenset[Symbol]().union(*[monomial_symbols(m) for m, _ in self.terms])

    @computed_once
    def as_symbol(self) -> Symbol | None:
        """The symbol, if the expression is exactly one symbol."""
        if len(self.terms) != 1:
            return None
        monomial, factor = self.terms[0]
        if factor != 1 or len(monomial) != 1 or not isinstance(monomial[0], Symbol):
            return None
        return monomial[0]

    @computed_once
    def offset(self) -> int:
        """The constant term, which is always the last term."""
        return self.terms[-1][1] if self.terms and not self.terms[-1][0] else 0

    def linear(self, symbols: Iterable[Symbol]) -> tuple[Mapping[Symbol, Expr], Expr] | None:
        """Split into coefficients of `symbols` and a rest free of them; None if not linear."""
        wanted = self.symbols.intersection(symbols)
        if not wanted:
            return dict[Symbol, Expr](), self
        split, constant = _linear(self.without_constant, wanted), self.offset
        return split if split is None or not constant else (split[0], split[1] + constant)

    @computed_once
    def without_constant(self) -> Expr:
        """The other terms. Many expressions differ in their constants only, as those of unrolled
        loops, so what is remembered of the others serves all."""
        return Expr(self.terms[:-1]) if self.offset else self

    @computed_once
    def text(self) -> str:
        if not self.terms:
            return "0"
        out = ""
        for monomial, factor in self.terms:
            body = "*".join(map(atom_text, monomial))
            size = abs(factor)
            piece = body if body and size == 1 else f"{size}*{body}" if body else str(size)
            sign = "-" if factor < 0 else "+"
            out += (f" {sign} {piece}") if out else ("-" if factor < 0 else "") + piece
        return out

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Expr({self.text})"

    # ------------------------------------------------------------------ arithmetic
    @remembered
    def __add__(self, other: Size) -> Expr:
        if not isinstance(other, Expr):
            other = _constant(int(other))
        if not other.terms:
            return self
        if not self.terms:
            return other
        if not other.terms[0][0]:
            return self._raised(other.terms[0][1])
        sums = dict(self.terms)
        for monomial, factor in other.terms:
            sums[monomial] = sums.get(monomial, 0) + factor
        return _from_dict(sums)

    __radd__ = __add__

    def _raised(self, constant: int) -> Expr:
        """The sum with an integer. Only the last term, the constant, changes."""
        rest = self.terms if self.terms[-1][0] else self.terms[:-1]
        total = self.offset + constant
        return Expr((*rest, ((), total)) if total else rest)

    def __neg__(self) -> Expr:
        return Expr(tuple((m, -c) for m, c in self.terms))

    @remembered
    def __sub__(self, other: Size) -> Expr:
        return self + -other

    def __rsub__(self, other: Size) -> Expr:
        return Expr.of(other) - self

    @remembered
    def __mul__(self, other: Size) -> Expr:
        other = Expr.of(other)
        if len(other.terms) == 1 and not other.terms[0][0]:
            return self._scaled(other.terms[0][1])
        if len(self.terms) == 1 and not self.terms[0][0]:
            return other._scaled(self.terms[0][1])
        products: dict[Monomial, int] = {}
        for m1, c1 in self.terms:
            for m2, c2 in other.terms:
                key = times(m1, m2)
                products[key] = products.get(key, 0) + c1 * c2
        return _from_dict(products)

    __rmul__ = __mul__

    def _scaled(self, factor: int) -> Expr:
        """The product with an integer other than 0."""
        return self if factor == 1 else Expr(tuple((m, factor * c) for m, c in self.terms))

    @remembered
    def __floordiv__(self, other: Size) -> Expr:
        other = Expr.of(other)
        a, b = self.constant, other.constant
        if b == 1 or not self.terms:  # x floordiv 1 == x
            return self
        if a is not None and b:
            return _constant(a // b)
        quotient, rest = self.divide(other)
        if rest.constant is not None and b:  # (b*q + r) floordiv b == q + r floordiv b
            return quotient + rest.constant // b
        if not rest.terms:
            return quotient
        if b is not None and b > 0 and (inner := _inner_division(rest)) is not None:
            left, divisor, offset = inner  # (x floordiv a + c) floordiv b == (x + a*c) floordiv a*b
            return quotient + (left + divisor * offset) // (divisor * b)
        if b is None and (shared := _over_symbols(rest, other)) is not None:
            numerator, factor = shared  # (x*h) floordiv (2*x) == h floordiv 2
            return quotient + numerator // factor
        return quotient + _call("floordiv", (rest, other))

    def __rfloordiv__(self, other: Size) -> Expr:
        return Expr.of(other) // self

    @remembered
    def __mod__(self, other: Size) -> Expr:
        other = Expr.of(other)
        a, b = self.constant, other.constant
        if a is not None and b:
            return _constant(a % b)
        if b == 1:
            return _constant(0)
        rest = self.divide(other)[1]  # (b*q + r) mod b == r mod b
        if rest.constant is not None and b:
            return _constant(rest.constant % b)
        return _call("mod", (rest, other)) if rest.terms else rest

    def ceildiv(self, other: Size) -> Expr:
        other = Expr.of(other)
        if other.constant is not None and other.constant > 0:  # sizes stay positive in this form
            return (self + (other.constant - 1)) // other
        return -((-self) // other)

    def divide(self, divisor: Expr) -> tuple[Expr, Expr]:
        """(quotient, rest) with self == quotient*divisor + rest.

        The quotient collects the terms that the divisor divides. If the divisor has several terms,
        the quotient is 0 unless the division is exact. Raises ZeroDivisionError for a divisor of
        0.
        """
        if not divisor.terms:
            raise ZeroDivisionError(f"{self} is divided by 0")
        if len(divisor.terms) == 1:
            return self._divide_by_monomial(divisor)
        lead_monomial, lead_factor = divisor.terms[0]
        quotient, rest = _constant(0), self
        for _ in range(len(self.terms) + 1):
            terms = dict(rest.terms)
            found = next((m for m in terms if without(m, lead_monomial) is not None
                          and terms[m] % lead_factor == 0), None)
            if found is None:
                break
            over = without(found, lead_monomial)
            assert over is not None
            step = Expr(((over, terms[found] // lead_factor),))
            quotient, rest = quotient + step, rest - step * divisor
            if not rest.terms:
                return quotient, rest
        return _constant(0), self

    def _divide_by_monomial(self, divisor: Expr) -> tuple[Expr, Expr]:
        monomial, factor = divisor.terms[0]
        quotient: dict[Monomial, int] = {}
        rest: dict[Monomial, int] = {}
        for m, c in self.terms:
            over = without(m, monomial)
            if over is None:
                rest[m] = c
            elif not m and not monomial:  # a constant over a constant keeps its remainder
                quotient[over], remainder = divmod(c, factor)
                if remainder:
                    rest[m] = remainder
            elif c % factor == 0:
                quotient[over] = c // factor
            else:
                rest[m] = c
        return _from_dict(quotient), _from_dict(rest)

    # ------------------------------------------------------------------ use
    def substitute(self, values: Mapping[Symbol, Size]) -> Expr:
        """Replace symbols by expressions."""
        given = tuple([(s, values[s]) for s in self.symbols if s in values])
        if not given:
            return self
        found, constant = _substituted(self.without_constant, given), self.offset
        return found + constant if constant else found

    def evaluate(self, values: Mapping[Symbol, Any]) -> Any:
        """The value, with each symbol an integer or a NumPy integer array (they broadcast).

        Raises KeyError for a symbol without a value.
        """
        return _evaluated(self, values, {})


_CALLS: Interned[Call] = Interned()
_EXPRS: Interned[Expr] = Interned()


@remembered
def _linear(
    expr: Expr, wanted: frozenset[Symbol]
) -> tuple[Mapping[Symbol, Expr], Expr] | None:
    """`Expr.linear`, for some of the expression's own symbols."""
    coefficients: dict[Symbol, Expr] = {}
    rest: list[tuple[Monomial, int]] = []
    for term in expr.terms:
        monomial, factor = term
        inside = [a for a in monomial if not wanted.isdisjoint(a.symbols)]
        if not inside:
            rest.append(term)
            continue
        atom = inside[0]
        if len(inside) > 1 or not isinstance(atom, Symbol):
            return None
        others = tuple(a for a in monomial if a is not atom)
        part = Expr(((others, factor),))
        coefficients[atom] = coefficients[atom] + part if atom in coefficients else part
    return coefficients, Expr(tuple(rest))


@remembered
def _substituted(expr: Expr, given: tuple[tuple[Symbol, Size], ...]) -> Expr:
    """The expression with other symbols or numbers for some of its own."""
    values = dict(given)
    total: dict[Monomial, int] = {}
    for monomial, factor in expr.terms:
        if values.keys().isdisjoint(monomial_symbols(monomial)):
            total[monomial] = total.get(monomial, 0) + factor
            continue
        for key, count in _substitute_all(monomial, values).terms:
            total[key] = total.get(key, 0) + factor * count
    return _from_dict(total)


def _substitute_all(monomial: Monomial, values: Mapping[Symbol, Size]) -> Expr:
    """The product of the substituted atoms."""
    product = _substitute_atom(monomial[0], values)
    for atom in monomial[1:]:
        product = product * _substitute_atom(atom, values)
    return product


def _substitute_atom(atom: Atom, values: Mapping[Symbol, Size]) -> Expr:
    if isinstance(atom, Symbol):
        return Expr.of(values[atom]) if atom in values else _symbol(atom)
    new = [a.substitute(values) for a in atom.args]
    unchanged = all(a is b for a, b in zip(new, atom.args, strict=True))
    return _call(atom.op, atom.args) if unchanged else apply_call(atom.op, new)


def _evaluated(expr: Expr, values: Mapping[Symbol, Any], known: dict[Call, Any]) -> Any:
    """As `evaluate`; `known`: calls that have values. Minima inside minima share their operands, so
    that to evaluate each occurrence would take exponential time.
    """
    if expr.constant is not None:
        return expr.constant
    total: Any = 0
    for monomial, factor in expr.terms:
        product: Any = factor
        for atom in monomial:
            if isinstance(atom, Symbol):
                product = product * values[atom]
                continue
            if atom not in known:
                known[atom] = _value_of(atom, values, known)
            product = product * known[atom]
        total = total + product
    return total


def _value_of(call: Call, values: Mapping[Symbol, Any], known: dict[Call, Any]) -> Any:
    left: Any
    right: Any
    left, right = (_evaluated(a, values, known) for a in call.args)
    if call.op == "floordiv":
        return left // right
    if call.op == "mod":
        return left % right
    if isinstance(left, int) and isinstance(right, int):
        return max(left, right) if call.op == "max" else min(left, right)
    chosen = np.maximum(left, right) if call.op == "max" else np.minimum(left, right)
    return chosen if chosen.ndim else int(chosen)


def apply_call(op: str, args: list[Expr]) -> Expr:
    """The normalized result of `floordiv`, `mod`, `max` or `min` on two expressions."""
    left, right = args
    if op == "floordiv":
        return left // right
    if op == "mod":
        return left % right
    return maximum(left, right) if op == "max" else minimum(left, right)


def maximum(left: Size, right: Size) -> Expr:
    return _extremum("max", Expr.of(left), Expr.of(right))


def minimum(left: Size, right: Size) -> Expr:
    return _extremum("min", Expr.of(left), Expr.of(right))


def _extremum(op: str, left: Expr, right: Expr) -> Expr:
    difference = (left - right).constant
    if difference is not None:  # they differ by a constant: one always wins
        return left if (difference >= 0) == (op == "max") else right
    if op == "max" and not (left.terms and right.terms):  # max(-x, 0) == max(x, 0) - x
        other = left if left.terms else right
        if other.terms[0][1] < 0:
            return _extremum("max", -other, right if left.terms else left) + other
    return _call(op, tuple(sorted((left, right), key=str)))


def _over_symbols(a: Expr, b: Expr) -> tuple[Expr, int] | None:
    """Both without the symbols that b is a multiple of; None if those do not divide a."""
    if len(b.terms) != 1 or b.terms[0][1] == 1:
        return None
    [(monomial, factor)] = b.terms
    quotient, rest = a.divide(Expr(((monomial, 1),)))
    return None if rest.terms else (quotient, factor)


def _inner_division(expr: Expr) -> tuple[Expr, int, int] | None:
    """(x, a, c) when the expression is `x floordiv a + c` with positive integer a."""
    calls = [m for m, factor in expr.terms if m and factor == 1]
    if len(calls) != 1 or len(calls[0]) != 1 or len(expr.terms) - bool(expr.offset) != 1:
        return None
    atom = calls[0][0]
    if isinstance(atom, Symbol) or atom.op != "floordiv" or not (atom.args[1].constant or 0) > 0:
        return None
    return atom.args[0], atom.args[1].constant or 1, expr.offset


# ---------------------------------------------------------------------- products of atoms
def atom_text(atom: Atom) -> str:
    return atom.text


@cache
def monomial_key(monomial: Monomial) -> tuple[int, tuple[str, ...]]:
    """The sort key of a sum's terms."""
    return (-len(monomial), tuple(map(atom_text, monomial)))


@cache
def times(left: Monomial, right: Monomial) -> Monomial:
    """The product with its atoms sorted."""
    return tuple(sorted(left + right, key=atom_text)) if left and right else left or right


@cache
def monomial_symbols(monomial: Monomial) -> frozenset[Symbol]:
    """The symbols of a product, including those inside calls."""
    return frozenset[Symbol]().union(*(a.symbols for a in monomial))


def without(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    """monomial / divisor, or None if it does not divide."""
    left = list(monomial)
    for atom in divisor:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def _in_parentheses(expr: Expr) -> str:
    """The text as an operand: constants and single atoms need no parentheses of their own."""
    alone = expr.as_symbol is not None or _is_quotient(expr)
    plain = alone or (expr.constant is not None and expr.constant >= 0)
    return expr.text if plain else f"({expr.text})"


def _is_quotient(expr: Expr) -> bool:
    """Whether it is a single `floordiv` or `mod`, whose text already has parentheses."""
    if len(expr.terms) != 1:
        return False
    monomial, factor = expr.terms[0]
    return factor == 1 and len(monomial) == 1 and isinstance(monomial[0], Call) and (
        monomial[0].op in ("floordiv", "mod"))


# ---------------------------------------------------------------------- building blocks
@cache
def _constant(value: int) -> Expr:
    return Expr((((), value),) if value else ())


@cache
def _symbol(symbol: Symbol) -> Expr:
    return Expr((((symbol,), 1),))


def _call(op: str, args: tuple[Expr, ...]) -> Expr:
    return Expr((((Call(op, args),), 1),))


def _from_dict(terms: dict[Monomial, int]) -> Expr:
    kept = [m for m, c in terms.items() if c]
    if len(kept) > 1:
        kept.sort(key=monomial_key)
    return Expr(tuple([(m, terms[m]) for m in kept]))
