"""The text of every dialect: parsed, verified, printed and parsed again, it stays the same."""

from __future__ import annotations

from importlib import import_module
from io import StringIO
from pathlib import Path

import pytest
from xdsl.context import Context
from xdsl.ir import Dialect, Operation
from xdsl.parser import Parser
from xdsl.printer import Printer

from dialects.context import make_context

FILES = sorted(Path(__file__).parent.glob("*.mlir"))


def read(text: str, context: Context) -> Operation:
    module = Parser(context, text).parse_module()
    module.verify()
    return module


def printed(module: Operation) -> str:
    stream = StringIO()
    Printer(stream).print_op(module)
    return stream.getvalue()


def operations(file: Path) -> set[str]:
    """The names of all operations of `dialects.NAME`."""
    own = vars(import_module(f"dialects.{file.stem}")).values()
    return {op.name for d in own if isinstance(d, Dialect) for op in d.operations}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_text_round_trips(file: Path) -> None:
    context = make_context()
    first = read(file.read_text(), context)
    second = read(printed(first), context)
    assert printed(second) == printed(first)
    assert first.is_structurally_equivalent(second)


@pytest.mark.parametrize("name", ["block", "host", "loop"])
def test_the_file_shows_every_operation(name: str) -> None:
    file = Path(__file__).with_name(f"{name}.mlir")
    module = read(file.read_text(), make_context())
    assert operations(file) <= {op.name for op in module.walk()}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_generic_text_reads_as_the_same_module(file: Path) -> None:
    """The form that tools without our syntax write."""
    context = make_context()
    module = read(file.read_text(), context)
    stream = StringIO()
    Printer(stream, print_generic_format=True).print_op(module)
    assert module.is_structurally_equivalent(read(stream.getvalue(), context))
