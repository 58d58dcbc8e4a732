"""Every numbered constraint of every operation has a text that violates it, and is then cited.

The constraints are those that the docstrings number, `(C1)` or `(C1) to (C3)`, of an operation's
class and of the classes that it is derived from. The texts stand in `tests/constraints`, one file
per dialect. Only the operation that the table names is said to violate a constraint.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.parser import Parser
from xdsl.utils.exceptions import VerifyException

from dialects.context import make_context
from dialects.registry import dialect_loaders
from dialects.strata.types import ELEMENTS

DIALECTS = ("strata", "graph", "loop", "host", "block")
KINDS = ("f32", "i64", "i1", "i32", "f16", "f8E4M3FN")
"""Elements of which a family takes some and not others."""

OPERATIONS = {op.name: op for load in dialect_loaders().values() for op in load().operations}
"""Every operation of every dialect."""


def stated(op: type) -> set[str]:
    """The numbers of the constraints in the docstrings of a class and those it is derived from."""
    found = set[str]()
    for text in (vars(base).get("__doc__") or "" for base in op.__mro__):
        for first, last in re.findall(r"\((C\d+)\)(?:\s+(?:to|and)\s+\((C\d+)\))?", text):
            numbers = int(first[1:]), int((last or first)[1:])
            found |= {f"C{n}" for n in range(numbers[0], numbers[1] + 1)}
    return found


def is_void(op: type[Operation], constraint: str) -> bool:
    """Whether nothing can violate an inherited constraint: operands of one, or elements of any."""
    family = [base.__name__ for base in op.__mro__]
    if "ElementwiseOp" in family and constraint in ("C1", "C3"):
        return len(operands_of(op)) == 1
    return constraint == "C2" and "ElementwiseOp" in family and bad_element(op) is None


def operands_of(op: type[Operation]) -> list[str]:
    """The operands in the example of its docstring."""
    example = re.search(r"Example: .*?= \S+ ([^{:]*)", op.__doc__ or "", re.DOTALL)
    return re.findall(r"%\w+", example[1]) if example else []


def attributes_of(op: type[Operation]) -> str:
    example = re.search(r"Example: [^{:]*?(\{.*?\})", op.__doc__ or "", re.DOTALL)
    return example[1] if example else ""


def holds(op: type[Operation], text: str) -> bool:
    kind = getattr(op, "ELEMENTS", None)
    return kind is None or kind.holds(next(e for e in ELEMENTS if str(e) == text))


def bad_element(op: type[Operation]) -> str | None:
    return next((text for text in KINDS if not holds(op, text)), None)


def written(op: type[Operation], text: str) -> str | None:
    """A row's text for one operation of a family; None where it has other operands."""
    bad, good = bad_element(op), [kind for kind in KINDS if holds(op, kind)]
    if len(set(re.findall(r"%\w+", text))) != len(operands_of(op)):
        return None
    if "BAD" in text and bad is None:
        return None
    text = re.sub(r"\bOP\b", op.name, text).replace("ATTRIBUTES", attributes_of(op))
    other = good[-1] if len(good) > 1 else bad or ""
    return text.replace("BAD", bad or "").replace("GOOD", good[0]).replace("OTHER", other)


def in_function(text: str) -> str:
    """`OP ... : TYPE given %x: TYPE`, or `%y = OP ...`, in a function."""
    line, _, arguments = text.partition(" given ")
    names = ", ".join(f'"{name}"' for name in re.findall(r"%(\w+):", arguments))
    line = line if " = graph." in line else f"%result = {line}"
    return (f"strata.func @main({arguments}) -> () inputs [{names}] outputs [] "
            f"{{ {line} strata.return }}")


def rows() -> Iterator[tuple[str, str, str]]:
    """(operation, message, text of a module), families written out."""
    for dialect in DIALECTS:
        for name, message, text in import_module(f"tests.constraints.{dialect}").CASES:
            if dialect != "graph":
                yield name, message, text
            elif name in OPERATIONS:
                yield name, message, in_function(text)
            else:
                family = [op for op in OPERATIONS.values()
                          if name in {base.__name__ for base in op.__mro__}]
                yield from ((op.name, message, in_function(own)) for op in family
                            if (own := written(op, text)) is not None)


@cache
def cases() -> list[tuple[str, str, str]]:
    return list(rows())


def failures(module: ModuleOp) -> list[tuple[str, str]]:
    """The operations that do not verify, and what is said of them."""
    found: list[tuple[str, str]] = []
    for op in module.walk():
        try:
            op.verify(verify_nested_ops=False)
        except VerifyException as error:
            found.append((op.name, str(error)))
    return found


@pytest.mark.parametrize(("name", "message", "text"), cases(), ids=[
    f"{name}-{message[:2]}-{k}" for k, (name, message, _) in enumerate(cases())])
def test_a_violated_constraint_is_cited(name: str, message: str, text: str) -> None:
    module = Parser(make_context(), text).parse_module()
    found = [(op, said) for op, said in failures(module) if re.search(r"\bC\d+: ", said)]
    assert [op for op, _ in found] == [name]
    assert message in found[0][1]


def test_every_constraint_has_such_a_text() -> None:
    shown = {(name, message.partition(":")[0]) for name, message, _ in cases()}
    needed = {(name, number) for name, op in OPERATIONS.items() for number in stated(op)
              if not is_void(op, number)}
    assert needed - shown == set(), "constraints in docstrings that no text violates"
    assert shown - needed == set(), "texts for constraints that no docstring states"


def test_numbers_are_found_in_ranges_and_inherited() -> None:
    assert stated(OPERATIONS["strata.loop"]) == {"C1", "C2", "C3", "C4", "C5"}
    assert stated(OPERATIONS["graph.max_pool_indices"]) == {f"C{n}" for n in range(1, 7)}
    assert stated(OPERATIONS["graph.gelu"]) == {"C1", "C2"}
