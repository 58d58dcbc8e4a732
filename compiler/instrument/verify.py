"""Executes the module after every pass that changed it, and compares the outputs.

The reference is the imported module, evaluated with the NumPy semantics of its operations. Every
later form must agree with it element by element, up to differences explained by rounding in
another order (`explained.py`). For a model that makes discrete decisions on floats, the error is
relative to an output's largest magnitude. If that error exceeds the tolerance, the effect of
rounding alone on these inputs is measured, and a small multiple of it is allowed. An output that
is zero but for rounding (`vanishing.py`) is compared with zero.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf, isfinite
from typing import TYPE_CHECKING

from compiler.diagnostics import Problem, StrataError, some_of
from compiler.instrument import Instrument
from compiler.instrument.explained import Explained, explain
from compiler.instrument.rounding import Rounding
from compiler.instrument.timing import count_operations
from compiler.instrument.vanishing import is_within, vanishing
from compiler.io.signature import Signature, signature_of
from compiler.io.structures import structures_of
from compiler.measuring.comparison import error_of, first_beyond
from compiler.measuring.oddities import constants_of, incomparable, oddities
from dialects.strata.assumptions import AccessError, ChoiceError, DataError, SizeError
from dialects.strata.binding import EvaluationError
from targets.reference.interpret import interpret, is_tensor_level

if TYPE_CHECKING:
    from compiler.pipeline.state import State
    from compiler.pipeline.steps import Step
    from dialects.strata.types import Array

_FAILURES = (ValueError, ArithmeticError, LookupError, EvaluationError, AccessError)

GRANTED = 3
"""The factor by which an error may exceed the effect of rounding."""
NOTEWORTHY = 0.1
"""The error of an output of which it is said if the output is zero but for rounding."""


@dataclass(frozen=True)
class Check:
    """One execution. `wrong`: why its results are wrong, or an empty string."""

    made_by: str
    level: str
    operations: int
    error: float
    seconds: float
    wrong: str = ""
    note: str = ""


@dataclass
class Verify(Instrument):
    """`make_inputs` creates the inputs for a signature; `tell_row` is called with every row.

    `levels_only`: execute at the end of each level instead of after each pass.
    """

    make_inputs: Callable[[Signature], Sequence[Array]]
    tell_row: Callable[[Check], None]
    tolerance: float | None = None
    levels_only: bool = False
    rows: list[Check] = field(default_factory=list[Check])
    before_text: str = ""
    """The module before the first pass that was found wrong."""
    wants_changes = True

    def start(self, state: State) -> None:
        self.signature = signature_of(state.module)
        self.structures = structures_of(state.module)
        self.inputs = self.make_inputs(self.signature)
        self.skipped = False
        started = time.perf_counter()
        try:
            self.expected = self._interpret(state)
        except ChoiceError:
            raise  # other code is needed, which is verified instead
        except (EvaluationError, DataError, SizeError) as error:
            raise StrataError("the model cannot run on these inputs", [Problem(
                str(error), hint="--dim NAME=N sets sizes, --inputs FILE.npz gives arrays"
            )]) from error
        self.original = state.module.clone(), state.context.weights.copy()
        self.imported, self.computed = self.original, self.expected
        self._add(Check(f"{state.position[-1]}", state.level, count_operations(state.module), 0.0,
                        time.perf_counter() - started))

    def before(self, step: Step, state: State) -> None:
        if self.levels_only and self.skipped and step.level != state.level:
            self._check(state)
        if self.first_wrong is None and not (self.levels_only and self.skipped):
            self.before_text = state.text

    def after(self, step: Step, state: State, seconds: float, changed: bool) -> None:
        if changed and step.rounds:
            self.accept(state)
        elif self.levels_only:
            self.skipped |= changed
        elif changed:
            self._check(state)

    def finish(self, state: State) -> None:
        if self.levels_only and self.skipped:
            self._check(state)

    @property
    def oddities(self) -> list[str]:
        """Unexpected values in the imported model's outputs that no input explains."""
        module, weights = self.imported
        return oddities(self.signature.output_names, self.computed, self.inputs,
                        lambda: constants_of(module, weights))

    @property
    def incomparable(self) -> list[str]:
        """The outputs that cannot be compared."""
        return incomparable(self.signature.output_names, self.expected)

    @property
    def named_inputs(self) -> dict[str, Array]:
        return dict(zip(self.signature.input_names, self.inputs, strict=True))

    @property
    def first_wrong(self) -> Check | None:
        return next((row for row in self.rows if row.wrong), None)

    def check_outputs(
        self, made_by: str, run: Callable[[Sequence[Array]], Sequence[Array]]
    ) -> None:
        """Compare the results of another execution, such as the target's code."""
        self._compare(made_by, "native", 0, lambda: run(self.inputs))

    @cached_property
    def rounding(self) -> Rounding | None:
        """The effect of rounding on the outputs of the imported model; None if unknown."""
        module, weights = self.original
        if not is_tensor_level(module):
            return None
        return Rounding(module, weights, self.inputs, self.expected)

    # ------------------------------------------------------------------ one execution
    def _check(self, state: State) -> None:
        self.skipped = False
        self._compare(state.after[-1], state.level, count_operations(state.module),
                      lambda: self._interpret(state))

    def accept(self, state: State) -> None:
        """Report the error of a pass that rounds on purpose, and use its results as the reference.
        """
        self.skipped = False
        started = time.perf_counter()
        outputs = self._interpret(state)
        error = max(map(error_of, outputs, self.expected), default=0.0)
        self.expected = outputs
        self.original = state.module.clone(), state.context.weights.copy()
        self.__dict__.pop("rounding", None)
        self.__dict__.pop("explained", None)
        self.__dict__.pop("vanishing", None)
        self._add(Check(state.after[-1], state.level, count_operations(state.module), error,
                        time.perf_counter() - started,
                        note="rounds, as --precision allows; compared with this from here on"))

    def _compare(
        self, made_by: str, level: str, operations: int, run: Callable[[], Sequence[Array]]
    ) -> None:
        started = time.perf_counter()
        try:
            outputs = run()
        except _FAILURES as failure:
            error, wrong, note = inf, f"cannot be executed: {failure}", ""
        else:
            error, wrong, note = self._judge(outputs)
        seconds = time.perf_counter() - started
        self._add(Check(made_by, level, operations, error, seconds, wrong, note))

    def _judge(self, outputs: Sequence[Array]) -> tuple[float, str, str]:
        """The error, and what is wrong or noteworthy about it."""
        names = self.signature.output_names
        errors = [error_of(a, b) for a, b in zip(outputs, self.expected, strict=True)]
        output, note = self._first_wrong_output(errors, outputs), ""
        looks_wrong = output is not None or max(errors, default=0.0) > NOTEWORTHY
        if looks_wrong and (zero := self._zeros(outputs)):
            errors = [0.0 if k in zero else error for k, error in enumerate(errors)]
            output = self._first_wrong_output(errors, outputs, zero)
            note = f"{some_of([names[k] for k in zero])}: zero but for rounding"
        wrong = "" if output is None else f"output '{names[output]}' differs"
        return max(errors, default=0.0), wrong, note

    def _zeros(self, outputs: Sequence[Array]) -> list[int]:
        """The outputs that are zero but for rounding, here and in f64."""
        return [] if self.tolerance is not None else [
            k for k, limit in self.vanishing.items() if is_within(outputs[k], limit)]

    @cached_property
    def vanishing(self) -> Mapping[int, Array]:
        """The outputs that are zero in f64, but for rounding -> what they may be."""
        return vanishing(*self.original, self.inputs, self.expected)

    @cached_property
    def explained(self) -> Explained | None:
        """The deviation of each element that rounding explains; None if unknown."""
        return None if self.rounding is None else explain(self.rounding)

    def _first_wrong_output(
        self, errors: Sequence[float], outputs: Sequence[Array], right: Collection[int] = ()
    ) -> int | None:
        """The first output whose error is explained neither by its type nor by rounding; `right`
        have none.
        """
        if self.tolerance is None and self.explained is not None:
            return self.explained.first_beyond(outputs, right)
        output = first_beyond(errors, self.expected, self.tolerance)
        known = self.tolerance is None and isfinite(max(errors, default=0.0))
        if output is None or not known or self.rounding is None:
            return output
        for effect in self.rounding.effects():
            output = first_beyond(errors, self.expected, noise=GRANTED * effect)
            if output is None:
                break
        return output

    def _interpret(self, state: State) -> list[Array]:
        return interpret(state.module, state.context.weights, self.inputs)

    def _add(self, row: Check) -> None:
        self.rows.append(row)
        self.tell_row(row)
