"""The level `task`, between host and block: launches know how much they write.

    host.launch @k(%x, %y) sizes(n)   ->   task.run @k(%x, %y) sizes(n) writes 7*n
    task.run @k(%x, %y) sizes() writes 0   ->   nothing
    task.run @k(%x, %y) sizes(n) writes 7*n   ->   host.launch @k(%x, %y) sizes(n)

A level is its contract and its passes: those that lead to it and run on it (`steps`), and those
that lead out of it (`exits`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Dialect, SSAValue
from xdsl.irdl import irdl_op_definition, prop_def, var_operand_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.rewriter import Rewriter

from compiler.pipeline.levels import CONTROL, SCALARS, Level
from dialects.host import Launches, LaunchOp, OtherOp
from dialects.loop import KernelOp
from dialects.strata.types import BufferType, ExprAttr, SizesAttr, parse_size
from dialects.symbolic.expr import Expr, Size
from dialects.text.syntax import print_values
from passes.base import StrataContext, StrataPass


@irdl_op_definition
class RunOp(OtherOp):
    """A launch, as `host.launch`, and how many elements it writes."""

    name = "task.run"
    kernel = prop_def(StringAttr)
    sizes = prop_def(SizesAttr)
    writes = prop_def(ExprAttr)
    buffers = var_operand_def(BufferType)

    @staticmethod
    def of(kernel: str, buffers: Sequence[SSAValue], sizes: Sequence[Size], writes: Size) -> RunOp:
        return RunOp.create(operands=buffers, properties={
            "kernel": StringAttr(kernel), "sizes": SizesAttr.of(sizes),
            "writes": ExprAttr(Expr.of(writes))})

    def execute(self, state: Launches) -> None:
        state.launch(self, self.kernel.data, self.buffers, self.sizes.data)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.kernel.data)
        with printer.in_parens():
            print_values(printer, self.buffers)
        sizes = ", ".join(map(str, self.sizes.data))
        printer.print_string(f" sizes({sizes}) writes {self.writes.data}")

    @classmethod
    def parse(cls, parser: Parser) -> RunOp:
        launch = LaunchOp.parse(parser)
        parser.parse_keyword("writes")
        return RunOp.of(launch.kernel.data, launch.buffers, launch.sizes.data, parse_size(parser))


@dataclass(frozen=True)
class TaskFromHost(StrataPass):
    """Count what each launch writes. Leaves no `host.launch`."""

    name = "task-from-host"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        kernels = {k.sym_name.data: k for k in module.walk() if isinstance(k, KernelOp)}
        for op in [op for op in module.walk() if isinstance(op, LaunchOp)]:
            reads = len(kernels[op.kernel.data].body.block.args)
            written = [b.type for b in op.buffers[reads:]]
            sizes = [t.count for t in written if isinstance(t, BufferType)]
            task = RunOp.of(op.kernel.data, op.buffers, op.sizes.data, sum(sizes, Expr.of(0)))
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
