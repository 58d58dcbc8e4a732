"""A main function whose launches are native calls of their own, instead of one call of everything.

    body(sizes): switch on the word after the sizes -> strata_step_0, strata_step_1, ...

Each step is a function. It finds the addresses of its buffers by itself and has a parallel region
of its own, as if a library were called for each operator. Only the runtime knows the order
(`runtime/executable.py`). A function that branches, or that allocates memory outside of the arena,
has values that live from step to step, and stays one call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.ir import Operation

from dialects import host
from dialects.strata.requirements import RequireOp, TrapOp
from dialects.strata.sizes import AssumeOp
from targets.cpu.driver.control import ControlText
from targets.cpu.driver.frame import body, is_parallel
from targets.cpu.driver.statements import Program

_STEPS = (host.LaunchOp, host.CopyOp, host.CollectiveOp, RequireOp, TrapOp)


def step_operations(main: host.FuncOp) -> list[Operation]:
    """The operations that are steps; none if the function must stay one call."""
    ops = list(main.body.block.ops)
    return [op for op in ops if isinstance(op, _STEPS)] if all(
        _is_apart(op, main) for op in ops) else []


def _is_apart(op: Operation, main: host.FuncOp) -> bool:
    """Whether a step finds what this operation gives without any earlier step."""
    match op:
        case host.AllocOp():
            return op.offset is not None
        case host.ReturnOp():
            return not op.values
        case AssumeOp():  # which is checked before a run
            return op.symbols <= {*main.size_names}
        case _:
            return isinstance(op, (*_STEPS, host.ConstantOp, host.ViewOp))


class StepText(ControlText):
    """Writes one step as a function."""

    def __init__(self, program: Program, func: host.FuncOp, op: Operation, number: int):
        super().__init__(program, func)
        self.op, self.name = op, f"strata_step_{number}"

    def emit(self) -> str:
        self._begin()
        for op in _needed(self.op):
            self._operation(op)
        self.writer.emit("ret i32 0")
        return "\n".join([self._header(), "entry:", *self.writer.scopes[0].lines, "}"])

    def _header(self) -> str:
        return (f"define internal i32 @{self.name}(ptr %arena, ptr %table, ptr %sizes, "
                "i64 %thread, i64 %threads) nounwind {")


def _needed(op: Operation) -> list[Operation]:
    """The operations that give a step's buffers, in order, and the step itself."""
    found: dict[Operation, None] = {}
    for value in op.operands:
        if isinstance(value.owner, Operation):
            found |= dict.fromkeys(_needed(value.owner))
    return [*found, op]


# ---------------------------------------------------------------------- the functions that choose
def body_of_steps(steps: Sequence[StepText], sizes: int) -> str:
    """The main function: runs the step whose number follows the `sizes` words of sizes."""
    cases = {k: f"call i32 @{step.name}(ptr %arena, ptr %table, ptr %sizes, i64 %thread, "
                "i64 %threads)" for k, step in enumerate(steps)}
    return _choice(body.header, "i32", cases, sizes)


def condition_of_steps(conditions: Mapping[int, str], sizes: int) -> str:
    """Whether threads share a step: false but for the given numbers, whose text says it."""
    return _choice(is_parallel.header, "i1", conditions, sizes)


def _choice(header: str, type_: str, cases: Mapping[int, str], sizes: int) -> str:
    labels = " ".join(f"i64 {k}, label %step{k}" for k in cases)
    lines = [header, "entry:", f"  %place = getelementptr i64, ptr %sizes, i64 {sizes}",
             "  %step = load i64, ptr %place", f"  switch i64 %step, label %none [{labels}]",
             "none:", f"  ret {type_} 0"]
    for k, text in cases.items():
        lines += [f"step{k}:", f"  %r{k} = {text}", f"  ret {type_} %r{k}"]
    return "\n".join([*lines, "}"])
