"""The verdict on a model: compiled for a target, run on inputs, and compared with references.

Results are right if they agree with the reference, compared as in `verify`, and with onnxruntime,
if it is installed and supports the model.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from compiler.diagnostics import StrataError
from compiler.instrument import Instrument

if TYPE_CHECKING:
    from compiler.instrument.verify import Verify
    from compiler.io.signature import Signature
    from compiler.options import CompileOptions
    from compiler.pipeline.driver import Compiler
    from compiler.pipeline.state import State
    from compiler.pipeline.steps import Step
    from dialects.strata.types import Array
    from targets.base import Executable

RIGHT = "right"
WORDS = 6
"""The number of leading words of a message that must match; later ones list types and names."""


@dataclass(frozen=True)
class Verdict:
    """`kind`: right, refused, fault, wrong, peer, crash, timeout or check.

    `key`: what a smaller model must share to fail in the same way; `text`: for people.
    """

    kind: str
    key: str = ""
    text: str = ""

    def is_like(self, other: Verdict) -> bool:
        return (self.kind, self.key) == (other.kind, other.key)

    @property
    def fails(self) -> bool:
        return self.kind != RIGHT

    def facts(self) -> dict[str, str]:
        return asdict(self)


@dataclass
class PhaseFile(Instrument):
    """Records the current phase in a file, in case the process dies."""

    path: Path
    wants_passes = True

    def report(self, phase: str) -> None:
        self.path.write_text(phase, encoding="utf-8")

    def before(self, step: Step, state: State) -> None:
        self.report(step.name)


@dataclass(frozen=True)
class Question:
    """How a model is compiled, and with what it is compared.

    `dims`: sizes of the inputs, by the model's names. `phases`: the file for the current phase.
    """

    options: CompileOptions
    dims: Mapping[str, int]
    tolerance: float | None = None
    seed: int = 0
    phases: Path | None = None
    peer: bool = True

    def compiler(self, model: Path, *more: Instrument) -> Compiler:
        from compiler.pipeline.driver import Compiler

        watching = [PhaseFile(self.phases)] if self.phases is not None else []
        return Compiler(str(model), self.options, [*watching, *more])

    def report(self, phase: str) -> None:
        if self.phases is not None:
            self.phases.write_text(phase, encoding="utf-8")


def verdict_of(model: Path, inputs: Mapping[str, Array], question: Question) -> Verdict:
    """Compile, run and compare. Never raises what a model can cause."""
    from compiler.faults import CompilerFault

    try:
        return _compared(model, inputs, question)
    except StrataError as error:
        return Verdict("refused", shape_of(str(error)), str(error))
    except CompilerFault as error:
        kind = f"{error.phase}: {type(error.cause).__name__}"
        return Verdict("fault", f"{kind}: {shape_of(str(error.cause))}",
                       f"fault of the compiler in {kind}: {error.cause}")


def _compared(model: Path, inputs: Mapping[str, Array], question: Question) -> Verdict:
    from compiler.recompilation import fitting, fixable_sizes

    def started(options: CompileOptions) -> tuple[Compiler, State]:
        compilation = replace(question, options=options).compiler(model)
        state = compilation.read()
        question.report("reference")
        verify.start(state)
        return compilation, state

    verify = verify_of(inputs, question)
    with _elsewhere():
        compilation, state = fitting(
            started, question.options, lambda: fixable_sizes(verify.signature, verify.structures))
        program = _loaded(compilation, state)
    question.report("run")
    try:
        outputs = program.run(verify.inputs)
    except ValueError as error:
        return Verdict("refused", shape_of(str(error)), str(error))
    verify.check_outputs(compilation.target.name, lambda _: outputs)
    wrong = verify.first_wrong
    if wrong is not None:
        return Verdict("wrong", "", f"{wrong.wrong} from what the model means (error "
                                    f"{wrong.error:.1e} of the largest magnitude)")
    return _against_peer(model, verify, question)


def verify_of(inputs: Mapping[str, Array], question: Question) -> Verify:
    """Judges executions as the command `verify` does."""
    from compiler.instrument.verify import Verify

    return Verify(lambda signature: arrange(signature, inputs, question), lambda row: None,
                  question.tolerance)


def _loaded(compilation: Compiler, state: State) -> Executable:
    """The model's executable, lowered unless the target runs the module as read."""
    if compilation.target.lowers:
        compilation.planned = compilation.plan(state, None)
        compilation.run(state, compilation.planned)
    return compilation.load(state)


def arrange(
    signature: Signature, inputs: Mapping[str, Array], question: Question
) -> list[Array]:
    """The inputs in order; random ones for what is not given."""
    from compiler.cli.execution import known_sizes, named_sizes

    types = dict(zip(signature.input_names, signature.input_types, strict=True))
    given = {n: a.astype(types[n].dtype, copy=False) for n, a in inputs.items() if n in types}
    sizes = {**known_sizes(signature, given), **named_sizes(list(question.dims.items()))}
    random = signature.random(question.seed, sizes)
    return signature.arrange({**random, **given})


def _against_peer(model: Path, verify: Verify, question: Question) -> Verdict:
    """The reference against onnxruntime."""
    from compiler.reduction.peer import difference, run_onnxruntime

    theirs = None
    if question.peer:
        question.report("onnxruntime")
        theirs = run_onnxruntime(model, verify.named_inputs)
    text = "" if theirs is None else difference(verify, theirs)
    kind = "shape" if text.startswith("shapes") else ""
    return Verdict("peer", kind, text) if text else Verdict(RIGHT)


def shape_of(text: str) -> str:
    """The beginning of a message, without names and numbers that change while a model shrinks."""
    lines = text.strip().splitlines()
    problem = next((line for line in lines if line.startswith("- ")), lines[0] if lines else "")
    words = re.sub(r"'[^']*'|\"[^\"]*\"|[-+]?\d[\w.]*", "_", problem).split()
    return " ".join(words[:WORDS])


class _elsewhere:
    """A temporary working directory, for the reproducers of faults."""

    def __enter__(self) -> None:
        self.back = Path.cwd()
        self.folder = tempfile.TemporaryDirectory()
        os.chdir(self.folder.name)

    def __exit__(self, *_: object) -> None:
        os.chdir(self.back)
        self.folder.cleanup()


def blame(model: Path, inputs: Mapping[str, Array], question: Question) -> str:
    """The first pass with wrong results, or the target; empty if there is none."""
    verify = verify_of(inputs, question)
    with _elsewhere():
        compilation = question.compiler(model, verify)
        state = compilation.lower()
        if verify.first_wrong is None and compilation.target.lowers and (
                compilation.is_final(state)):
            verify.check_outputs(compilation.target.name, compilation.load(state).run)
    return "" if verify.first_wrong is None else verify.first_wrong.made_by
