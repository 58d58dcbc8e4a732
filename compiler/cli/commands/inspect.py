"""Describe a model: inputs, outputs, open sizes, opset, parameters, operators.

A model that cannot be compiled is described, too, with everything that is not supported and the
reasons. Nothing is compiled. A library that the command `compile` wrote says what it was made of.
"""

from __future__ import annotations

import argparse

from compiler.cli import arguments as shared
from compiler.io.printing import show, show_text

SUMMARY = "describe a model, and list what is not supported"
TOPIC = "Look inside"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_model(parser)
    group = parser.add_argument_group("the result")
    group.add_argument("--json", action="store_true", help="as JSON")
    shared.add_plugins(group)


def run(arguments: argparse.Namespace) -> int:
    from compiler.cli.described_library import describe_library, is_written_library

    if is_written_library(arguments.model):
        show(*describe_library(arguments.model, arguments.json))
        return 0
    return _inspect(arguments)


def _inspect(arguments: argparse.Namespace) -> int:
    from compiler.cli.inspection import inspect_model, report
    from compiler.cli.standard_streams import is_standard, standard_model
    from compiler.diagnostics import Problem, StrataError
    from compiler.io.output import write_text
    from compiler.plugins.plugin_files import load_plugins

    model = standard_model() if is_standard(arguments.model) else arguments.model
    options = shared.options_from(arguments)
    facts = inspect_model(model, options, load_plugins(options.plugins))
    if arguments.json:
        import json

        write_text(json.dumps(facts, indent=2), None)
        return 0
    show(*report(facts))
    found = [Problem(**problem) for problem in facts["unsupported"]]
    show_text(str(StrataError("not supported", found)) if found else "all of it is supported")
    return 0
