"""The plan for running a compiled model, besides its code and its constants, as plain data.

It can be written to a file and read back, and nothing here imports xDSL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from dialects.strata.array_type import ArrayType, read_size, size_facts
from dialects.strata.assumptions import Assumption, choices_first
from dialects.symbolic.expr import Expr
from dialects.symbolic.expr_syntax import symbol_of
from dialects.symbolic.symbol import Symbol
from targets.communication import Exchange
from targets.cpu.runtime.checks import Check
from targets.cpu.runtime.times import Times

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from xdsl.ir import SSAValue

    from dialects.host import FuncOp


class RunPlan(NamedTuple):
    """The signature of a model, and what its native entry needs (see `driver/module.py`).

    `steps`: how many calls of the entry run the model; 0 for a single call without a number.
    `exchanges`: its collective operations. `serial`: whether one thread runs all of it, at any
    sizes. `times`: when inputs are read and outputs written.

    `outputs`: those that the caller allocates. `returned`: for each output its type if the run
    allocates it, else None. `size_names`: in the order in which the entry expects the sizes.
    """

    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    inputs: tuple[ArrayType, ...]
    outputs: tuple[ArrayType, ...]
    returned: tuple[ArrayType | None, ...]
    size_names: tuple[Symbol, ...]
    arena_bytes: Expr
    assumptions: tuple[Assumption, ...]
    checks: tuple[Check, ...]
    steps: int = 0
    exchanges: tuple[Exchange, ...] = ()
    serial: bool = False
    times: Times = Times()

    @staticmethod
    def of(
        func: FuncOp, checks: Sequence[Check], steps: int = 0, exchanges: Sequence[Exchange] = (),
        serial: bool = False,
    ) -> RunPlan:
        """The plan of a model's host function, with the checks of its native driver."""
        from dialects.strata.sizes import assumptions_of

        return RunPlan(
            tuple(func.input_names), tuple(func.output_names),
            _types(func.input_arguments), _types(func.output_arguments),
            tuple(r and ArrayType.of(r) for r in func.returned_types), tuple(func.size_names),
            func.arena_bytes or Expr.of(0), tuple(choices_first(assumptions_of(func))),
            tuple(checks), steps, tuple(exchanges), serial, Times.of(func))

    @property
    def poisons(self) -> bool:
        """Whether memory is filled with NaN and -1 beforehand, because accesses are checked."""
        return any(check.kind == "access" for check in self.checks)

    # ------------------------------------------------------------------ files
    def facts(self) -> dict[str, Any]:
        """All fields, as JSON can represent them."""
        return {
            "input_names": self.input_names, "output_names": self.output_names,
            "inputs": [t.facts() for t in self.inputs],
            "outputs": [t.facts() for t in self.outputs],
            "returned": [t and t.facts() for t in self.returned],
            "size_names": [s.text for s in self.size_names],
            "arena_bytes": size_facts(self.arena_bytes),
            "assumptions": [a.facts() for a in self.assumptions],
            "checks": [c.facts() for c in self.checks], "steps": self.steps,
            "exchanges": [e.facts() for e in self.exchanges], "serial": self.serial,
            "times": self.times.facts()}

    @staticmethod
    def read(facts: Mapping[str, Any]) -> RunPlan:
        """The plan that `facts` describes."""
        return RunPlan(
            tuple(facts["input_names"]), tuple(facts["output_names"]),
            tuple(map(ArrayType.read, facts["inputs"])),
            tuple(map(ArrayType.read, facts["outputs"])),
            tuple(t and ArrayType.read(t) for t in facts["returned"]),
            tuple(map(symbol_of, facts["size_names"])), read_size(facts["arena_bytes"]),
            tuple(map(Assumption.read, facts["assumptions"])),
            tuple(map(Check.read, facts["checks"])), int(facts["steps"]),
            tuple(map(Exchange.read, facts["exchanges"])), bool(facts["serial"]),
            Times.read(facts["times"]))


def _types(values: Iterable[SSAValue]) -> tuple[ArrayType, ...]:
    from dialects.strata.types import BufferType

    return tuple(ArrayType.of(v.type) for v in values if isinstance(v.type, BufferType))
