"""Code shared by commands that execute models: inputs, running, and warnings."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from compiler.cli.given_inputs import Filled, Literal, check_once, parse_value
from compiler.cli.standard_streams import check_one_reader, is_standard
from compiler.diagnostics import Problem, StrataError
from compiler.instrument import Instrument
from compiler.io.array_files import read_npy, read_npz
from compiler.io.arrays import contiguous, is_foreign
from compiler.io.printing import show
from compiler.io.signature import Signature, signature_of
from compiler.ranks import speaks
from dialects.strata.assumptions import DataError
from dialects.symbolic.symbol import Symbol
from targets.interface import RankError

if TYPE_CHECKING:
    from compiler.executable import Executable
    from compiler.pipeline.state import State
    from dialects.strata.types import Array


class WantedInputs(Instrument):
    """The inputs specified by `--input`, `--inputs`, `--seed`, `--dim` and `--shape`.

    Values are parsed and files are read immediately. As an instrument, it creates the arrays as
    soon as a model has been read, before the first pass, so that inputs that do not fit are
    reported before anything is compiled.
    """

    wants_passes = False

    def __init__(self, arguments: argparse.Namespace):
        """Raises StrataError for unreadable files and invalid values."""
        check_once("--input", [name for name, _ in arguments.input])
        values = {name: parse_value(name, text) for name, text in arguments.input}
        check_one_reader(_readers(arguments, values))
        self.given: dict[str, Array | Literal | Filled] = {}
        if arguments.inputs is not None:
            self.given |= read_npz(arguments.inputs)
        self.given |= {name: read_npy(value) if isinstance(value, Path) else value
                       for name, value in values.items()}
        self.seed, self.shapes = arguments.seed, dict(arguments.shape)
        self.dims: Sequence[tuple[str, int]] = arguments.dim
        self._made: tuple[Signature, list[Array]] | None = None

    def start(self, state: State) -> None:
        self.arrays(signature_of(state.module))

    def arrays(self, signature: Signature) -> list[Array]:
        """The inputs in order; those not given are random.

        Raises StrataError if files or sizes do not fit the model.
        """
        if self._made is None or self._made[0] != signature:
            self._made = signature, self._arrays(signature)
        return self._made[1]

    def _arrays(self, signature: Signature) -> list[Array]:
        unknown = signature.unknown_inputs(self.given)
        if unknown:
            raise StrataError("the inputs do not fit the model", [*unknown, Problem(
                f"it takes {signature.expected()}")])
        named = self._written(signature)
        sizes = known_sizes(signature, named) | named_sizes(self.dims)
        open_ = [n for n in signature.input_names if n not in named and not self._is_sized(n)]
        _report_guesses(signature, open_, sizes)
        filled = {name: self._filled(name, signature, sizes)
                  for name in signature.input_names if name not in named}
        return signature.arrange({**filled, **named})

    def _written(self, signature: Signature) -> dict[str, Array]:
        """The arrays from files and literals, and those filled with explicit sizes.

        They determine the sizes of the others.
        """
        types = dict(zip(signature.input_names, signature.input_types, strict=True))
        found: dict[str, Array] = {}
        for name, value in self.given.items():
            if isinstance(value, Literal):
                found[name] = value.array(name, types[name])
            elif not isinstance(value, Filled):
                found[name] = _restored(name, value, signature)
            elif value.sizes is not None:
                found[name] = self._filled(name, signature, {})
        return found

    def _is_sized(self, name: str) -> bool:
        sizes = self.shapes.get(name)
        return sizes is not None and all(isinstance(size, int) for size in sizes)

    def _filled(self, name: str, signature: Signature, sizes: Mapping[Symbol, int]) -> Array:
        value = self.given.get(name, Filled("random"))
        assert isinstance(value, Filled)
        type_ = signature.input_types[signature.input_names.index(name)]
        own = signature.shape_of(name, sizes, self.shapes)
        return value.array(name, type_, own,
                           lambda shape: signature.random_input(name, self.seed, shape))


def _readers(arguments: argparse.Namespace, values: Mapping[str, object]) -> list[str]:
    """The names of everything that is read from standard input."""
    model = ["the model"] if is_standard(arguments.model) else []
    inputs = ["--inputs"] if is_standard(arguments.inputs) else []
    return model + inputs + [f"--input {n}" for n, value in values.items() if is_standard(value)]


def run_loaded(exe: Executable, inputs: Sequence[Array]) -> list[Array]:
    """Run the model. Raises StrataError for inputs that it refuses."""
    try:
        return exe.run(inputs)
    except ValueError as error:
        raise StrataError("the model cannot run on these inputs", [Problem(
            str(error), hint="--dim NAME=N sets sizes, --inputs FILE.npz gives arrays")]) from error
    except DataError as error:
        raise StrataError("the model cannot run on these inputs", [Problem(
            str(error), hint="--inputs FILE.npz gives arrays")]) from error
    except RankError as error:
        raise StrataError("the ranks did not finish a run together", [Problem(str(error))]
                          ) from error
    except MemoryError as error:
        raise StrataError("the memory does not suffice for a run", [Problem(
            str(error) or "out of memory", hint="--dim NAME=N sets sizes")]) from error


def tell_notes(notes: Sequence[str]) -> None:
    """Print a target's notes about how a model runs."""
    for note in notes if speaks() else ():
        show(f"note: {note}", file=sys.stderr)


