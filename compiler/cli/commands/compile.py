"""Compile a model to a library with a C interface, which runs without Python.

-o model.so, model.a or model.o writes a shared or static library or a single object, with a header
and an example beside it, and -o folder writes all of these with the sources. A program that links
the library needs the C library and threads, and nothing else. The system's C compiler and linker
are used. compiler.load("model.so") reads a shared library in Python.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from compiler.cli import arguments as shared

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
    shared.add_dump(parser)
    shared.add_pipeline(parser)


def run(arguments: argparse.Namespace) -> int:
    from compiler.cli.session import session
    from compiler.instrument.remarks import Remarks
    from compiler.io.output import check_writable
    from compiler.programs.library import form_of, name_of, write_library

    path, remarks = arguments.output, Remarks()
    name = name_of(path, arguments.name)
    check_writable(path if form_of(path) else None)
    check_writable(arguments.weights_file)
    with session(arguments) as started:
        compilation = started.compiler(arguments.model, remarks)
        write_library(compilation, path, name, arguments.weights_file)
    remarks.show(arguments.verbose)
    return 0
