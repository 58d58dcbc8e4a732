"""When the steps of a host function read its inputs last, and first write its outputs, and which
outputs begin as copies of inputs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xdsl.ir import Operation, SSAValue

    from dialects.host import FuncOp


class Times(NamedTuple):
    """The number of the step that reads each input last, and of that which first writes each
    output. `copies`: for each output the number of the input that this step copies to it; -1 for
    other steps. `checked`: the number of the last step that may end the run, or -1. All are empty
    if steps are not all that uses inputs and outputs."""

    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    copies: tuple[int, ...] = ()
    checked: tuple[int, ...] = ()

    @staticmethod
    def of(func: FuncOp) -> Times:
        """The times of a host function without branches, whose steps are launches and copies."""
        from dialects import host
        from dialects.strata.requirements import RequireOp, TrapOp
        from dialects.strata.sizes import AssumeOp
        from passes.host.plan_buffers import seen_memory

        ops = list(func.body.block.ops)
        plain = (host.LaunchOp, host.CopyOp, host.AllocOp, host.ViewOp, host.ConstantOp,
                 host.FreeOp, host.ReturnOp, RequireOp, TrapOp, AssumeOp)
        if not all(isinstance(op, plain) for op in ops):
            return Times()
        used = {value: [at for at, op in enumerate(ops) if not isinstance(op, host.ViewOp)
                        and value in map(seen_memory, op.operands)]
                for value in func.body.block.args}
        given, made = list(func.input_arguments), list(func.output_arguments)
        writes = [min(used[v], default=-1) for v in made]
        return Times(
            tuple(max(used[v], default=-1) for v in given), tuple(writes),
            tuple(-1 if at < 0 else _copied(ops[at], given, value)
                  for at, value in zip(writes, made, strict=True)),
            (max((at for at, op in enumerate(ops) if isinstance(op, RequireOp | TrapOp)),
                 default=-1),))

    # ------------------------------------------------------------------ files
    def facts(self) -> list[Any]:
        return [*map(list, self)]

    @staticmethod
    def read(facts: Iterable[Iterable[int]]) -> Times:
        """The times that `facts` describes."""
        return Times(*map(tuple, facts))


def _copied(step: Operation, given: Sequence[SSAValue], made: SSAValue) -> int:
    """The number of the input that a step copies to an output; -1 for other steps."""
    from dialects import host
    from passes.host.plan_buffers import seen_memory

    if not isinstance(step, host.CopyOp) or seen_memory(step.target) is not made:
        return -1
    source = seen_memory(step.source)
    return next((k for k, value in enumerate(given) if value is source), -1)
