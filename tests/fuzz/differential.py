"""Runs random models on the CPU target, on the reference target and by onnxruntime, and compares.

    python -m tests.fuzz.differential 0 2000      the models of these numbers; prints what differs
    python -m tests.fuzz.differential --show 17   one of them as text, and what differs

Outputs may differ by their type's tolerance, or by a few times what rounding alone does to them,
measured in the reference (see `compiler/instrument/rounding.py`). NaN equals NaN alone.
"""

from __future__ import annotations

import sys
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from compiler.diagnostics import StrataError
from compiler.frontend import ImportedModel, ImportOptions, MemoryModel, load_model
from compiler.instrument.rounding import Rounding
from compiler.measuring.comparison import worst
from compiler.options import CompileOptions
from dialects.graph.interpret import EvaluationError
from dialects.strata.assumptions import ChoiceError, DataError
from dialects.strata.types import Array
from targets.reference.interpret import interpret
from tests.fuzz.random_models import RandomModel

NO_SUCH_TYPE = ("NOT_IMPLEMENTED", "Type Error")
"""How onnxruntime says that an operator is not there for a type."""
REFUSALS = (EvaluationError, ValueError, DataError)
"""How a run says that sizes, or indices in tensors of these sizes, do not fit."""
GRANTED = 4
"""How many times the effect of rounding a difference may be."""


@dataclass
class Subject:
    """One model, compiled once, for several sets of inputs. `fixed`: without open sizes.
    `check_accesses`: every access to memory is checked."""

    number: int
    fixed: bool = False
    check_accesses: bool = False

    def __post_init__(self) -> None:
        from compiler.executable import compile_with

        self.random = RandomModel(self.number)
        self.proto = self.random.build()
        self.peer = peer_of(self.proto)
        self.model = MemoryModel("random.onnx", self.proto.SerializeToString())
        dims = self.random.used_sizes() if self.fixed else {}
        self.imported: ImportedModel = load_model(self.model, ImportOptions(dims=dims))
        self.program = compile_with(self.model, CompileOptions(
            target="cpu", threads=1, cache="off", dims=dims,
            check=self.check_accesses or None))

    def check(self) -> str:
        """Compare on the inputs, on others of other sizes, and where open sizes are 1. What
        differs; empty if nothing.
        """
        may_refuse = bool(self.random.open) and not self.fixed
        found = self._compare(self.random.inputs, may_refuse)
        if found or self.fixed:
            return found
        found = self._compare(self.random.other_inputs(), may_refuse=True)
        return found or (self._compare_ones() if self.random.used_sizes() else "")

    def _compare_ones(self) -> str:
        """Compare with what the model is if its open sizes are fixed, some of them as 1. Where that
        is valid, the program must run.
        """
        sizes = self.random.sizes_of_one()
        named = self.random.inputs_of(sizes)
        try:
            self.imported = load_model(self.model, ImportOptions(dims=sizes))
            interpret(self.imported.module, self.imported.weights, list(named.values()))
        except (StrataError, *REFUSALS):  # maybe of a node whose result nobody needs
            return ""
        found = self._compare(named, may_refuse=False)
        return found and f"with {sizes}: {found}"

    def _compare(self, named: Mapping[str, Array], may_refuse: bool) -> str:
        """`may_refuse`: sizes are open, and what is computed from them may be 1 or 0 by chance,
        while the model was imported as if it were not.
        """
        inputs = list(named.values())
        try:
            expected = interpret(self.imported.module, self.imported.weights, inputs)
        except ChoiceError:  # the program is compiled again for these sizes, the reference is not
            return ""
        except REFUSALS as error:
            return self._check_refusal(inputs) if may_refuse else f"the reference fails: {error}"
        try:
            actual = self.program.run(inputs)
        except (ValueError, DataError):
            if may_refuse:
                return ""
            raise
        found = self._differs("cpu", actual, expected, inputs)
        usable = self.peer is not None and not self.random.has_empty_sum
        theirs = run_peer(self.peer, named) if usable else None
        return found or ("" if theirs is None else self._differs(
            "onnxruntime", expected, theirs, inputs))

    def _check_refusal(self, inputs: Sequence[Array]) -> str:
        """Sizes that do not fit each other must be refused, and indices that do not fit sizes."""
        if any(0 in array.shape for array in inputs):  # the largest element of none
            return ""
        try:
            self.program.run(inputs)
        except (ValueError, DataError):
            return ""
        return "the cpu target runs on sizes that the reference refuses"

    def _differs(
        self, who: str, actual: Sequence[Array], expected: Sequence[Array], inputs: Sequence[Array]
    ) -> str:
        error, output = worst(actual, expected)
        if output is not None and np.isfinite(error):
            effect = Rounding(self.imported.module, self.imported.weights, inputs, expected)
            error, output = worst(actual, expected, noise=GRANTED * effect.effect())
        if output is None:
            return ""
        name = self.proto.graph.output[output].name
        return (f"{who}: output {name} is off by {error}; {actual[output].dtype}"
                f"{actual[output].shape}\n{actual[output]}\n{expected[output].dtype}"
                f"{expected[output].shape}\n{expected[output]}")


# ---------------------------------------------------------------------- onnxruntime
def peer_of(proto: onnx.ModelProto) -> object | None:
    """A session without optimizations; None where onnxruntime has not these types."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        return onnxruntime.InferenceSession(proto.SerializeToString(), options,
                                            providers=["CPUExecutionProvider"])
    except Exception as error:
        if any(text in str(error) for text in NO_SUCH_TYPE):
            return None
        raise AssertionError(f"onnxruntime refuses the model: {error}") from error


def run_peer(session: object, named: Mapping[str, Array]) -> list[Array] | None:
    """Its outputs; None where it does not take or give the arrays."""
    try:
        return session.run(None, dict(named))  # type: ignore[attr-defined]
    except Exception:
        return None


def difference(number: int, check_accesses: bool = False) -> str:
    """What is wrong with a model; empty if nothing is."""
    try:
        return Subject(number, check_accesses=check_accesses).check()
    except StrataError:
        return _without_open_sizes(number, check_accesses)
    except Exception:
        return traceback.format_exc()


def _without_open_sizes(number: int, check_accesses: bool) -> str:
    """What is wrong with a model that is refused as long as its sizes are open: n and 2*n agree
    where n is 0, n - 1 broadcasts where n is 2.
    """
    random = RandomModel(number)
    random.build()
    used = random.used_sizes()
    if 0 in used.values():  # which cannot be fixed
        return ""
    try:
        return Subject(number, fixed=True, check_accesses=check_accesses).check()
    except Exception:
        return traceback.format_exc()


def main() -> None:
    words = sys.argv[1:]
    if words[0] == "--show":
        print(onnx.printer.to_text(RandomModel(int(words[1])).build()))
        print(difference(int(words[1])) or "nothing differs")
        return
    counts: Counter[str] = Counter()
    for number in range(int(words[0]), int(words[1])):
        found = difference(number)
        counts["different" if found else "equal"] += 1
        if found:
            print(f"--- {number}: {found}", flush=True)
    print(dict(counts))


if __name__ == "__main__":
    main()
