"""Print a shell completion script for commands, options, targets and file names.

    bash   strata completion bash > ~/.local/share/bash-completion/completions/strata
    zsh    strata completion zsh > "${fpath[1]}/_strata"
    fish   strata completion fish > ~/.config/fish/completions/strata.fish

It completes the command `strata`. Print it again after installing packages that extend Strata.
"""

from __future__ import annotations

import argparse

SUMMARY = "print a shell completion script"
TOPIC = "About Strata"
SHELLS = ("bash", "zsh", "fish", "tcsh")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS)


def run(arguments: argparse.Namespace) -> int:
    from compiler.cli.completion import script

    print(script(arguments.shell))
    return 0
