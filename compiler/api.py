"""The Python interface: `compile` makes a callable of a model, and `load` reads a saved one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from compiler.agreement import check_agreement
from compiler.diagnostics import StrataError
from compiler.executable import Executable, compile_with
from compiler.modes import check_mode
from compiler.modules import exported
from compiler.option_values import (
    MOST_THREADS,
    arrays_of,
    file_of,
    names_of,
    numbers_of,
    path_of,
    paths_of,
    setting_of,
    shown,
    sizes_of,
    threads_of,
)
from compiler.options import CompileOptions, Specialize
from compiler.ranks import own_rank

if TYPE_CHECKING:
    from compiler.frontend import MemoryModel
    from dialects.strata.types import Array


def compile(
    model: str | Path | MemoryModel | object, *, target: str = "cpu", threads: int | None = None,
    dump_dir: str | Path | None = None,
    shapes: Mapping[str, Sequence[int | str]] | None = None,
    dims: Mapping[str, int] | None = None, constants: Mapping[str, Array] | None = None,
    passes: str = "default", strategy: str = "whole-graph", with_groups: Sequence[str] = (),
    without_groups: Sequence[str] = (),
    plugins: Sequence[str | Path] = (), schedule: str | Path | None = None,
    weights: str | Path | None = None, features: str | None = None,
    cache: str | Path | None = "default", precision: str = "f32", exact: bool = False,
    denormals: str = "flush", check: bool | None = None, interpret: bool = False,
    specialize: Specialize | None = None,
    tuned: str | Path | None = "auto", mode: str = "default", library: str = "never",
    mesh: str = "", args: Sequence[object] | None = None,
    kwargs: Mapping[str, object] | None = None, dynamic_shapes: object = None,
) -> Executable:
    """Compile a model for a target.

    `model`: a file (`.onnx`, `.pt2`, a `.mlir` text of any level), `file.py:function`, or a model
    in memory: a MemoryModel, an `onnx.ModelProto`, a program of `torch.export`, or an `nn.Module`,
    an `fx.GraphModule` or a function of PyTorch with example inputs `args` and `kwargs`, which is
    exported in the mode (training or not) in which it is; `dynamic_shapes`: as for
    `torch.export.export`. `threads`: None for all available. `dump_dir`: write the IR after every
    level and pass there. `shapes`: input name -> sizes, integers or names; `dims`: size name ->
    value; `constants`: input name -> contents, which become part of the model. `strategy`:
    "per-op", "block" or "whole-graph"; `with_groups`, `without_groups`: groups of passes to add and
    to leave out. `passes`, `plugins`, `schedule`, `weights`, `features`, `precision`, `exact`,
    `denormals`: as on the command line. `check`: True ends a run with an error at the first memory
    access out of bounds (AccessError), run-time index out of range (IndexRangeError) or integer of
    a PyTorch model divided by zero (DivisionByZeroError). None checks only indices and divisors,
    on the CPU. False checks nothing. `cache`: a folder for compiled code, "default",
    or "off" (also None). `interpret`: run CUDA kernels in Triton's interpreter. `specialize`:
    compile the model again for the sizes with which it is called most often
    (`compiler.Specialize(after=8, most=4)`); the imported model stays in memory for this. `tuned`:
    which of the schedules found by `tune` to use: "auto", "off" (also None), or a file. `mode`:
    "default", "reduce-overhead" (the same), or "max-autotune", which tunes the model first.
    `library`: "auto" or "never", as on the command line. `mesh`: divide the model among the
    processes of torch.distributed, such as "dp=2,tp=2" for data and tensor parallelism; each must
    compile it. Inputs and outputs are whole on all.

    Raises StrataError for an error in the model or the options, and CompilerFault, with a
    reproducer, for a fault of the compiler.
    """
    check_mode(mode)
    schedules = setting_of("tuned", tuned)
    options = options_of({
        "target": target, "threads": threads, "dump_dir": dump_dir, "shapes": shapes, "dims": dims,
        "constants": constants, "passes": passes, "strategy": strategy, "with_groups": with_groups,
        "without_groups": without_groups, "plugins": plugins, "schedule": schedule,
        "weights": weights, "features": features, "cache": cache, "precision": precision,
        "exact": exact, "denormals": denormals, "check": check, "interpret": interpret,
        "specialize": specialize, "tuned": schedules if mode == "default" else "off",
        "library": library, "mesh": mesh})
    source = model_of_argument(exported(model, args, kwargs, dynamic_shapes))
    if mode != "default":
        from compiler.modes import prepared

        options = prepared(mode, source, options, schedules)
    made = compile_with(source, options)
    check_agreement(made)
    return made


def options_of(given: Mapping[str, Any]) -> CompileOptions:
    """The options of a compilation that arguments of `compile`, by their names, ask for.

    Raises StrataError for wrong values.
    """
    read: dict[str, Any] = {name: _READERS[name](value) if name in _READERS else value
                            for name, value in given.items()}
    return CompileOptions(**read, rank=own_rank(given.get("mesh", "")))


def prepared_options(model: str | MemoryModel, given: Mapping[str, Any]) -> CompileOptions:
    """The same for arguments with a `mode`, for which the model may be tuned first."""
    rest = {name: value for name, value in given.items() if name != "mode"}
    mode = given.get("mode", "default")
    check_mode(mode)
    if mode == "default":
        return options_of(rest)
    from compiler.modes import prepared

    return prepared(mode, model, options_of({**rest, "tuned": "off"}),
                    setting_of("tuned", rest.get("tuned", "auto")))


def _given(values: object) -> object:
    """An argument by names; none of them for None. An empty text or list is no mapping."""
    return {} if values is None else values


_READERS: Mapping[str, Callable[[Any], object]] = {
    "dump_dir": partial(path_of, "dump_dir"), "shapes": lambda value: sizes_of(_given(value)),
    "dims": lambda value: numbers_of("dims", _given(value)),
    "constants": lambda value: arrays_of("constants", _given(value)),
    "with_groups": lambda value: tuple(names_of("with_groups", value)),
    "without_groups": lambda value: tuple(names_of("without_groups", value)),
    "plugins": partial(paths_of, "plugins"), "schedule": partial(path_of, "schedule"),
    "weights": partial(path_of, "weights"), "cache": partial(setting_of, "cache"),
    "tuned": partial(setting_of, "tuned")}
"""Argument of `compile` -> the option that it stands for, of those that have several spellings."""


def load(path: str | Path, *, threads: int | None = None) -> Executable:
    """Load a program that `Executable.save` wrote, or a shared library that the command `compile`
    wrote, in milliseconds, without compiling.

    `threads`: as for `compile`. The program has no levels to show, because its model is not in
    the file.

    The file holds machine code. Whoever wrote it can do with this process what they like, as with
    a program that you start, so never load one from strangers. The file must belong to this user,
    and others must not be able to write to it. Its checksums find damage only: whoever changes the
    code can change them too. Send strangers the model, which `compile` treats as untrusted.

    Raises StrataError for a file that is missing, damaged, no saved program or not private, and
    for one that was made by another version of Strata, for another system, or for instructions
    that this processor lacks.
    """
    from compiler.programs.loaded_library import is_library, load_library
    from compiler.programs.saved import load_program

    file = file_of("path", path)
    count = threads_of(threads)
    if threads is not None and count is None:
        raise StrataError(f"threads is {shown(threads)}; it must be a number from 1 to "
                          f"{MOST_THREADS}, or None for all")
    program = load_library(file, count) if is_library(file) else load_program(file, count)
    return Executable(file, program.signature, program.loaded, program.options,
                      program.structures, is_saved=True)


def model_of_argument(model: object) -> str | MemoryModel:
    """The model of an argument of `compile`. Raises StrataError for what is none."""
    if isinstance(model, str | os.PathLike):
        return file_of("model", cast("str | os.PathLike[str]", model))
    from compiler.frontend import model_of

    return model_of(model)
