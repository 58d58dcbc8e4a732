"""No surgery on LLVM text: the sources of the CPU's emitters put text together, and never read it.

An emitter knows what it has written: types, constants and registers are values. So nothing is cut
off a text, replaced or searched in it, and no function is written as a string. The room
`targets/cpu/llvm` spells names and reads Python, and is free to do so.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOLDERS = ("targets/cpu/emit", "targets/cpu/driver")
FILES = ("targets/cpu/target.py",)
READERS = frozenset((
    "replace", "removeprefix", "removesuffix", "split", "rsplit", "splitlines", "partition",
    "rpartition", "startswith", "endswith", "strip", "lstrip", "rstrip", "find", "rfind",
    "translate"))
"""Methods of `str` that take a text apart."""
TEXTS = frozenset(("name", "text", "typed", "type_", "line", "pointer", "address", "operation"))
"""What emitters call a text, of which no part is taken, and which is not read as a number."""
OPERAND = re.compile(r"[%@].*|-?\d+|true|false|splat .*|zeroinitializer|poison|<.*>|i\d+|ptr|float")
FUNCTION = re.compile(r"^\s*(define|declare) |^\w+:$|^  %\w+ = ", re.MULTILINE)


def surgery(source: str) -> list[str]:
    """The lines that take LLVM text apart, or that hold whole functions as text."""
    lines = source.splitlines()
    tree = ast.parse(source)
    found = {node.lineno for node in ast.walk(tree) if isinstance(node, ast.expr) and _cuts(node)}
    return [lines[number - 1].strip() for number in sorted(found | {*_functions(tree)})]


def _cuts(node: ast.expr) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="re"))):
            return True
        case ast.Call(func=ast.Attribute(attr=name)) if name in READERS:
            return True
        case ast.Call(func=ast.Name(id="int" | "float"), args=[argument]):
            return _is_text(argument)
        case ast.Subscript(value=value, slice=ast.Slice() | ast.Constant()):
            return _is_text(value)
        case ast.Compare(left=left, ops=[operation], comparators=[right]):
            if isinstance(operation, ast.In | ast.NotIn) and _is_text(right):
                return True
            return any(_is_operand(side) for side in (left, right))
        case _:
            return False


def _is_text(node: ast.expr) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in TEXTS
        case _:
            return False


def _is_operand(node: ast.expr) -> bool:
    """Whether a comparison's side spells an operand or a type."""
    match node:
        case ast.Constant(value=str(text)):
            return bool(OPERAND.fullmatch(text))
        case ast.Tuple(elts=parts):
            return any(map(_is_operand, parts))
        case _:
            return False


def _functions(tree: ast.Module) -> Iterator[int]:
    """Strings, other than docstrings, that spell several instructions or a whole function."""
    documents = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    inside = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)
              for part in node.values}
    for node in ast.walk(tree):
        if node in documents or node in inside:
            continue
        match node:
            case ast.Constant(value=str(text)):
                several = text.count("\n") > 1
            case ast.JoinedStr(values=parts):
                text = "".join(str(p.value) for p in parts if isinstance(p, ast.Constant))
                several = text.count("\n") > 1
            case _:
                continue
        if several and FUNCTION.search(text):
            yield node.lineno


def _sources() -> list[Path]:
    return [*(p for folder in FOLDERS for p in sorted((ROOT / folder).glob("*.py"))),
            *(ROOT / file for file in FILES)]


@pytest.mark.parametrize("path", _sources(), ids=lambda path: path.stem)
def test_emitters_never_read_what_they_wrote(path: Path) -> None:
    assert surgery(path.read_text()) == []


@pytest.mark.parametrize("line", [
    'text = body.replace("@old", "@new")',
    'value = stored.removeprefix(type_ + " ")',
    'operation = operation.removesuffix(" contract")',
    'width, element = type_[1:-1].split(" x ")',
    'known = value.startswith("%")',
    'symbol = Symbol.operand(name[1:])',
    'number = Expr.of(int(text))',
    'head = line.partition("(")',
    'clean = re.sub(r"[^a-z]", "_", spelled)',
    'lines = [each for each in module.splitlines()]',
    'if a == "0":\n    pass',
    'if reg.type in ("i64", "<8 x i64>"):\n    pass',
    'if "splat" in text:\n    pass',
    'if test == "true":\n    pass',
    'HEAP = """\ndefine internal void @drop(ptr %heap) {\n  ret void\n}"""',
    'HEAP = f"""\ndone:\n  %v = load ptr, ptr {base}\n  ret ptr %v\n"""',
])
def test_planted_surgery_is_found(line: str) -> None:
    assert len(surgery(line)) == 1


@pytest.mark.parametrize("line", [
    'name = w.assign(f"add {a.typed}, {b.name}")',
    'pairs = [(x, y) for x, y in zip(texts[1:], others, strict=True)]',
    'def f():\n    """Loops.\n\n    done:\n      %v = phi\n    """',
    'other = replace(access, type=turned)',
    'if order == "max" or kind is None:\n    pass',
])
def test_what_puts_text_together_is_no_surgery(line: str) -> None:
    assert surgery(line) == []


