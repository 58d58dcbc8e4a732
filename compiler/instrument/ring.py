"""Executes the module after every pass in a ring of residues, and compares the outputs bit by bit.

In the ring (`dialects/semantics/ring.py`, docs/ring.md) sums do not round, so a pass that moves,
splits, tiles or reorders what it likes leaves every bit as it was, and one wrong element among
millions shows. A pass whose rewrites hold for real numbers only (`preserved.py`) is not judged if
bits change; what comes after it is compared with its results.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from compiler.diagnostics import Problem, StrataError
from compiler.instrument import Instrument
from compiler.instrument.preserved import blur_of
from compiler.instrument.ring_code import fault_of_code
from compiler.instrument.ring_weights import RingWeights
from compiler.instrument.timing import count_operations
from compiler.instrument.values import FAILURES, Program, first_change
from compiler.instrument.verify import Check
from compiler.io.signature import Signature, signature_of
from compiler.io.structures import structures_of
from dialects.semantics.ring import Ring, RingError
from dialects.strata.assumptions import ChoiceError, DataError, SizeError
from dialects.strata.binding import EvaluationError
from dialects.strata.types import element_of, is_float
from targets.interface import TargetError
from targets.reference.interpret import interpret

if TYPE_CHECKING:
    from collections.abc import Collection

    from xdsl.dialects.builtin import ModuleOp

    from compiler.pipeline.state import State
    from compiler.pipeline.steps import Step
    from dialects.strata.types import Array
    from targets.parts import Running

BLURRED = "bits differ: "
MANTISSAS = {"float64": 24, "float32": 24, "float16": 11, "bfloat16": 8}
"""The largest mantissa that is used of each type, in bits."""
PRECISIONS = {"f32": 24, "tf32": 11, "fp16": 11, "bf16": 8}


@dataclass
class RingVerify(Instrument):
    """`make_inputs` creates the inputs for a signature; floats among them become random residues,
    unless they are `given`. `tell_row` is called with every row. `bits`: of the narrowest type that
    passes may use. `levels_only`: execute at the end of each level, and before and after passes
    that may change bits for a reason, instead of after each pass.
    """

    make_inputs: Callable[[Signature], Sequence[Array]]
    tell_row: Callable[[Check], None]
    given: Collection[str] = ()
    seed: int = 0
    bits: int = 24
    levels_only: bool = False
    rows: list[Check] = field(default_factory=list[Check])
    before_text: str = ""
    skipped: Step | None = None
    """The last pass that changed the module, if what it left was not executed."""
    wants_changes = True

    def start(self, state: State) -> None:
        self.skipped = None
        self.signature, self.structures = signature_of(state.module), structures_of(state.module)
        self.names, self.outputs = self.signature.input_names, self.signature.output_names
        self.ring = Ring(min(mantissa_of(state.module), self.bits), self.seed)
        self.weights, state.context.weights.history = RingWeights(self.ring), {}
        arrays, started = self.make_inputs(self.signature), time.perf_counter()
        try:
            self._begin(state, arrays)
        except ChoiceError:
            raise  # other code is needed, which is verified instead
        except (EvaluationError, DataError, SizeError) as error:
            raise StrataError("the model cannot run in the ring", [Problem(
                str(error), hint="--dim NAME=N sets sizes, --inputs FILE.npz gives arrays"
            )]) from error
        self._keep(state)
        self._add(Check(state.position[-1], state.level, count_operations(state.module), 0.0,
                        time.perf_counter() - started))

    def before(self, step: Step, state: State) -> None:
        self.blurs = self.levels_only and blur_of(
            step.name, {op.name for op in state.module.walk()}) is not None
        if self.blurs or step.level != state.level:
            self._check_skipped(state)
        if self.first_wrong is None and self.skipped is None:
            self.before_text = state.text

    def after(self, step: Step, state: State, seconds: float, changed: bool) -> None:
        if not changed or self.first_wrong is not None:
            return
        self.skipped = step
        if self.blurs or not self.levels_only:
            self._check_skipped(state)

    def finish(self, state: State) -> None:
        self._check_skipped(state)

    def check_code(self, state: State, running: Running, target: str) -> None:
        """Execute the target's code, if it has any in the ring, and compare it with the blocks."""
        if self.first_wrong is not None:
            return
        started, wrong, note = time.perf_counter(), "", ""
        try:
            weights = self.weights.of(state.module, state.context.weights)
            found = fault_of_code(state.module, weights, running, self.ring, self.inputs,
                                  self.expected)
        except (TargetError, RingError) as error:
            found, note = "", f"not executed: {error}"
        if found is None:
            return
        if found:
            wrong = f"output bits differ: {found}"
        self._add(Check(target, "code", 0, inf if wrong else 0.0, time.perf_counter() - started,
                        wrong, note))

    @property
    def first_wrong(self) -> Check | None:
        return next((row for row in self.rows if row.wrong), None)

    @property
    def named_inputs(self) -> dict[str, Array]:
        return {n: np.asarray(a) for n, a in zip(self.names, self.inputs, strict=True)}

    @property
    def blurred(self) -> list[str]:
        """The passes after which bits differ for a reason."""
        return [row.made_by for row in self.rows if row.note.startswith(BLURRED)]

    # ------------------------------------------------------------------ one execution
    def _begin(self, state: State, arrays: Sequence[Array]) -> None:
        """Compute what the model means. Floats that become indices must be small whole numbers."""
        self.inputs = self._residues(arrays)
        try:
            self.expected = self._interpret(state)
        except DataError:
            self.inputs = [self.ring.wrap(np.abs(np.rint(a)) if a.dtype.kind == "f" else a)
                           for a in arrays]
            self.expected = self._interpret(state)

    def _keep(self, state: State) -> None:
        self.last = self._program(state)
        self.operations = {op.name for op in state.module.walk()}

    def _program(self, state: State) -> Program:
        weights = self.weights.of(state.module, state.context.weights)
        return Program(state.module.clone(), weights.copy(), self.ring)

    def _check_skipped(self, state: State) -> None:
        """Execute what the last pass left that changed the module, unless that was done."""
        step, self.skipped = self.skipped, None
        if step is not None and self.first_wrong is None:
            self._check(step, state)
            self._keep(state)

    def _check(self, step: Step, state: State) -> None:
        started, wrong, note = time.perf_counter(), "", ""
        try:
            outputs = self._interpret(state)
        except FAILURES as failure:
            outputs, wrong = self.expected, f"cannot be executed: {failure}"
        differing = [n for n, a, b in zip(self.outputs, outputs, self.expected, strict=True)
                     if not _same([a], [b])]
        blur = blur_of(step.name, self.operations)
        if differing and blur is not None:
            note = f"{BLURRED}{blur.reason}"
        elif differing:
            wrong = f"output '{differing[0]}' has other bits{self._where(state)}"
        self.expected = outputs
        self._add(Check(state.after[-1], state.level, count_operations(state.module),
                        inf if wrong else 0.0, time.perf_counter() - started, wrong, note))

    def _where(self, state: State) -> str:
        """The first kernel or operation that computes other bits."""
        found = first_change(self.last, self._program(state), self.inputs,
                             lambda a, b: not _same(a, b))
        if found is None:
            return ""
        nodes = ", ".join(found.nodes[:5])
        return f"; the first is {found.operation}" + (f" (node {nodes})" if nodes else "")

    def _interpret(self, state: State) -> list[Array]:
        inputs = [x.copy() for x in self.inputs]
        weights = self.weights.of(state.module, state.context.weights)
        outputs = interpret(state.module, weights, inputs, self.ring)
        return [np.asarray(self.ring.wrap(np.asarray(o))) for o in outputs]

    def _residues(self, arrays: Sequence[Array]) -> list[Array]:
        random = np.random.default_rng(self.seed)
        return [self.ring.wrap(a) if name in self.given or not is_float(element_of(a.dtype))
                else self.ring.random(a, random)
                for name, a in zip(self.names, arrays, strict=True)]

    def _add(self, row: Check) -> None:
        self.rows.append(row)
        self.tell_row(row)


def _same(got: Sequence[Array], want: Sequence[Array]) -> bool:
    return all(np.array_equal(np.asarray(a), np.asarray(b), equal_nan=a.dtype.kind == "f")
               for a, b in zip(got, want, strict=True))


def bits_of(precision: str) -> int:
    """The mantissa of the narrowest float that passes may use. Raises StrataError without room."""
    if precision not in PRECISIONS:
        raise StrataError(f"--precision {precision} has no room for residues", [Problem(
            "the ring needs floats of 16 bits or more", hint="verify without --ring")])
    return PRECISIONS[precision]


def mantissa_of(module: ModuleOp) -> int:
    """The mantissa that all floats of a module have. Raises StrataError for narrow floats."""
    found = {str(element) for op in module.walk() for value in (*op.results, *op.operands)
             if (element := getattr(value.type, "element", None)) is not None
             and is_float(element)}
    names = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16"}
    narrow = sorted(found - names.keys())
    if narrow:
        raise StrataError(f"{', '.join(narrow)} has no room for residues", [Problem(
            "the ring needs floats of 16 bits or more", hint="verify without --ring")])
    return min((MANTISSAS[names[n]] for n in found), default=24)
