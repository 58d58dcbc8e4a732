"""Show what passes changed, from a folder of dumps: operations removed, added and moved.

Without PASS, one line for each pass that changed something; with it, the operations. The texts are
compared as they are, so dumps of plugins' levels and edited dumps can be compared, too. A pass that
ran several times is shown as often; its file's number selects one run (09-graph-simplify).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from compiler.cli import arguments as shared
from compiler.io.printing import show

if TYPE_CHECKING:
    from collections.abc import Sequence

SUMMARY = "show what a pass changed, from a folder of dumps"
TOPIC = "Look inside"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what to compare")
    shared.complete(group.add_argument("dumps", metavar="DUMPS", type=Path,
                                       help="a folder that --dump-dir wrote"), folder=True)
    group.add_argument("pass_name", metavar="PASS", nargs="?",
                       help="a pass, such as loop-fuse, or the name of its file")
    group.add_argument("--all", action="store_true", help="show all operations, however many")


def run(arguments: argparse.Namespace) -> int:
    from compiler.instrument.changes import MOST, compare, lines_of, shown

    files, wanted = _files(arguments.dumps), arguments.pass_name
    chosen = _chosen(files, wanted, arguments.dumps)
    most = None if arguments.all else MOST if wanted is not None else 0
    for before, after in chosen:
        changes = compare(lines_of(_text(before)), lines_of(_text(after)))
        lines = list(shown(after.stem, changes, most))
        show(*(lines if wanted is not None or arguments.all else lines[:1]))
    return 0


def _files(folder: Path) -> list[Path]:
    """The modules of a dump, in order. Raises StrataError."""
    from compiler.diagnostics import Problem, StrataError

    found = sorted(folder.glob("[0-9]*-*.mlir"))
    found.sort(key=lambda path: int(path.name.partition("-")[0])
               if path.name.partition("-")[0].isdigit() else 0)
    if len(found) < 2:
        raise StrataError(f"there are no dumps to compare in {folder}", [Problem(
            f"it holds {len(found)} numbered .mlir files" if folder.is_dir() else
            "there is no such folder", hint="write them with: lower MODEL --dump-dir DIR")])
    return found


def _chosen(
    files: Sequence[Path], wanted: str | None, folder: Path
) -> list[tuple[Path, Path]]:
    """Pairs of files: before a pass, and after it. Raises StrataError for a pass without a file."""
    from itertools import pairwise

    from compiler.diagnostics import Problem, StrataError
    from compiler.suggestions import hint_for

    pairs = list(pairwise(files))
    if wanted is None:
        return pairs
    names = {path.stem.partition("-")[2] for _, path in pairs}
    found = [pair for pair in pairs
             if wanted in (pair[1].stem, pair[1].name, pair[1].stem.partition("-")[2])]
    if not found:
        raise StrataError(f"{folder} has no dump after '{wanted}'", [Problem(
            "the pass changed nothing, did not run, or is called otherwise",
            hint=hint_for(wanted, sorted(names)))])
    return found


def _text(path: Path) -> str:
    from compiler.diagnostics import StrataError

    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StrataError(f"cannot read {path}: {error}") from None
