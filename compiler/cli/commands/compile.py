"""Compile a model to a library with a C interface, which runs without Python.

-o model.so, model.a or model.o writes a shared or static library or a single object, with a header
and an example beside it, and -o folder writes all of these with the sources. A program that links
the library needs the C library and threads, and nothing else. The system's C compiler and linker
are used. compiler.load("model.so") reads a shared library in Python. With several feature sets,
--features avx2,avx512, a library has code for each, and uses the best that the processor has.
--also batch=1 adds code for this size: calls of it run that, and others the code for all sizes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from compiler.cli import arguments as shared
from compiler.cli.arguments import names

SUMMARY = "compile a model to a library with a C interface"
TOPIC = "Compile and run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_model(parser, weights=False)
    shared.add_target(parser)
    group = parser.add_argument_group("the library")
    shared.complete(group.add_argument(
        "--output", "-o", metavar="PATH", required=True, type=Path,
        help="a file that ends in .so, .a or .o, or a folder for all pieces"))
    group.add_argument("--name", metavar="NAME",
                       help="what its functions start with (default: the name of the file)")
    shared.complete(group.add_argument(
        "--weights", metavar="FILE", dest="weights_file", type=Path,
        help="write the constants to a file of their own, which processes share"))
    group.add_argument(
        "--also", metavar="NAME=N[,NAME=N]", action="append", default=[], type=_sizes,
        help="add code for these sizes, which are constants in it; other sizes stay open")
    group.add_argument("--demo", action="store_true",
                       help="write a page for browsers beside a .wasm, which runs the model")
    shared.complete(group.add_argument(
        "--labels", metavar="FILE", type=Path,
        help="the names of classes, or the symbols of a text, one per line; for --demo"))
    shared.add_dump(parser)
    shared.add_pipeline(parser)


def _sizes(text: str) -> dict[str, int]:
    """`batch=1,length=128` -> {"batch": 1, "length": 128}."""
    return dict(map(shared.named_size, text.split(",")))


def _labels(file: Path | None) -> list[str]:
    """The lines of a file. Raises StrataError if it cannot be read."""
    from compiler.diagnostics import StrataError

    if file is None:
        return []
    try:
        return file.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, ValueError) as error:
        raise StrataError(f"cannot read {file}: {error}") from None


def run(arguments: argparse.Namespace) -> int:
    from compiler.cli.session import session
    from compiler.instrument.remarks import Remarks
    from compiler.io.output import check_writable
    from compiler.io.printing import show
    from compiler.programs.library import form_of, name_of, write_library

    path, remarks = arguments.output, Remarks()
    sets = names(arguments.features or "")
    name = name_of(path, arguments.name)
    check_writable(path if form_of(path) else None)
    check_writable(arguments.weights_file)
    labels = _labels(arguments.labels) if arguments.demo or arguments.labels else None
    with session(arguments) as started:
        sessions = [started] if len(sets) < 2 else started.for_each(sets)
        compilations = [each.compiler(arguments.model, remarks) for each in sessions]
        sized = [[(sizes, each.with_sizes(sizes).compiler(arguments.model, remarks))
                  for sizes in arguments.also] for each in sessions]
        made = write_library(compilations, path, name, arguments.weights_file, sized, labels)
    remarks.show(arguments.verbose)
    if made:
        show(f"note: {path} has {' and '.join(made)}", file=sys.stderr)
    return 0
