"""`verify --gradients`: the graphs of a step of training, each verified on what it was given."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from compiler.cli.session import Session, session
from compiler.instrument.doubles import in_doubles, widen_inputs
from compiler.instrument.dump_folder import folder_of_graph
from compiler.instrument.verify import Check, Verify
from compiler.io.printing import show
from targets.reference.interpret import interpret

if TYPE_CHECKING:
    from compiler.torch.step_graphs import StepGraph
    from dialects.strata.types import Array

COLUMNS = "{:28} {:7} {:>8} {:>10} {:>9}"


def verify_gradients(arguments: argparse.Namespace) -> int:
    """Verify all graphs of a step. Returns the exit status.

    Raises StrataError for a model without gradients, CompilerFault for wrong numbers.
    """
    from compiler.frontend.torch.load import module_of
    from compiler.torch.step_graphs import step_graphs

    graphs = step_graphs(*module_of(arguments.model))
    count = 0
    with session(arguments) as started:
        for number, graph in enumerate(graphs):
            started.progress.print(f"graph {number}, {graph.kind}:")
            count += _verify(arguments, _with_dump(started), graph)
    show(f"{count} executions of {len(graphs)} graphs agree")
    return 0


def _with_dump(started: Session) -> Session:
    """The session with a folder for the dump of one graph, if there is to be one."""
    folder = started.options.dump_dir
    return started if folder is None else replace(
        started, options=replace(started.options, dump_dir=folder_of_graph(folder)))


def _verify(arguments: argparse.Namespace, started: Session, graph: StepGraph) -> int:
    """Verify one graph, and show its errors. Returns the number of executions."""
    def tell_row(row: Check) -> None:
        if len(verify.rows) == 1:
            started.progress.print(COLUMNS.format("after", "level", "ops", "error", "time"))
        line = COLUMNS.format(row.made_by, row.level, row.operations or "", f"{row.error:.1e}",
                              f"{row.seconds:.2f} s")
        started.progress.print(f"{line} {row.wrong or row.note}")

    def run(inputs: Sequence[Array]) -> Sequence[Array]:
        native[:] = loaded.run(inputs)
        return native

    native: list[Array] = []
    eager = graph.eager()
    verify = Verify(graph.inputs, tell_row, arguments.tolerance, arguments.levels_only)
    compilation = started.compiler(graph.model, verify)
    state = compilation.lower()
    verify.check_outputs("PyTorch", lambda _: eager)  # differs where an importer is wrong
    if compilation.target.lowers and compilation.is_final(state):
        loaded = compilation.load(state)
        verify.check_outputs(compilation.target.name, run)
    if verify.first_wrong is not None:
        raise compilation.wrong_numbers(state, verify.first_wrong, verify.before_text,
                                        verify.named_inputs)
    _tell_errors(started, verify, native, eager)
    return len(verify.rows)


def _tell_errors(
    started: Session, verify: Verify, native: Sequence[Array], eager: Sequence[Array]
) -> None:
    """The error of all results, computed by target code and by eager mode, against f64."""
    wide = in_doubles(*verify.imported)
    if wide is None:
        return
    exact = interpret(*wide, widen_inputs(verify.inputs))
    shown = [f"{name} {_error(found, exact):.1e}" for name, found in (
        ("compiled", native or verify.expected), ("eager", eager))]
    started.progress.print(f"distance from f64: {', '.join(shown)}")


def _error(found: Sequence[Array], exact: Sequence[Array]) -> float:
    """The 2-norm of all differences, by that of all exact results.

    A gradient that is zero but for rounding has no error of its own that means something.
    """
    pairs = [(a.astype(np.float64), b.astype(np.float64))
             for a, b in zip(found, exact, strict=True)]
    far, size = (sum(float(np.square(v).sum()) for v in values)
                 for values in ([a - b for a, b in pairs], [b for _, b in pairs]))
    return (far / size) ** 0.5 if size else far ** 0.5
