"""Native functions that the tests of the language compile, good and faulty ones."""

from __future__ import annotations

from typing import Annotated

from targets.cpu.llvm.layout import (
    I64,
    U8,
    U32,
    U64,
    Array,
    Atomic64,
    Count,
    Inside,
    Struct,
    place,
)
from targets.cpu.llvm.native import Setting, exported, external, local, native, u8, u64

_LIMIT = 10
FLAG = Setting()


class Inner(Struct):
    """Two numbers."""

    first: U64
    second: U64


class Node(Struct):
    """One of each field."""

    following: Node | None
    small: U8
    inner: Annotated[Inner, Inside()] = place(16)
    counts: Annotated[Array[Atomic64], Count(3)]
    last: U64


@exported("collatz")
def collatz(number: U64) -> U64:
    """Loops, branches and phis: the steps to 1."""
    steps: U64 = 0
    while number != 1:
        if number % 2 == 0:
            number = number // 2
        else:
            number = 3 * number + 1
        steps += 1
    return steps


@exported("between")
def between(low: U64, number: U64, high: U64) -> U64:
    """1 if a number is in a range or above the limit; `and`, `or` and `not` branch."""
    if not (number < low or number >= high) or (number > _LIMIT and number != 77):
        return 1
    return 0


@exported("signed")
def signed(a: I64, b: I64) -> I64:
    """Comparisons, shifts and divisions follow the sign."""
    return min(a, b) // 2 + (max(a, b) >> 1) + (1 if a < b else 2)


@exported("unsigned")
def unsigned(a: U64, b: U64) -> U64:
    """The same of other numbers."""
    return min(a, b) // 2 + (max(a, b) >> 1) + (1 if a < b else 2)


@exported("length")
def length(node: Node | None) -> U64:
    """Addresses, null and early results."""
    count: U64 = 0
    while node is not None:
        if node.last == 99:
            return count
        node = node.following
        count += 1
    return count


@exported("fields_of")
def fields_of(node: Node) -> U64:
    """Fields of a structure inside another, arrays and atomic numbers."""
    node.inner.second += node.inner.first
    before = node.counts[2].add(5)
    node.counts[0].store(before)
    node.small = u8(node.inner.second) | 1
    node.last = node.inner.second
    return u64(node.small)


@native
def doubled(inner: Inner) -> U64:
    """A function that others call."""
    return inner.first * 2


@exported("on_the_stack")
def on_the_stack(number: U64) -> tuple[U64, U64]:
    """Memory on the stack, calls, two results."""
    inner = local(Inner)
    inner.first = number
    apply = doubled
    return doubled(inner), apply(inner) + 1


@exported("chosen")
def chosen(number: U64) -> U64:
    """A setting keeps one branch."""
    if FLAG:
        return number
    return number + 1


@external("missing")
def missing(number: U32) -> U32:
    """A function of another module."""
    ...


# ---------------------------------------------------------------------- what must not compile
@native
def mixes_widths(a: U64, b: U32) -> U64:
    """An operation takes numbers of one width."""
    return a + b


@native
def passes_wrong_width(a: U64) -> U32:
    """So does a call."""
    return missing(a)


@native
def passes_too_many(a: U32) -> U32:
    """And it takes as many as there are parameters."""
    return missing(a, a)  # pyright: ignore[reportCallIssue]


@native
def knows_no_kind() -> U64:
    """A plain number needs a kind."""
    number = 1
    return number


@native
def uses_what_one_path_defines(a: U64) -> U64:
    """A variable has a value on every path."""
    if a > 1:
        b = a
    return b  # pyright: ignore[reportPossiblyUnboundVariable]


@native
def has_a_path_without_result(a: U64) -> U64:  # pyright: ignore[reportReturnType]
    """Every path has a result."""
    if a > 1:
        return a


@native
def changes_a_kind(a: U64, b: U32) -> U64:
    """A variable keeps its kind."""
    a = b
    return a


@native
def has_other_statements(a: U64) -> U64:
    """There is no `for`."""
    for _ in range(a):
        a += 1
    return a


@native
def has_no_such_field(node: Node) -> U64:
    """A structure has the fields that its class has."""
    return node.previous  # pyright: ignore[reportAttributeAccessIssue]


@native
def replaces_a_structure(node: Node, inner: Inner) -> None:
    """A structure inside another has no address that could be replaced."""
    node.inner = inner


FAULTY = {
    mixes_widths: "Integer(bits=32", passes_wrong_width: "Integer(bits=64",
    passes_too_many: "is not called like this", knows_no_kind: "the type of 1 is not known here",
    uses_what_one_path_defines: "b has no value on every path", changes_a_kind: "Integer(bits=32",
    has_a_path_without_result: "a path ends without a result",
    has_other_statements: "native code has no For", has_no_such_field: "no field previous",
    replaces_a_structure: "cannot be replaced as a whole"}
"""Functions that must not compile, and what is said of them."""
