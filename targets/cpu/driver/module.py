"""The host functions as one native entry: one call runs the whole model.

    int32_t strata_entry(struct { void *arena, **table; int64_t *sizes; int32_t threads; } *call)

The table holds the addresses of the thread pool's functions, of the heap, of the work-sharing
counters and of a few C library functions. Then come the inputs, the outputs and the constants. The
entry opens one parallel region for the whole model. In it every thread executes all launches. It
runs programs of each launch until none are left, starting with its own part (see `turns.py`), and
waits at a barrier if the next launch may need what other threads wrote. Launches with little work
are left to thread 0. Flush-to-zero is on only inside the region.

Every host function is one native function. All threads take the same path through it, because
conditions are read after a barrier. The function returns 0, or 1 if a check failed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dialects import host
from dialects.records import dataclass
from dialects.symbolic.expr import Expr
from targets.communication import Exchange
from targets.cpu.driver.control import ControlText
from targets.cpu.driver.frame import BODY, PARALLEL, frame, is_parallel
from targets.cpu.driver.function import load_sizes
from targets.cpu.driver.launches import KernelInfo, Step
from targets.cpu.driver.statements import Program
from targets.cpu.driver.steps import (
    StepText,
    body_of_steps,
    condition_of_steps,
    step_operations,
)
from targets.cpu.emit.index import Indices
from targets.cpu.llvm.modules import ModuleText, joined
from targets.cpu.llvm.writer import Writer
from targets.cpu.machine import Machine
from targets.cpu.runtime.checks import Check

__all__ = ["DriverText", "KernelInfo", "emit_driver"]


@dataclass
class DriverText:
    """The LLVM IR of a driver, and what its caller must provide."""

    fixed: ModuleText
    """The entry and the functions of the runtime, which are the same in many models."""
    own: ModuleText
    """The functions of this model, as a module beside that of `fixed`."""
    module: ModuleText
    """Both in one module."""
    arena_bytes: Expr
    """Bytes of memory for intermediate values, over the host function's sizes."""
    constants: tuple[host.ConstantOp, ...]
    """The constants, in table order."""
    checks: tuple[Check, ...]
    """The checks that may fail, by number."""
    launches: tuple[host.LaunchOp | host.CollectiveOp, ...] = ()
    """The launches and collective operations, as a profile numbers them."""
    exchanges: tuple[Exchange, ...] = ()
    """The collective operations, by number."""
    steps: int = 0
    """How many calls run the model, one after another; 0 for one call that runs everything."""
    serial: bool = False
    """Whether threads share no launch, at any sizes."""


def emit_driver(
    main: host.FuncOp, functions: Sequence[host.FuncOp], kernels: Mapping[str, KernelInfo],
    machine: Machine, one_launch: bool = True, profiled: bool = False,
) -> DriverText:
    """The entry of a model: its main function, and all functions that it may call.

    `one_launch`: a call runs everything; else one step, if the function has any (`steps.py`).
    `profiled`: launches are timed (see `clock.py`).

    Raises ValueError for a launch of a kernel that does not exist.
    """
    program = Program(main, {f.sym_name.data: f for f in functions}, kernels,
                      profiled=profiled)
    apart = [] if one_launch else step_operations(main)
    parts_of_main = [StepText(program, main, op, k) for k, op in enumerate(apart)]
    first = parts_of_main or [ControlText(program, main)]
    texts = [*first, *(ControlText(program, f) for f in functions if f is not main)]
    bodies = [text.emit() for text in texts]
    steps = [step for text in texts for step in text.steps]
    declarations = {k: v for text in texts for k, v in text.writer.declarations.items()}
    has_heap = any(t.uses_heap for t in texts)
    own = (*_conditions_of_steps(main, parts_of_main), *bodies,
           body_of_steps(parts_of_main, len(main.size_names))) if apart else (
        "\n".join(_parallel_condition(main, steps, is_parallel.header)), *bodies)
    declarations |= _kernel_declarations([s.kernel for s in steps])
    called = {function.name: function.declaration for function in program.used.values()}
    parts = (frame(machine, program.used.values(), has_heap),
             ModuleText(own, declarations | called))
    module = joined(parts, defined=(PARALLEL, BODY, *called))
    return DriverText(*parts, module, main.arena_bytes or Expr.of(0), tuple(program.constants),
                      tuple(program.checks), tuple(program.launches), tuple(program.exchanges),
                      len(apart), all(step.is_parallel is False for step in steps))


def _conditions_of_steps(main: host.FuncOp, texts: Sequence[StepText]) -> list[str]:
    """Functions that return whether threads share a step, and the one that chooses among them."""
    found, cases = list[str](), dict[int, str]()
    for k, text in enumerate(texts):
        if any(step.is_parallel for step in text.steps):
            cases[k] = "add i1 0, 1"
        elif any(step.is_parallel is None for step in text.steps):
            header = f"define internal i1 @strata_shares_{k}(ptr %sizes) nounwind {{"
            found.append("\n".join(_parallel_condition(main, text.steps, header)))
            cases[k] = f"call i1 @strata_shares_{k}(ptr %sizes)"
    return [*found, condition_of_steps(cases, len(main.size_names))]


def _parallel_condition(
    main: host.FuncOp, steps: Sequence[Step], header: str
) -> list[str]:
    """The function that returns whether threads share any launch.

    A launch whose size is not yet known counts as shared.
    """
    writer = Writer(PARALLEL)
    indices = Indices(writer)
    known = {*main.size_names}
    found = "false"
    open_ = [s for s in steps if s.is_parallel is None]
    if any(s.is_parallel or (s in open_ and any(e.symbols - known for e in s.grid))
           for s in steps):
        found = "true"
    else:
        names = writer.size_arguments(main.size_names)
        sizes = {s: indices.symbol(name, 0)
                 for s, name in zip(main.size_names, names, strict=True)}
        load_sizes(writer, main.size_names)
        for step in open_:
            total = indices.scalar(indices.product([e.substitute(sizes) for e in step.grid]))
            large = writer.assign(f"icmp sge i64 {total}, {step.least_programs}")
            found = writer.assign(f"or i1 {found}, {large}")
    return [header, "entry:", *writer.scopes[0].lines, f"  ret i1 {found}", "}"]


def _kernel_declarations(kernels: Sequence[KernelInfo]) -> dict[str, str]:
    lines: dict[str, str] = {}
    for kernel in kernels:
        types = ["ptr"] * len(kernel.op.buffers) + ["i64"] * (len(kernel.op.size_names) + 2)
        types += [] if kernel.private is None else ["ptr"]
        lines[kernel.function] = f"declare void @{kernel.function}({', '.join(types)})"
    return lines
