"""When the steps of a host function read its inputs last, and first write its outputs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dialects.records import NamedTuple

if TYPE_CHECKING:
    from dialects.host import FuncOp


class Times(NamedTuple):
    """The number of the step that reads each input last, and of that which first writes each
    output; both empty if steps are not all that uses them."""

    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()

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
        return Times(tuple(max(used[v], default=-1) for v in func.input_arguments),
                     tuple(min(used[v], default=-1) for v in func.output_arguments))

    # ------------------------------------------------------------------ files
    def facts(self) -> list[Any]:
        return [*map(list, self)]

    @staticmethod
    def read(facts: Iterable[Iterable[int]]) -> Times:
        """The times that `facts` describes."""
        return Times(*map(tuple, facts))