def tell_oddities(exe: Executable, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    """Warn about unexpected outputs (NaN, infinite, empty) that the inputs do not explain."""
    from compiler.measuring.oddities import oddities

    tell_warnings(oddities(exe.output_names, outputs, inputs, exe.model_constants))


def tell_warnings(texts: Sequence[str]) -> None:
    for text in texts if speaks() else ():
        show(f"warning: {text}", file=sys.stderr)


def tell_precision_error(exe: Executable, inputs: Sequence[Array]) -> None:
    """Print the error of a precision lower than f32 on these inputs."""
    precision = exe.options.precision
    if precision != "f32":
        tell_notes([f"--precision {precision}: outputs differ from f32 by at most "
                    f"{exe.precision_error(inputs):.1e} of their largest magnitude"])


def known_sizes(signature: Signature, named: Mapping[str, Array]) -> dict[Symbol, int]:
    """The sizes of plain symbols, taken from the given arrays."""
    sizes: dict[Symbol, int] = {}
    for name, type_ in zip(signature.input_names, signature.input_types, strict=True):
        if name in named and named[name].ndim == type_.rank:
            for expected, size in zip(type_.shape, named[name].shape, strict=True):
                if expected.as_symbol is not None:
                    sizes.setdefault(expected.as_symbol, size)
    return sizes


def named_sizes(dims: Sequence[tuple[str, int]]) -> dict[Symbol, int]:
    """Sizes by symbol, from pairs of the model's own name and a value."""
    return {Symbol.size(name): value for name, value in dims}


def _restored(name: str, array: Array, signature: Signature) -> Array:
    """Restore a dtype that NumPy lacks, of which its files keep only the bytes."""
    types = dict(zip(signature.input_names, signature.input_types, strict=True))
    type_ = types.get(name)
    if type_ is None or not is_foreign(type_.dtype):
        return contiguous(array)
    lost = (np.dtype(f"V{type_.dtype.itemsize}"), np.dtype(f"u{type_.dtype.itemsize}"))
    return contiguous(array.view(type_.dtype) if array.dtype in lost else array)


def _report_guesses(
    signature: Signature, missing: Sequence[str], sizes: Mapping[Symbol, int]
) -> None:
    wanted = {s for name, type_ in zip(signature.input_names, signature.input_types, strict=True)
              if name in missing for e in type_.shape for s in e.symbols}
    guessed = [s for s in signature.unsized(sizes) if s in wanted]
    if guessed:
        tell_notes([f"sizes set for random inputs: {signature.told(guessed)}; "
                    f"--dim {guessed[0].name}=N sets another"])
