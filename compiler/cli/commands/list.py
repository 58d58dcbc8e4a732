"""List the available operations, passes, their groups, targets, levels, frontends or schedule
options.

The list includes those of installed packages and plugin files.
"""

from __future__ import annotations

import argparse

from compiler.cli import arguments as shared
from compiler.io.printing import show_text

SUMMARY = "list operations, passes, targets, levels, frontends or options"
TOPIC = "About Strata"
KINDS = ("ops", "passes", "groups", "targets", "levels", "frontends", "options")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--json", action="store_true", help="as JSON")
    shared.add_plugins(parser)


def run(arguments: argparse.Namespace) -> int:
    from compiler.io.output import write_text
    from compiler.plugins import inventory
    from compiler.plugins.plugin_files import load_plugins

    rows = inventory.rows(arguments.kind, load_plugins(arguments.plugin))
    if arguments.json:
        import json

        write_text(json.dumps(rows, indent=2), None)
        return 0
    show_text(inventory.table(rows))
    return 0
