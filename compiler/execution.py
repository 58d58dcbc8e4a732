"""What the commands that execute models share: inputs from files or at random, and running."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from compiler.arrays import contiguous, is_foreign
from compiler.diagnostics import Problem, StrataError
from compiler.signature import DEFAULT_SIZE, Signature
from dialects.symbol import Symbol

if TYPE_CHECKING:
    from compiler.api import Executable
    from dialects.types import Array


def input_arrays(arguments: argparse.Namespace, signature: Signature) -> list[Array]:
    """The inputs that `--input`, `--inputs`, `--seed`, `--dim` and `--shape` ask for, in order.

    What no file gives is random. Raises StrataError where files or sizes do not fit the model.
    """
    named = {name: _restored(name, array, signature)
             for name, array in _given_arrays(arguments).items()}
    sizes = known_sizes(signature, named) | _named_sizes(arguments.dim)
    random = signature.random(arguments.seed, sizes, dict(arguments.shape))
    missing = [name for name in signature.input_names if name not in named]
    _tell_guesses(signature, missing, sizes)
    return signature.arrange({**{name: random[name] for name in missing}, **named})


def _given_arrays(arguments: argparse.Namespace) -> dict[str, Array]:
    """The arrays of files."""
    if arguments.inputs is None and not arguments.input:
        return {}
    from compiler.array_files import read_npy, read_npz

    named = {} if arguments.inputs is None else read_npz(arguments.inputs)
    return named | {name: read_npy(path) for name, path in arguments.input}


def run_loaded(exe: Executable, inputs: Sequence[Array]) -> list[Array]:
    """Run; inputs that the model itself refuses are the user's fault. Raises StrataError."""
    try:
        return exe.run(inputs)
    except ValueError as error:
        raise StrataError("the model cannot run on these inputs", [Problem(
            str(error), hint="--dim NAME=N sets sizes, --inputs FILE.npz gives arrays")]) from error
    except MemoryError as error:
        raise StrataError("the memory does not suffice for a run", [Problem(
            str(error) or "out of memory", hint="--dim NAME=N sets sizes")]) from error


def tell_notes(notes: Sequence[str]) -> None:
    """What a target says of how a model runs."""
    for note in notes:
        print(f"note: {note}", file=sys.stderr)


def tell_precision_error(exe: Executable, inputs: Sequence[Array]) -> None:
    """What a precision less than f32 costs on these inputs."""
    precision = exe.options.precision
    if precision != "f32":
        tell_notes([f"--precision {precision}: outputs differ from f32 by at most "
                    f"{exe.precision_error(inputs):.1e} of their largest magnitude"])


def known_sizes(signature: Signature, named: Mapping[str, Array]) -> dict[Symbol, int]:
    """The sizes that plain symbols have in the arrays that are there."""
    sizes: dict[Symbol, int] = {}
    for name, type_ in zip(signature.input_names, signature.input_types, strict=True):
        if name in named and named[name].ndim == type_.rank:
            for expected, size in zip(type_.shape, named[name].shape, strict=True):
                if expected.as_symbol is not None:
                    sizes.setdefault(expected.as_symbol, size)
    return sizes


def _named_sizes(dims: Sequence[tuple[str, int]]) -> dict[Symbol, int]:
    """The sizes' values, where sizes are named as in the model."""
    return {Symbol.size(name): value for name, value in dims}


def _restored(name: str, array: Array, signature: Signature) -> Array:
    """NumPy's files lose the names of types that it lacks, and keep their bytes."""
    types = dict(zip(signature.input_names, signature.input_types, strict=True))
    type_ = types.get(name)
    if type_ is None or not is_foreign(type_.dtype):
        return contiguous(array)
    lost = (np.dtype(f"V{type_.dtype.itemsize}"), np.dtype(f"u{type_.dtype.itemsize}"))
    return contiguous(array.view(type_.dtype) if array.dtype in lost else array)


def _tell_guesses(
    signature: Signature, missing: Sequence[str], sizes: Mapping[Symbol, int]
) -> None:
    wanted = {s for name, type_ in zip(signature.input_names, signature.input_types, strict=True)
              if name in missing for e in type_.shape for s in e.symbols}
    guessed = [s.name for s in signature.unsized(sizes) if s in wanted]
    if guessed:
        print(f"note: sizes set to {DEFAULT_SIZE} for random inputs: {', '.join(guessed)}; "
              f"--dim {guessed[0]}=N sets another", file=sys.stderr)
