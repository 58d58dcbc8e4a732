"""Compiles a model again for sizes that break choices of the compiler (`variants.py`).

Decisions say what is different this time: sizes of inputs are fixed, as with `--dim`, or a choice
has another outcome. They follow from the errors of calls, one after the other.

Nothing here imports xDSL until a model is compiled.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from compiler.diagnostics import StrataError
from compiler.instrument import Instrument
from dialects.records import dataclass
from dialects.strata.assumptions import ChoiceError
from dialects.strata.binding import bind_sizes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from compiler.frontend import MemoryModel
    from compiler.io.signature import Signature
    from compiler.options import CompileOptions
    from compiler.parameters import Parameters
    from compiler.pipeline.state import State
    from dialects.strata.types import Array
    from dialects.symbolic.symbol import Symbol
    from targets.interface import Executable as Program

TRIALS = 64
"""The number of choices that one call may break."""
Found = TypeVar("Found")


@dataclass(frozen=True)
class Decisions:
    """What a needed program is compiled for: sizes that are fixed, and outcomes of choices."""

    dims: tuple[tuple[str, int], ...] = ()
    outcomes: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def after(self, broken: ChoiceError, fixable: Collection[Symbol]) -> Iterator[Decisions]:
        """The decisions to try next: first those under which both the outcome so far and the one
        that a run has met fit, then those for the latter alone.
        """
        fixed = broken.outcome.fixed
        if fixed is not None and fixed[0] in fixable and fixed[1] > 0:
            yield replace(self, dims=tuple(sorted({*self.dims, (fixed[0].name, fixed[1])})))
            return
        known, name = dict(self.outcomes), broken.outcome.name
        for names in dict.fromkeys([(*known.get(broken.site, ()), name), (name,)]):
            merged = {**known, broken.site: tuple(sorted({*names}))}
            yield replace(self, outcomes=tuple(sorted(merged.items())))

    def applied(self, options: CompileOptions) -> CompileOptions:
        """The options for a program of these decisions."""
        return replace(options, specialize=None, dims={**options.dims, **dict(self.dims)},
                       outcomes=dict(self.outcomes))

    def facts(self) -> list[Any]:
        """All fields in a form that JSON can represent."""
        return [self.dims, self.outcomes]

    @staticmethod
    def read(facts: Sequence[Any]) -> Decisions:
        """The inverse of `facts`."""
        dims, outcomes = facts
        return Decisions(tuple((str(name), int(value)) for name, value in dims),
                         tuple((str(site), tuple(map(str, names))) for site, names in outcomes))

    def __str__(self) -> str:
        sizes = [f"{name} = {value}" for name, value in self.dims]
        return ", ".join([*sizes, *(f"{'/'.join(names)} at {site}" for site, names in
                                    self.outcomes)])


class Fits(Instrument):
    """Ends a compilation as soon as the model has been read, if it needs other choices for some
    sizes. `inputs`: arrays of these sizes; none if all sizes are fixed."""

    wants_passes = False

    def __init__(self, inputs: Sequence[Array]):
        self.inputs = inputs

    def start(self, state: State) -> None:
        from compiler.io.signature import signature_of
        from dialects.strata.func import FuncOp
        from dialects.strata.sizes import assumptions_of
        from targets.reference.interpret import model_function

        signature, function = signature_of(state.module), model_function(state.module)
        types, names = signature.input_types, signature.input_names
        sizes = bind_sizes(types, self.inputs, names) if self.inputs else {}
        for assumption in assumptions_of(function) if isinstance(function, FuncOp) else ():
            if assumption.choice is not None and assumption.symbols <= sizes.keys():
                assumption.check(sizes)


class Made(NamedTuple):
    """A compiled model, without programs for other sizes.

    `chooses`: whether it contains choices that sizes of a call can break. `files`: those from
    which the model was read, with their times; empty if unknown. `parameters`: those of the
    program, if it has any. `weights`: a hash of the weights, if they are divided among ranks.
    """

    signature: Signature
    loaded: Program
    structures: Mapping[str, str]
    chooses: bool
    files: Mapping[str, Sequence[int]]
    parameters: Parameters | None = None
    weights: str = ""


@dataclass(frozen=True)
class Recompiler:
    """Compiles a model again. `make` does so, with instruments. `files`: those from which it was
    read, with their times. `refused`: why it never can.
    """

    model: str | MemoryModel
    options: CompileOptions
    signature: Signature
    structures: Mapping[str, str]
    make: Callable[[str | MemoryModel, CompileOptions, Sequence[Instrument]], Made]
    files: Mapping[str, Sequence[int]] = field(default_factory=dict[str, "Sequence[int]"])
    refused: str = ""

    @property
    def refusal(self) -> str:
        """Why the model cannot be compiled again; empty if it can."""
        if self.refused or not isinstance(self.model, str):
            return self.refused
        if not self.files:
            return f"{self.model} cannot be read again"
        changed = [path for path, times in self.files.items() if times_of(path) != times]
        return f"{changed[0]} has changed since the model was compiled" if changed else ""

    @property
    def fixable(self) -> set[Symbol]:
        """The sizes that options can fix."""
        return fixable_sizes(self.signature, self.structures)

    def compile(self, decisions: Decisions, inputs: Sequence[Array]) -> Program:
        """The program for these decisions and the sizes of the inputs.

        Raises ChoiceError if they need more decisions, StrataError, and CompilerFault.
        """
        found = self.make(self.model, decisions.applied(self.options), [Fits(inputs)])
        if found.structures != self.structures:
            raise StrataError("its inputs or outputs would have another structure")
        return found.loaded

    def compile_fixed(
        self, sizes: Mapping[str, int], instruments: Sequence[Instrument]
    ) -> Program:
        """The program with all sizes fixed. Raises StrataError and CompilerFault."""
        options = Decisions(tuple(sorted(sizes.items()))).applied(self.options)
        return self.make(self.model, options, instruments).loaded


def fixable_sizes(signature: Signature, structures: Mapping[str, str]) -> set[Symbol]:
    """The sizes of a model that options can fix: dims of inputs that are tensors."""
    types = zip(signature.input_names, signature.input_types, strict=True)
    return {s for name, type_ in types if name.rpartition(".")[0] not in structures
            for size in type_.shape for s in size.symbols if size.as_symbol is s}


def times_of(path: str) -> Sequence[int]:
    """What tells whether a file has changed; empty for one that is missing."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def fitting(
    attempt: Callable[[CompileOptions], Found], options: CompileOptions,
    fixable: Callable[[], Collection[Symbol]],
) -> Found:
    """The result of an attempt, repeated with other options while sizes break choices.

    `fixable`: the sizes that options can fix, known after an attempt. Raises ChoiceError if no
    options help.
    """
    decisions, tried = Decisions(), set[Decisions]()
    while True:
        tried.add(decisions)
        try:
            return attempt(decisions.applied(options))
        except ChoiceError as broken:
            following = [d for d in decisions.after(broken, fixable()) if d not in tried]
            if not following or len(tried) > TRIALS:
                raise
            decisions = following[0]
