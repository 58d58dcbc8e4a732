"""The level `task`, between host and block: launches know how much they write.

    host.launch @k(%x, %y) sizes(n)   ->   task.run @k(%x, %y) sizes(n) writes 7*n
    task.run @k(%x, %y) sizes() writes 0   ->   nothing
    task.run @k(%x, %y) sizes(n) writes 7*n   ->   host.launch @k(%x, %y) sizes(n)

A level is its contract and its passes: those that lead to it and run on it (`steps`), and those
that lead out of it (`exits`).
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Dialect
from xdsl.irdl import irdl_op_definition, prop_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.rewriter import Rewriter

from compiler.levels import CONTROL, SCALARS, Level
from dialects.expr import Expr
from dialects.host import LaunchOp
from dialects.loop import KernelOp
from dialects.types import BufferType, ExprAttr, parse_size
from passes.base import StrataContext, StrataPass


@irdl_op_definition
class RunOp(LaunchOp):
    """A launch, and how many elements it writes. As it is a LaunchOp, every target can run it."""

    name = "task.run"
    writes = prop_def(ExprAttr)

    def print(self, printer: Printer) -> None:
        super().print(printer)
        printer.print_string(f" writes {self.writes.data}")

    @classmethod
    def parse(cls, parser: Parser) -> RunOp:
        launch = LaunchOp.parse(parser)
        parser.parse_keyword("writes")
        return run(launch, parse_size(parser))


def run(launch: LaunchOp, writes: Expr) -> RunOp:
    properties = {**launch.properties, "writes": ExprAttr(writes)}
    return RunOp.create(operands=launch.operands, properties=properties)


@dataclass(frozen=True)
class TaskFromHost(StrataPass):
    """Count what each launch writes. Leaves no `host.launch`."""

    name = "task-from-host"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        kernels = {k.sym_name.data: k for k in module.walk() if isinstance(k, KernelOp)}
        for op in [op for op in module.walk() if type(op) is LaunchOp]:
            reads = len(kernels[op.kernel.data].body.block.args)
            written = [b.type for b in op.buffers[reads:]]
            sizes = [t.count for t in written if isinstance(t, BufferType)]
            task = run(op, sum(sizes, Expr.of(0)))
            task.location = op.location
            Rewriter.replace_op(op, task)


@dataclass(frozen=True)
class TaskDropEmpty(StrataPass):
    """Leave out tasks that write nothing, whatever the sizes are."""

    name = "task-drop-empty"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        for op in [op for op in module.walk() if isinstance(op, RunOp)]:
            if op.writes.data.constant == 0:
                Rewriter.erase_op(op)


@dataclass(frozen=True)
class TaskToHost(StrataPass):
    """Forget the counts: what follows knows launches."""

    name = "task-to-host"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        for op in [op for op in module.walk() if isinstance(op, RunOp)]:
            launch = LaunchOp.of(op.kernel.data, op.buffers, op.sizes.data)
            launch.location = op.location
            Rewriter.replace_op(op, launch)


TASK = Dialect("task", [RunOp])
HOST = tuple(f"host.{name}" for name in ("func", "return", "constant", "alloc", "view", "copy",
                                         "free"))
LEVEL = Level(
    "task", "launches that know how many elements they write", (
        *CONTROL, *HOST, "task.run", "loop.*", *SCALARS),
    after="host", steps=("task-from-host", "task-drop-empty"), exits=("task-to-host",))
