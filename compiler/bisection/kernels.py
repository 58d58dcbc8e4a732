"""The first kernel whose code computes something else than its tiles mean.

The last level is interpreted launch by launch. Each kernel is compiled in a program of its own,

    host.func @main(%x0, %x1, %y1) {       x1 is written: y1 is a copy of it
      host.copy %x1, %y1
      host.launch @kernel(%x0, %y1)
    }

and runs on the buffers that the interpreter has at its launch. If a program that copies an array
is wrong as well, the fault is in what surrounds kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from compiler.bisection.outcome import CODE, RIGHT, Outcome
from compiler.diagnostics import StrataError, kind_and_text
from compiler.instrument.launches import program_of, type_of, written_buffers
from compiler.measuring.comparison import worst
from dialects import block, host
from dialects.block.interpret import interpret_kernel
from dialects.host.interpret import interpret_host
from dialects.strata.types import Array
from dialects.strata.weights import WeightStore
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import location_names

if TYPE_CHECKING:
    from compiler.bisection.trials import Trials
    from targets.base import Executable


class _Found(Exception):
    """The first kernel that is wrong."""

    def __init__(self, outcome: Outcome):
        super().__init__(outcome.text)
        self.outcome = outcome


def first_wrong(trials: Trials) -> Outcome:
    """The first kernel whose code fails or is wrong; right if none is, alone."""
    last = len(trials.planned) if trials.begun.kind == RIGHT else 0
    lowered = trials.lowered(last)
    if lowered.kind != RIGHT:
        return lowered
    state = trials.at(last)
    if text := _fault_of_copies(trials):
        return Outcome("wrong", text, CODE, operation="host.func @main")
    try:
        interpret_host(state.module, trials.verify.inputs, state.context.weights,
                       _Launches(trials))
    except _Found as found:
        return found.outcome
    return Outcome(step=CODE)


def _fault_of_copies(trials: Trials) -> str:
    """What is wrong with a program that copies an array; empty if nothing is."""
    array = np.arange(1, 8, dtype=np.float32)
    func = host.FuncOp.of("main", ["x"], ["y"], [type_of(array)] * 2, [])
    func.body.block.add_op(host.CopyOp.of(*func.body.block.args))
    func.body.block.add_op(host.ReturnOp.create())
    trials.phases.tell(Outcome("crash", "", CODE, operation="host.func @main"))
    try:
        running = trials.compilation.parts.running
        [got] = running.load(ModuleOp([func]), WeightStore()).run([array])
    except Exception as error:  # whatever a faulty target raises
        return f"a program without kernels fails: {error}"
    return "" if np.array_equal(got, array) else "a program without kernels is wrong"


@dataclass
class _Launches:
    """Runs each launch in the interpreter and as code. Raises _Found."""

    trials: Trials
    loaded: dict[tuple[str, str], Executable] = field(
        default_factory=dict[tuple[str, str], "Executable"])
    number: int = 0

    def __call__(
        self, kernel: Operation, buffers: Sequence[Array], sizes: dict[Symbol, int]
    ) -> None:
        assert isinstance(kernel, block.KernelOp)
        self.number += 1
        before = [np.array(b) for b in buffers]
        interpret_kernel(kernel, buffers, sizes)
        suspect = Outcome("crash", "", CODE, done=self.number, nodes=location_names(kernel),
                          kernel=kernel.sym_name.data,
                          operation=f"{kernel.name} @{kernel.sym_name.data}")
        self.trials.phases.tell(suspect)
        if text := self._fault(kernel, before, buffers, sizes):
            kind, _, text = text.partition(": ")
            raise _Found(Outcome.of({**suspect.facts(), "kind": kind, "text": text}))

    def _fault(
        self, kernel: block.KernelOp, before: Sequence[Array], after: Sequence[Array],
        sizes: dict[Symbol, int],
    ) -> str:
        """The kind of the fault and what is wrong; empty if the kernel's code is right."""
        written = written_buffers(kernel)
        key = kernel.sym_name.data, str([(a.shape, *sizes.values()) for a in before])
        try:
            if key not in self.loaded:
                module = program_of(kernel, before, written, sizes)
                running = self.trials.compilation.parts.running
                self.loaded[key] = running.load(module, WeightStore())
            got = self.loaded[key].run(before)
        except (StrataError, ValueError) as error:
            return f"refused: {error}"
        except Exception as error:  # whatever a faulty target raises
            return f"fault: {kind_and_text(error)}"
        want = [after[k] for k in written]
        kept = [_bits(a) == _bits(b) for a, b in zip(want, (before[k] for k in written),
                                                     strict=True)]
        got = [np.where(k, w, g) for k, w, g in zip(kept, want, got, strict=True)]
        error, wrong = worst(got, want)
        return "" if wrong is None else f"wrong: its code is off by {error:.1e}"


def _bits(array: Array) -> Array:
    return array.view(f"u{array.dtype.itemsize}")
