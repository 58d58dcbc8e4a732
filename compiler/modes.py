"""Modes of a compilation, by the names that `torch.compile` gives them.

`default` and `reduce-overhead` are the same here: on a GPU a model always is one graph of launches.
`max-autotune` tunes the model's kernels first, and so takes minutes; what was tuned before is not
tuned again.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from compiler.diagnostics import Problem, StrataError

if TYPE_CHECKING:
    from compiler.frontend import MemoryModel
    from compiler.options import CompileOptions

AUTOTUNE = "max-autotune"
MODES = ("default", "reduce-overhead", AUTOTUNE)


def check_mode(mode: str) -> None:
    """Raises StrataError for a mode that there is not."""
    if mode not in MODES:
        raise StrataError(f"no mode '{mode}'; there are: {', '.join(MODES)}")


def prepare_for(mode: str, model: str | MemoryModel, options: CompileOptions) -> None:
    """Do what a mode wants before the model is compiled. Raises StrataError."""
    check_mode(mode)
    if mode != AUTOTUNE:
        return
    from compiler.tuning.files import AUTO, OFF, named_file
    from compiler.tuning.options import TuneOptions
    from compiler.tuning.tuner import Tuner

    named = named_file(options)
    if named == OFF:
        raise StrataError(f"mode '{AUTOTUNE}' tunes a model whose tuned schedules are not used",
                          [Problem("tuned schedules are off", hint="compile without tuned='off'")])
    output = None if named == AUTO else Path(named)
    Tuner([model], options, TuneOptions(mode=AUTOTUNE, output=output)).run()
