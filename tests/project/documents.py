"""What documents say that the tree can contradict: links, anchors, paths and command lines.

    `passes/loop/fuse.py`                a path: from the root, or from a folder around the document
    `fuse.py`                            a file in the document's folder, or somewhere below it
    `test_cli_run.py::test_a_thing`      a test; `::test_another` is in the file named before
    [text](../page.md#a-heading)         a link; its anchor is a heading of that page
    python -m compiler run ...           a command line, in a block or in backticks
    `loop-fuse`  `--exact`               a pass, an option of some command
    `Facts.row_memory`  `Rules.panels`   what targets state, and what their parts are asked
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from passes.contract import Facts, Rules
from targets.base import KINDS, Target

ROOT = Path(__file__).parents[2]
TOPS = ("benchmarks", "compiler", "dialects", "docs", "examples", "passes", "targets", "tests")
HISTORY = ("CHANGELOG.md",)
"""Documents that may name what is gone; their links are still checked."""
_SUFFIXES = (".py", ".md", ".mlir", ".toml", ".txt", ".sqlite", "/")
_FENCE = re.compile(r"^(```+)[^\n]*\n(.*?)^\1[ ]*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_LINK = re.compile(r"\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")
_LINK_TARGET = re.compile(r"\]\([^)\s]*\)?")
_OPTION = re.compile(r"--[a-z][a-z-]*")
_PASS = re.compile(r"(graph|loop|host|block)-[a-z-]+")
_PATH = re.compile(r"[\w./<>*-]+")
_TEST = re.compile(r"([\w./]*)::(\w+)")
_HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)
_ASKED = {kind.__name__: kind for kind in (Target, Facts, Rules, *KINDS.values())}
_QUESTION = re.compile(rf"({'|'.join(_ASKED)})\.([a-z_]+)")
_VARIABLE = re.compile(r"[A-Z_]+=")
_COMMAND = re.compile(r"(^|[|;&])\s*([A-Z_]+=\S+ )*(python|strata|make) \S")


@dataclass(frozen=True)
class Document:
    """A page: where it is, and its text."""

    path: Path
    text: str

    @property
    def prose(self) -> str:
        """The text without its blocks of code."""
        return _FENCE.sub("", self.text)

    @property
    def blocks(self) -> Iterator[str]:
        return (match[2] for match in _FENCE.finditer(self.text))

    @property
    def spans(self) -> list[str]:
        """What stands in backticks."""
        return [match[1] for match in _CODE.finditer(self.prose)]


def documents() -> list[Document]:
    """Every page of the tree that is not in a hidden folder or made by a build."""
    pages = [ROOT.glob("*.md"), *((ROOT / top).rglob("*.md") for top in TOPS)]
    return [Document(path, path.read_text(encoding="utf-8"))
            for found in pages for path in sorted(found)]


def wrong_links(page: Document) -> Iterator[str]:
    """Links whose file or anchor does not exist."""
    for target in _LINK.findall(_CODE.sub("", page.prose)):
        name, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        path = (page.path.parent / name) if name else page.path
        if not path.exists():
            yield f"link to {target}: no such file"
        elif anchor and anchor not in anchors(path.read_text(encoding="utf-8")):
            yield f"link to {target}: no such heading"


def anchors(text: str) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    headings = _HEADING.findall(_FENCE.sub("", text))
    return {re.sub(r"[^\w\- ]", "", h.replace("`", "").lower()).replace(" ", "-")
            for h in headings}


def wrong_names(page: Document, passes: Container[str], options: Container[str]) -> Iterator[str]:
    """Passes, options of commands and questions to targets, in backticks, that do not exist."""
    for span in page.spans:
        option, question = _OPTION.match(span), _QUESTION.match(span)
        if _PASS.fullmatch(span) and span not in passes:
            yield f"`{span}`: no such pass"
        elif option and option[0] not in options:
            yield f"`{span}`: no such option"
        elif question and not hasattr(_ASKED[question[1]], question[2]):
            yield f"`{span}`: targets are not asked that"


def wrong_paths(page: Document) -> Iterator[str]:
    """Paths and tests in backticks that do not exist."""
    file = ""
    for span in page.spans:
        test = _TEST.fullmatch(span)
        if test:
            file = test[1] or file
            if not any(f"def {test[2]}(" in _text(path) for path in named(page, file)):
                yield f"`{span}`: no such test"
        elif _is_path(page, span):
            file = span
            if not named(page, span):
                yield f"`{span}`: no such file"


def _is_path(page: Document, span: str) -> bool:
    if not _PATH.fullmatch(span) or span.startswith((".", "/", "build/", "-", "NN-")):
        return False
    top, slash, _ = span.partition("/")
    return span.endswith(_SUFFIXES) if not slash or top not in TOPS else True


def named(page: Document, name: str) -> list[Path]:
    """The files or folders that a page means by a name."""
    pattern = re.sub(r"<\w+>", "*", name).rstrip("/")
    if "/" in pattern:
        around = [f for f in page.path.parents if f.is_relative_to(ROOT)]
        return [path for folder in around for path in folder.glob(pattern)]
    below = page.path.parent
    folders = [below / top for top in TOPS] if below == ROOT else [below]
    if pattern.startswith("test_"):
        folders = [ROOT / "tests"]
    found = [path for folder in folders for path in folder.rglob(pattern)]
    return [*found, *ROOT.glob(pattern)]


@cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


# ---------------------------------------------------------------------- command lines
def command_lines(page: Document) -> Iterator[tuple[list[str], bool]]:
    """The words of each command, and whether the line is whole rather than mentioned in prose."""
    for block in page.blocks:
        for line in block.replace("\\\n", " ").splitlines():
            yield from ((words, True) for words in _commands(line))
    for span in page.spans:
        yield from ((words, False) for words in _commands(span))


def _commands(line: str) -> Iterator[list[str]]:
    """The commands of a pipeline that this test knows."""
    if not _COMMAND.search(line):
        return
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|;&")
    lexer.whitespace_split, lexer.commenters = True, "#"
    words: list[str] = []
    for word in [*lexer, "|"]:
        if set(word) <= set("|;&"):
            if words[:1] in (["python"], ["strata"], ["make"]):
                yield words
            words = []
        elif words or not _VARIABLE.match(word):
            words.append(word)


def unknown_targets(words: Sequence[str]) -> Iterator[str]:
    """What `make` is asked for and does not have."""
    rules = re.findall(r"^([\w-]+):", _text(ROOT / "Makefile"), re.MULTILINE)
    wanted = (word for word in words[1:] if "=" not in word)
    yield from (f"no rule: make {word}" for word in wanted if word not in rules)


def wrong_script(words: Sequence[str]) -> Iterator[str]:
    """A script or module of ours that does not exist, or an option that its folder never names."""
    name = f"{words[2].replace('.', '/')}" if words[1] == "-m" else words[1]
    path = ROOT / name
    if not path.exists() and not path.with_suffix(".py").exists():
        yield f"no such script: {name}"
        return
    around = path if path.is_dir() else path.parent
    texts = [_text(file) for folder in {around, ROOT / "benchmarks" / "shared"}
             for file in folder.rglob("*.py")]
    options = (word.partition("=")[0] for word in words if word.startswith("-") and word != "-m")
    for option in options:
        if not any(f'"{option}"' in text for text in texts):
            yield f"{name} has no option {option}"


def options_of_scripts() -> set[str]:
    """The options that scripts of ours name: benchmarks, and the fuzzer."""
    folders = ROOT / "benchmarks", ROOT / "tests" / "fuzz"
    return {option for folder in folders for file in folder.rglob("*.py")
            for option in re.findall(r'"(--[a-z-]+)"', _text(file))}


# ---------------------------------------------------------------------- tables
def table_rows(text: str, head: str) -> Mapping[str, str]:
    """The rows of the tables whose head begins with these cells: the first cell, and the rest."""
    rows: dict[str, str] = {}
    inside = False
    for line in text.splitlines():
        inside = line.startswith(head) or (inside and line.startswith("|"))
        if inside and not line.startswith(head) and not line.startswith("|---"):
            first, _, rest = line.strip("| ").partition(" | ")
            rows[first] = rest
    return rows


# ---------------------------------------------------------------------- terms
def unexplained(page: Document, terms: Mapping[str, str]) -> Iterator[str]:
    """Terms whose first mention in the text is no link to the glossary, given their anchors."""
    prose = _HEADING.sub("", _CODE.sub("", page.prose))
    for term, anchor in terms.items():
        first = re.search(rf"\b{term}s?\b", _LINK_TARGET.sub("](", prose), re.IGNORECASE)
        linked = re.search(rf"\[{term}s?\]\(\S*glossary\.md#{anchor}\)", prose, re.IGNORECASE)
        if first and not (linked and _is_first(prose, linked.start(), term)):
            yield f"'{term}' is not linked to docs/glossary.md#{anchor} where it stands first"


def _is_first(prose: str, at: int, term: str) -> bool:
    before = _LINK_TARGET.sub("](", prose[:at])
    return re.search(rf"\b{term}s?\b", before, re.IGNORECASE) is None
