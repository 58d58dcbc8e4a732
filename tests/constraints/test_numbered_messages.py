"""Every message of a verifier cites the number of the constraint that it checks.

The messages are those of `VerifyException` and of `ShapeError`, from which the verifier of graph
operations makes its own, in the sources of the dialects.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

DIALECTS = Path(__file__).parents[2] / "dialects"
ERRORS = ("VerifyException", "ShapeError")
_CITED = re.compile(r"(?:graph\.\w+: )?(?:C\d+|\{(?:constraint|message|constraints\[0\])\}): "
                    r"|\{message\}: ")
"""What a message begins with: a number, or the argument of a shared check that is one."""
OTHERS = {
    "{self.name}: {error}",  # the text of a ShapeError follows, which cites
    "{self.name}: result is {result.type}, not {expected}",  # of any graph operation: `infer`
    "{name} must be integers, not {value}",  # of any graph operation: the type of an attribute
    "{name} must be an integer, not {value.data}",
    "graph.lstm needs a constant sequence length from 1 to {MAX_STEPS} to be unrolled, not "
    "{tensor_type(self.x).shape[0]}: fix that size, or run it on the reference target",
}
"""Messages about what all operations have in common, which no docstring repeats, and one of a
decomposition, which is no verifier."""


def messages(text: str) -> Iterator[tuple[int, str]]:
    """The line and text of each message that a source raises."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Raise) or not isinstance(node.exc, ast.Call):
            continue
        call = node.exc
        if isinstance(call.func, ast.Name) and call.func.id in ERRORS:
            yield node.lineno, spelled(call.args[0]) if call.args else ""


def spelled(node: ast.expr) -> str:
    """A literal as it is, and the parts of an f-string, with expressions in braces."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(spelled, node.values))
    inner = node.value if isinstance(node, ast.FormattedValue) else node
    return f"{{{ast.unparse(inner)}}}"


def unnumbered(text: str) -> list[str]:
    return [f"line {line}: {message}" for line, message in messages(text)
            if not _CITED.match(message) and message not in OTHERS]


@pytest.mark.parametrize("path", sorted(DIALECTS.rglob("*.py")),
                         ids=lambda path: path.relative_to(DIALECTS).as_posix())
def test_messages_cite_a_constraint(path: Path) -> None:
    assert unnumbered(path.read_text(encoding="utf-8")) == []


def test_messages_are_found_at_all() -> None:
    found = [m for path in DIALECTS.rglob("*.py") for m in messages(path.read_text("utf-8"))]
    assert len(found) > 130
    assert {text for _, text in found} >= OTHERS


@pytest.mark.parametrize("message", ['"the body is empty"', 'f"{self.name} takes no {x}"', "text",
                                     '"C: no number"', 'f"{error}: C1"', '"of C1: wrong"'])
def test_a_message_without_a_number_is_found(message: str) -> None:
    planted = f"def verify(self):\n    if self:\n        raise VerifyException({message})\n"
    assert len(unnumbered(planted)) == 1
    assert unnumbered(planted.replace(message, '"C12: " "wrong"')) == []
