"""Documents against the tree: links, paths, tables of files and operations, and command lines.

That a command line parses is asked of the real parser; nothing is run.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from xdsl.ir import Operation

from compiler.cli.commands import commands
from compiler.cli.parser import RootParser, make_parser
from dialects import graph
from dialects.registry import operations_of
from passes.registry import pass_names
from tests.project.documents import (
    HISTORY,
    ROOT,
    Document,
    command_lines,
    documents,
    options_of_scripts,
    table_rows,
    unexplained,
    unknown_targets,
    wrong_links,
    wrong_names,
    wrong_paths,
    wrong_script,
)

PAGES = documents()
EVERY_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.path.relative_to(ROOT)))
LEVELS = ("graph", "loop", "host", "block")
TERMS = {
    **{name: name for name in ("nest", "kernel", "program", "schedule", "tile", "lanes", "panel",
                               "arena", "dump", "reproducer", "peer", "contraction")},
    "winner": "candidate-winner", "call state": "call-state"}
"""Our own words, but those that also are everyday ones, such as size, place and check."""


@EVERY_PAGE
def test_links_lead_somewhere(page: Document) -> None:
    assert list(wrong_links(page)) == []


@EVERY_PAGE
def test_paths_exist(page: Document) -> None:
    if page.path.name in HISTORY:
        pytest.skip("it tells what was, too")
    assert list(wrong_paths(page)) == []


@EVERY_PAGE
def test_names_exist(page: Document) -> None:
    if page.path.name in HISTORY:
        pytest.skip("it tells what was, too")
    assert list(wrong_names(page, pass_names(), options_of_commands() | options_of_scripts())) == []


def options_of_commands() -> set[str]:
    parser = make_parser("", "", commands(), "python -m compiler")
    return {name for sub in (parser, *parser.parsers.values()) for name in sub.option_names()}


@EVERY_PAGE
def test_commands_parse(page: Document, capsys: pytest.CaptureFixture[str]) -> None:
    if page.path.name in HISTORY:
        pytest.skip("it tells what was, too")
    assert list(wrong_commands(page, capsys)) == []


def wrong_commands(page: Document, capsys: pytest.CaptureFixture[str]) -> Iterator[str]:
    parser = make_parser("", "", commands(), "python -m compiler")
    for words, whole in command_lines(page):
        if words[:3] == ["python", "-m", "compiler"]:
            yield from _refused(parser, words[3:], whole, capsys)
        elif words[0] == "strata":
            yield from _refused(parser, words[1:], whole, capsys)
        elif words[0] == "make":
            yield from unknown_targets(words)
        elif words[1:3] == ["-m", "pytest"]:
            yield from (f"no such file: {w}" for w in words[3:]
                        if "/" in w and not (ROOT / w).exists())
        elif words[1:2] and words[1].startswith(("-m", "benchmarks/", "tests/", "examples/")):
            yield from wrong_script(words)


def _refused(
    parser: RootParser, words: Sequence[str], whole: bool, capsys: pytest.CaptureFixture[str]
) -> Iterator[str]:
    """Why the command line does not take these words. Prose may leave out what it is about."""
    if not whole:
        known = parser.parsers.get(words[0] if words else "")
        options = [w.partition("=")[0] for w in words if w.startswith("-")]
        if words and (known is None or not {*options} <= {*known.option_names()}):
            yield f"no such command or option: {' '.join(words)}"
        return
    try:
        assert isinstance(parser.parse_command(words), argparse.Namespace)
    except SystemExit:
        yield f"{' '.join(words)}: {capsys.readouterr().err}"


@pytest.mark.parametrize("level", LEVELS)
def test_the_page_of_a_dialect_names_every_file_and_operation(level: str) -> None:
    folder = ROOT / "dialects" / level
    text = (folder / "README.md").read_text(encoding="utf-8")
    package = importlib.import_module(f"dialects.{level}")
    modules = {m.name for m in pkgutil.iter_modules([str(folder)])} - {"dialect"}
    assert {m for m in modules if not _is_named(f"{m}.py", text)} == set()
    operations = {op.name.partition(".")[2] for op in operations_of(package)}
    assert operations == _told_operations(level, text)


def _is_named(file: str, text: str) -> bool:
    patterns = (re.escape(span).replace(r"\*", r"\w*") for span in re.findall(r"`([\w*.]+)`", text))
    return any(re.fullmatch(pattern, file) for pattern in patterns)


def _told_operations(level: str, text: str) -> set[str]:
    if level != "graph":
        return {name for cell in table_rows(text, "| operation |")
                for name in re.findall(r"`(\w+)`", cell)}
    cells = table_rows(text, "| file | operations").values()
    return {name for cell in cells for name in re.findall(r"\w+(?![\w:])", cell)}


@pytest.mark.parametrize("file, operations", table_rows(
    (ROOT / "dialects/graph/README.md").read_text(encoding="utf-8"), "| file | operations").items())
def test_the_table_of_graph_operations_says_where_they_are(file: str, operations: str) -> None:
    modules = re.findall(r"`(\w+)\.py`", file)
    named = {op.name.partition(".")[2] for module in modules
             for op in operations_of_module(f"dialects.graph.{module}")}
    assert {*re.findall(r"\w+(?![\w:])", operations)} == named


def operations_of_module(name: str) -> list[type[Operation]]:
    return [op for op in operations_of(graph) if op.__module__ == name]


def test_the_page_of_the_compiler_names_every_file() -> None:
    text = (ROOT / "compiler/README.md").read_text(encoding="utf-8")
    files = {path.name for path in (ROOT / "compiler").glob("*.py")} - {"__init__.py"}
    assert {file for file in files if f"`{file}`" not in text} == set()


def test_the_architecture_names_every_room() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rooms = {str(path.parent.relative_to(ROOT)) + "/"
             for top in ("dialects", "passes", "targets", "compiler")
             for path in (ROOT / top).glob("*/__init__.py")}
    assert {room for room in rooms if f"`{room}`" not in text} == set()


@pytest.mark.parametrize("name", ["README.md", "ARCHITECTURE.md"])
def test_our_terms_are_explained_where_they_stand_first(name: str) -> None:
    page = Document(ROOT / name, (ROOT / name).read_text(encoding="utf-8"))
    assert list(unexplained(page, TERMS)) == []


# ---------------------------------------------------------------------- the test can fail
@pytest.mark.parametrize("planted, wrong", [
    ("`passes/loop/no_such_pass.py`", wrong_paths),
    ("`passes/<level>/no_such_pass.py`", wrong_paths),
    ("`no_such_file.py`", wrong_paths),
    ("`no/such/folder/`", wrong_paths),
    ("`tests/project/test_documents.py::test_that_is_not_there`", wrong_paths),
    ("`test_documents.py` and `::test_that_is_not_there`", wrong_paths),
    ("[a page](docs/no_such_page.md)", wrong_links),
    ("[a heading](#no-such-heading)", wrong_links),
    ("[a term](docs/glossary.md#no-such-term)", wrong_links),
])
def test_a_planted_mistake_is_found(
    planted: str, wrong: Callable[[Document], Iterator[str]]
) -> None:
    right = "`passes/loop/fuse.py`, `test_documents.py::test_links_lead_somewhere`, [G](README.md)"
    assert list(wrong(Document(ROOT / "PAGE.md", right))) == []
    assert len(list(wrong(Document(ROOT / "PAGE.md", f"{right}\n{planted}\n")))) == 1


@pytest.mark.parametrize("planted", ["`loop-fues`", "`--no-such-option`", "`Target.no_such`",
                                     "`Facts.no_such`", "`Scheduling.no_such`"])
def test_a_planted_name_is_found(planted: str) -> None:
    right = "`loop-fuse`, `--exact`, `--tuned FILE`, `Facts.row_memory`"
    passes, options = pass_names(), options_of_commands()
    assert list(wrong_names(Document(ROOT / "PAGE.md", right), passes, options)) == []
    page = Document(ROOT / "PAGE.md", f"{right} {planted}")
    assert len(list(wrong_names(page, passes, options))) == 1


@pytest.mark.parametrize("planted", [
    "python -m compiler rnu model.onnx",
    "python -m compiler run model.onnx --no-such-option",
    "python -m compiler lower",
    "cat x | python -m compiler run model.onnx --no-such-option",
    "python -m compiler list ops | python -m compiler opt",
    "strata verify model.onnx --no-such-option",
    "make no-such-rule",
    "python benchmarks/no_such_script.py",
    "python benchmarks/cpu/suite.py --no-such-option",
    "python -m tests.no_such_module",
    "python -m pytest tests/no_such_test.py",
])
def test_a_planted_command_is_found(planted: str, capsys: pytest.CaptureFixture[str]) -> None:
    right = Document(ROOT / "PAGE.md", "```\npython -m compiler run model.onnx   # runs it\n```\n")
    assert list(wrong_commands(right, capsys)) == []
    page = Document(ROOT / "PAGE.md", f"{right.text}\n```\n{planted}\n```\n")
    assert len(list(wrong_commands(page, capsys))) == 1


@pytest.mark.parametrize("text, count", [
    ("A [nest](docs/glossary.md#nest) and nests.", 0),
    ("Nests, and a [nest](docs/glossary.md#nest).", 1),
    ("A [page of nests](docs/page.md#nest).", 1),
    ("`nest` and [a page](docs/nest.md).", 0),
])
def test_a_planted_term_is_found(text: str, count: int) -> None:
    assert len(list(unexplained(Document(ROOT / "PAGE.md", text), {"nest": "nest"}))) == count


def test_a_mentioned_command_may_be_short(capsys: pytest.CaptureFixture[str]) -> None:
    mentioned = "`python -m compiler bench --specialize`, `python -m compiler`"
    page = Document(Path("PAGE.md"), mentioned)
    assert list(wrong_commands(page, capsys)) == []
    page = Document(Path("PAGE.md"), "`python -m compiler bench --specialise`")
    assert len(list(wrong_commands(page, capsys))) == 1
