"""Limit the numbers that code computes from sizes, so that none overflows 64 bits.

    strata.func @main(%x: f32[n, m])                strata.assume 12*max(1, m)*max(1, n)**2 <= 2**62
      %h = host.alloc : f32[n, n, m]         -->    %h = host.alloc : f32[n, n, m]
      host.launch @k(%x, %h) sizes(n, m)            host.launch @k(%x, %h) sizes(n, m)

If a product of sizes wrapped around, a buffer would be allocated too small; and an array without
elements may have dims of any size. All numbers that a function computes from sizes count: bytes of
buffers, numbers of programs, bounds of loops, indices, assumptions. This module builds one sum that
bounds all of them, in which each size counts as at least 1, so that a dim of 0 hides nothing.
Products of long sums are not multiplied out: `max(1, n)*(max(1, a) + max(1, b))`. The sum becomes
an assumption as soon as its sizes are known. The generated check uses floats, which do not wrap
around. No assumption is needed if the sum stays small enough for sizes up to `MAX_SIZE`, which no
size exceeds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import cache, reduce
from math import prod

from xdsl.ir import Operation

from dialects.block.accesses import Ranges
from dialects.host import AllocOp, FuncOp, LaunchOp
from dialects.strata.assumptions import LARGEST_NUMBER, MAX_SIZE
from dialects.strata.requirements import RequireOp
from dialects.strata.sizes import AssumeOp, defined_sizes
from dialects.strata.types import BufferType
from dialects.symbolic.expr import Atom, Call, Expr, Monomial, atom_text, maximum, times, without
from dialects.symbolic.facts import is_plain
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Kind, Symbol
from dialects.text.syntax import location_name, set_location
from passes.analyses.block.contents import Kernel

Bound = dict[Monomial, int]
"""A sum of products of symbols that are at least 1."""

_Terms = frozenset[tuple[Monomial, int]]
"""The terms of a bound, which may be compared."""

_FEW = 2**16
"""A minimum with a constant up to this number counts as the constant, else as the other side."""

_FEW_TERMS = 16
"""The most terms to which a product of sums is multiplied out."""

_SIZES = (Kind.SIZE, Kind.COMPUTED)


def forget_magnitudes(function: FuncOp) -> None:
    """Remove the assumptions that `limit_magnitudes` adds."""
    for op in list(function.body.block.ops):
        if isinstance(op, AssumeOp) and op.assumption.is_limit:
            op.detach()
            op.erase()


def limit_magnitudes(function: FuncOp, kernels: Mapping[str, Kernel]) -> None:
    """Assume that no number a function computes from its sizes is too large."""
    known: dict[Symbol, Operation | None] = dict.fromkeys(function.size_names)
    order: dict[Operation | None, int] = {None: 0}
    for place, op in enumerate(function.body.block.ops, 1):
        order[op] = place
        known |= dict.fromkeys(defined_sizes(op), op)
    limits: dict[Operation | None, list[tuple[Bound, Operation]]] = defaultdict(list)
    sums, is_named = _Sums(), cache(_is_named)
    for bound, op in _bounds(function, kernels, sums, is_named):
        places = [known[s] for s in sums.symbols(bound) if s in known]
        limits[max(places, key=order.__getitem__, default=None)].append((bound, op))
    for place, bounds in limits.items():
        _write(function, place, bounds, sums, is_named)


def _is_named(op: Operation) -> bool:
    return bool(location_name(op))


def _write(
    function: FuncOp, place: Operation | None, bounds: list[tuple[Bound, Operation]],
    sums: _Sums, is_named: Callable[[Operation], bool],
) -> None:
    total = _largest([bound for bound, _ in bounds])
    if sums.most(total) <= LARGEST_NUMBER:
        return
    assume = AssumeOp.of(sums.expr(total), "<=", LARGEST_NUMBER)
    blame = max(bounds, key=lambda b: (
        is_named(b[1]), max(map(len, b[0]), default=0), sum(b[0].values())))[1]
    set_location(assume, blame)
    block = function.body.block
    if place is None:
        assert block.first_op is not None
        block.insert_op_before(assume, block.first_op)
    else:
        block.insert_op_after(assume, place)


class _Sums:
    """Products of bounds. Where they would have many terms, symbols stand for their sums."""

    def __init__(self) -> None:
        self._sums: dict[Symbol, Bound] = {}
        self._symbols: dict[_Terms, Symbol] = {}
        self.of_sizes: dict[Atom, tuple[Bound, list[Bound]]] = {}
        """The bounds of atoms without ranges, and those of their intermediate results."""

    def product(self, bounds: Iterable[Bound]) -> Bound:
        factors = [bound or {(): 1} for bound in bounds]
        if all(len(bound) == 1 for bound in factors):
            terms = [term for bound in factors for term in bound.items()]
            return {reduce(times, [m for m, _ in terms], ()): prod(c for _, c in terms)}
        if prod(map(len, factors)) > _FEW_TERMS:
            factors = [{(self._symbol(f),): 1} if len(f) > 1 else f for f in factors]
        total: Bound = {(): 1}
        for bound in factors:
            product: Bound = {}
            for left, factor in total.items():
                _add(product, {times(left, m): c for m, c in bound.items()}, factor)
            total = product
        return total

    def _symbol(self, bound: Bound) -> Symbol:
        """The symbol of a sum; equal sums share a symbol."""
        symbol = self._symbols.setdefault(
            frozenset(bound.items()), Symbol(Kind.COUNTER, f"sum{len(self._sums)}"))
        self._sums[symbol] = bound
        return symbol

    def replaced(self, bound: Bound, values: Mapping[Symbol, Bound]) -> Bound:
        """A bound with other bounds substituted for its symbols."""
        total: Bound = {}
        for monomial, factor in bound.items():
            factors = [self.replaced(self._sums[a], values) if a in self._sums else values[a]
                       for a in monomial if isinstance(a, Symbol)]
            _add(total, self.product(factors), factor)
        return total

    def symbols(self, bound: Bound) -> Iterator[Symbol]:
        """The sizes on which a bound depends."""
        for atom in {atom for monomial in bound for atom in monomial}:
            if atom in self._sums:
                yield from self.symbols(self._sums[atom])
            elif isinstance(atom, Symbol):
                yield atom

    def most(self, bound: Bound) -> int:
        """The largest value of a bound for any sizes."""
        return sum(factor * prod(self.most(self._sums[a]) if a in self._sums else MAX_SIZE
                                 for a in monomial) for monomial, factor in bound.items())

    def expr(self, bound: Bound) -> Expr:
        """A bound as code computes it, where each size counts as at least 1."""
        total = Expr.of(0)
        for monomial, factor in bound.items():
            total += product(self._factor(atom) for atom in monomial) * factor
        return total

    def _factor(self, atom: Atom) -> Expr:
        assert isinstance(atom, Symbol)
        known = self._sums.get(atom)
        return maximum(Expr.symbol(atom) if known is None else self.expr(known), 1)


def _largest(bounds: Iterable[Bound]) -> Bound:
    """A sum that bounds all of these: of products that divide each other, it keeps the longest."""
    given = [bound for bound in bounds if bound]
    if len(given) == 1 and len(given[0].keys() - {()}) < 2:
        return dict(given[0])
    distinct = {tuple(sorted(b.items(), key=lambda t: _key(t[0]))) for b in given}
    longest: list[Monomial] = []
    for monomial in sorted({m for b in distinct for m, _ in b}, key=_key, reverse=True):
        if not any(_holds(other, monomial) for other in longest):
            longest.append(monomial)
    total: Bound = {}
    for bound in distinct:
        own: Bound = defaultdict(int)
        for monomial, factor in bound:
            own[next(o for o in longest if _holds(o, monomial))] += factor
        for monomial, factor in own.items():
            total[monomial] = max(total.get(monomial, 0), factor)
    return total


def _holds(longer: Monomial, monomial: Monomial) -> bool:
    """Whether a product is covered by a longer one; a plain number is only covered by itself."""
    return longer == monomial or (monomial != () and without(longer, monomial) is not None)


def _key(monomial: Monomial) -> tuple[int, list[str]]:
    return len(monomial), [atom_text(a) for a in monomial]


# ---------------------------------------------------------------------- numbers of a function
def _bounds(
    function: FuncOp, kernels: Mapping[str, Kernel], sums: _Sums,
    is_named: Callable[[Operation], bool],
) -> Iterator[tuple[Bound, Operation]]:
    """The bounds of all numbers that are computed, each with the operation that needs it."""
    measure = _Measure({}, sums)
    found: dict[str, Mapping[_Terms, Bound]] = {}
    said: set[tuple[_Terms, bool]] = set()
    seen: set[Expr] = set()
    types: set[BufferType] = set()
    launches: set[Hashable] = set()
    for op in (function, *function.body.block.ops):
        for expr in _numbers(op):
            if expr.constant is None and expr not in seen:
                seen.add(expr)
                yield measure.of(expr), op
        for type_ in _types(op, function):
            if type_ not in types and any(s.constant is None for s in type_.shape):
                types.add(type_)
                yield sums.product([{(): type_.dtype.itemsize}, *map(measure.of, type_.shape)]), op
        if isinstance(op, LaunchOp) and op.kernel.data in kernels:
            kernel = kernels[op.kernel.data]
            if op.kernel.data not in found:
                found[op.kernel.data] = _distinct(_of_kernel(kernel, sums))
            launched = op.kernel.data, op.sizes.data, is_named(op)
            if launched in launches:  # an equal launch has equal numbers
                continue
            launches.add(launched)
            given = kernel.sizes(op)
            own = {s: measure.of(e) for s, e in given.items()}
            renames_nothing = all(e.as_symbol is s for s, e in given.items())
            for terms, bound in found[op.kernel.data].items():
                if not renames_nothing:
                    yield sums.replaced(bound, own), op
                elif (terms, is_named(op)) not in said:  # nor of another kernel
                    said.add((terms, is_named(op)))
                    yield bound, op
    for bound in measure.inner:
        yield bound, function


def _distinct(bounds: Iterable[Bound]) -> Mapping[_Terms, Bound]:
    """The bounds by their terms."""
    found: dict[_Terms, Bound] = {}
    for bound in bounds:
        found.setdefault(frozenset(bound.items()), bound)
    return found


def _numbers(op: Operation) -> Iterator[Expr]:
    match op:
        case FuncOp():
            yield op.arena_bytes or Expr.of(0)
        case AllocOp() if op.offset is not None:
            yield op.offset.data
        case AssumeOp():
            yield from (op.left.data, op.right.data)
        case RequireOp():
            yield from (op.low.data, op.high.data)
        case LaunchOp():
            yield from op.sizes.data
        case _:
            pass


def _types(op: Operation, function: FuncOp) -> Iterator[BufferType]:
    """The types of the buffers that an operation or the function introduces."""
    for value in function.body.block.args if op is function else op.results:
        if isinstance(value.type, BufferType):
            yield value.type


def _of_kernel(kernel: Kernel, sums: _Sums) -> Iterator[Bound]:
    """Bounds of what a kernel computes from its sizes; equal bounds only once."""
    if not kernel.op.size_names:
        return
    ranges = kernel.scope.symbols.spans
    measure = _Measure(ranges, sums)
    yield sums.product([measure.of(e) for e in kernel.op.grid.data])
    for expr in _largest_indices(kernel):
        yield measure.of(expr)
    yield from measure.inner


def _largest_indices(kernel: Kernel) -> Iterable[Expr]:
    """The indices of a kernel; of those that differ in a constant only, one with the largest."""
    found: dict[Expr, Expr] = {}
    for access in kernel.accesses:
        index = access.index
        rest = index.without_constant
        if rest.terms and abs(index.offset) >= abs(found.get(rest, rest).offset):
            found[rest] = index
    return found.values()


class _Measure:
    """Bounds of expressions whose symbols are sizes or have a range."""

    def __init__(self, ranges: Ranges, sums: _Sums):
        self._ranges = ranges
        self._sums = sums
        self._found: dict[Expr | Atom, Bound] = {}
        self.inner: list[Bound] = []
        """Bounds of intermediate results that may exceed the final one."""

    def of(self, expr: Expr) -> Bound:
        """A bound of an expression's absolute value."""
        if expr not in self._found:
            total: Bound = {}
            for monomial, factor in expr.terms:
                bound = self._atom(monomial[0]) if len(monomial) == 1 else {}
                _add(total, bound or self._sums.product(map(self._atom, monomial)), abs(factor))
            self._found[expr] = total
        return self._found[expr]

    def _atom(self, atom: Atom) -> Bound:
        if atom not in self._found:
            has_ranges = not self._ranges.keys().isdisjoint(atom.symbols)
            self._found[atom] = self._new_atom(atom) if has_ranges else self._of_sizes(atom)
        return self._found[atom]

    def _of_sizes(self, atom: Atom) -> Bound:
        """The bound of an atom without ranges, which is the same in all kernels."""
        if atom not in self._sums.of_sizes:
            alone = _Measure({}, self._sums)
            self._sums.of_sizes[atom] = alone._new_atom(atom), alone.inner
        bound, inner = self._sums.of_sizes[atom]
        self.inner += inner
        return bound

    def _new_atom(self, atom: Atom) -> Bound:
        if isinstance(atom, Call):
            return self._call(atom)
        if atom in self._ranges:
            ends = [e for e in self._ranges[atom] if e is not None]
            return _largest([self.of(e) for e in ends])
        return {(atom,): 1} if atom.kind in _SIZES else {(): 1}

    def _call(self, call: Call) -> Bound:
        bounds = [self.of(arg) for arg in call.args]
        least = [a for a in call.args if a.constant is not None and a.constant >= 0]
        if call.op == "mod":
            self.inner.append(bounds[0])
            return bounds[1]
        if call.op == "floordiv":
            self.inner += bounds
            divisor = call.args[1].constant or 1
            return {m: -(-c // max(1, divisor)) for m, c in bounds[0].items()}
        if call.op == "min" and all(map(is_plain, call.args)):
            self.inner += bounds
            few = [a for a in least if a.constant is not None and a.constant <= _FEW]
            return self.of((few or [a for a in call.args if a.constant is None])[0])
        total: Bound = {}
        for bound in bounds:
            _add(total, bound, 1)
        return total


def _add(total: Bound, bound: Bound, factor: int) -> None:
    for monomial, own in bound.items():
        total[monomial] = total.get(monomial, 0) + own * factor
