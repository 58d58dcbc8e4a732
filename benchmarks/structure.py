"""The structure of the project in figures: what a reader has to hold.

    python benchmarks/structure.py [ROOT...]
    python benchmarks/structure.py --write

A column for each checkout, or this checkout's in STRUCTURE.md: lines of Python per package, the
largest folders, the longest functions and classes, import cycles (also those in functions and for
types), and how often types are given up. Lines are those that are neither blank nor a comment;
docstrings count.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.project.import_graph import circles, imports, modules

ROOT = Path(__file__).parents[1]
PAGE = Path(__file__).with_name("STRUCTURE.md")
PACKAGES = ("dialects", "passes", "targets", "compiler")
TYPES_GIVEN_UP = {"Any": r"\bAny\b", "cast(": r"\bcast\(", "type: ignore": r"type: ignore",
                  "noqa": r"# noqa"}


def figures(root: Path) -> Iterator[tuple[str, str]]:
    """The rows for one checkout."""
    yield from sizes_of(root)
    files = modules(root, PACKAGES)
    texts = {path: path.read_text(encoding="utf-8") for path in files.values()}
    rooms = Counter(path.parent.relative_to(root).as_posix() for path in texts
                    if path.stem != "__init__")
    yield "largest folders", _largest(rooms, 4)
    sizes = Counter({path.relative_to(root).as_posix(): _lines(path) for path in texts})
    yield "longest files", _largest(sizes, 3)
    spans = {kind: Counter[str]() for kind in ("functions", "classes")}
    for path, text in texts.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.end_lineno:
                kind = "classes" if isinstance(node, ast.ClassDef) else "functions"
                name = f"{node.name} ({path.relative_to(root).as_posix()})"
                spans[kind][name] = node.end_lineno - node.lineno + 1
    for kind, found in spans.items():
        yield f"longest {kind}", _largest(found, 3)
    yield "classes of more than 300 lines", str(sum(n > 300 for n in spans["classes"].values()))
    found = circles(imports(files))
    yield "import cycles", f"{len(found)} (modules in them: {sum(map(len, found))})"
    for name, pattern in TYPES_GIVEN_UP.items():
        yield f"`{name}`", str(sum(len(re.findall(pattern, text)) for text in texts.values()))


def sizes_of(root: Path) -> Iterator[tuple[str, str]]:
    """The rows that are quick to count."""
    for package in (*PACKAGES, "tests"):
        paths = (root / package).rglob("*.py")
        yield f"lines in {package}/", str(sum(map(_lines, paths)))
    yield "modules", str(len(modules(root, PACKAGES)))


def kept() -> Iterator[list[str]]:
    """The rows of the page: what is counted, in an old commit, and now."""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| "):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def write() -> None:
    """Replace the figures of now in the page."""
    now, text = dict(figures(ROOT)), PAGE.read_text(encoding="utf-8")
    for row, old, before in kept():
        if row in now:
            text = text.replace(f"| {row} | {old} | {before} |", f"| {row} | {old} | {now[row]} |")
    PAGE.write_text(text, encoding="utf-8")


def _lines(path: Path) -> int:
    lines = path.read_text(encoding="utf-8").splitlines()
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in lines)


def _largest(counts: Counter[str], number: int) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.most_common(number))


def main() -> None:
    if sys.argv[1:] == ["--write"]:
        write()
        return
    roots = [Path(name).resolve() for name in sys.argv[1:]] or [ROOT]
    columns = [dict(figures(root)) for root in roots]
    print("| | " + " | ".join(root.name for root in roots) + " |")
    print("|---" * (len(roots) + 1) + "|")
    for row in columns[-1]:
        print(f"| {row} | " + " | ".join(column.get(row, "") for column in columns) + " |")


if __name__ == "__main__":
    main()
