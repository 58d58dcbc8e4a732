"""Compilation modes, with the names of `torch.compile`.

`default` and `reduce-overhead` are the same here: on a GPU, a model is one CUDA graph anyway.
`max-autotune` first tunes the model's kernels, which takes minutes; kernels that have been tuned
before are not tuned again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from compiler.diagnostics import Problem, StrataError
from compiler.option_values import shown
from compiler.options import AUTO, OFF
from compiler.suggestions import guess

if TYPE_CHECKING:
    from compiler.frontend import MemoryModel
    from compiler.options import CompileOptions

AUTOTUNE = "max-autotune"
MODES = ("default", "reduce-overhead", AUTOTUNE)


def check_mode(mode: object, others: Iterable[str] = ()) -> None:
    """Raises StrataError, with the nearest mode, for an unknown one. `others`: more that there are.
    """
    known = ", ".join(there := (*MODES, *others))
    if not isinstance(mode, str):
        raise StrataError(f"mode is {shown(mode)}; it must be one of: {known}")
    if mode not in there:
        raise StrataError(f"no mode {shown(mode)}; {guess(mode, there)}there are: {known}")


def prepared(
    mode: str, model: str | MemoryModel, options: CompileOptions, tuned: str
) -> CompileOptions:
    """Prepare a mode before a model is compiled, and return the options to compile it with.

    `options` must not use tuned schedules yet, since `tuned` may be the file written here. Raises
    StrataError.
    """
    check_mode(mode)
    if mode == AUTOTUNE:
        _tune(model, options, tuned)
    return replace(options, tuned=tuned)


def _tune(model: str | MemoryModel, options: CompileOptions, tuned: str) -> None:
    from compiler.tuning.files import named_file
    from compiler.tuning.options import TuneOptions
    from compiler.tuning.tuner import Tuner

    named = named_file(tuned)
    if named == OFF:
        raise StrataError(f"mode '{AUTOTUNE}' tunes a model whose tuned schedules are not used",
                          [Problem("tuned schedules are off", hint="compile without tuned='off'")])
    output = None if named == AUTO else Path(named)
    Tuner([model], options, TuneOptions(mode=AUTOTUNE, output=output)).run()
