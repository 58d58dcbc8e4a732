"""The options for compiling and comparing candidates, for the command and for trials."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from compiler.cli import arguments as shared

if TYPE_CHECKING:
    from compiler.options import CompileOptions
    from compiler.reduction.verdict import Question

FLAGS = ("exact", "interpret")
VALUES = ("target", "features", "triple", "precision", "denormals", "library", "threads", "passes",
          "strategy", "schedule", "tuned", "tolerance", "seed")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the command that trials need."""
    shared.add_target(parser, checks=False)  # its own --check is a command
    shared.add_pipeline(parser)
    parser.add_argument("--dim", metavar="NAME=N", action="append", default=[],
                        type=shared.named_size, help="a size that the model names, for its inputs")
    parser.add_argument("--tolerance", metavar="X", type=shared.tolerance,
                        help="the largest error of a floating-point output (default by its type)")
    parser.add_argument("--seed", metavar="N", type=shared.seed, default=0,
                        help="of the random inputs, for what no file gives (default 0)")


def probe_words(arguments: argparse.Namespace) -> list[str]:
    """The same options as words, with files that are found from any working directory."""
    given = vars(arguments)
    words = [f"--{name}" for name in FLAGS if given[name]]
    for name in VALUES:
        value = given[name]
        if value is not None:
            words.append(f"--{name}={value.resolve() if isinstance(value, Path) else value}")
    words += [f"--{name}={','.join(given[f'{name}_groups'])}" for name in ("with", "without")
              if given[f"{name}_groups"]]
    words += [f"--plugin={plugin.resolve()}" for plugin in given["plugin"]]
    return [*words, *(f"--dim={name}={size}" for name, size in given["dim"])]


def question_of(words: Sequence[str] | None = None) -> Question:
    """The question for these words; those of the command line by default."""
    from compiler.reduction.verdict import Question

    parser = argparse.ArgumentParser()
    add_options(parser)
    parser.add_argument("--phases", type=Path)
    arguments = parser.parse_args(words)
    options = _without_cache(shared.options_from(arguments))
    return Question(options, dict(arguments.dim), arguments.tolerance, arguments.seed,
                    arguments.phases)


def _without_cache(options: CompileOptions) -> CompileOptions:
    """Sizes stay open; --dim gives those of the inputs."""
    return replace(options, cache="off", dims={})
