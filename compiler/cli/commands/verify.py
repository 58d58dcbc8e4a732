"""Execute a model after every pass, at every level, and as target code, and compare the results.

All executions use the same inputs and are compared with the imported model, evaluated by the
definitions of its operations. The error is the largest deviation divided by the largest expected
magnitude. The first pass whose error exceeds the tolerance is named; this is a fault of the
compiler (exit status 3). The tolerance accounts for the type of an output and for the effect of
rounding on these inputs. NaN never passes a comparison: if all outputs are NaN everywhere, the
exit status is 1.

With --ring, levels compute in a ring of residues instead of in floats (docs/ring.md). Sums do not
round there, so all levels must agree bit for bit, and the first pass, kernel and operation that do
not are named. So must the code of the CPU target, in which instructions on floats are replaced.

With --gradients, a module (`file.py:function`) is run forward and backward, and both graphs are
verified on what they were given. The errors of target code and of PyTorch's eager mode are shown
beside those in f64.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from compiler.cli import arguments as shared
from compiler.io.printing import show

if TYPE_CHECKING:
    from compiler.instrument.verify import Verify
    from compiler.options import CompileOptions
    from compiler.pipeline.driver import Compiler
    from compiler.pipeline.state import State

SUMMARY = "execute every level, and name the first wrong pass"
TOPIC = "Look inside"
COLUMNS = "{:28} {:7} {:>8} {:>10} {:>9}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_model(parser)
    shared.add_target(parser)
    shared.add_inputs(parser)
    group = parser.add_argument_group("the comparison")
    group.add_argument("--levels-only", action="store_true",
                       help="execute only at the end of each level, not after each pass")
    group.add_argument("--tolerance", metavar="X", type=shared.tolerance,
                       help="the largest error allowed for float outputs (default: by type)")
    group.add_argument("--ring", action="store_true",
                       help="compute in a ring, in which no order of additions can hide a fault")
    group.add_argument("--gradients", action="store_true",
                       help="verify the graphs of a step of training")
    shared.add_dump(parser)
    shared.add_pipeline(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.gradients:
        from compiler.cli.gradients import verify_gradients

        return verify_gradients(arguments)
    if arguments.ring:
        return _in_ring(arguments)
    from compiler.cli.execution import WantedInputs, tell_notes, tell_warnings
    from compiler.cli.session import read_at_once, session
    from compiler.instrument.remarks import Remarks
    from compiler.instrument.verify import Check, Verify
    from compiler.recompilation import fitting, fixable_sizes
    from dialects.ranks.attributes import world_of

    def tell_row(row: Check) -> None:
        if len(verify.rows) == 1:
            started.progress.print(COLUMNS.format("after", "level", "ops", "error", "time"))
        line = COLUMNS.format(row.made_by, row.level, row.operations or "", f"{row.error:.1e}",
                              f"{row.seconds:.2f} s")
        started.progress.print(f"{line} {row.wrong or row.note}")

    def lowered(options: CompileOptions) -> tuple[Compiler, State]:
        found = replace(started, options=options).compiler(model, verify, remarks)
        return found, found.lower()

    verify = Verify(WantedInputs(arguments).arrays, tell_row, arguments.tolerance,
                    arguments.levels_only)
    remarks, model = Remarks(), read_at_once(arguments.model)
    with session(arguments) as started:
        compilation, state = fitting(lowered, started.options,
                                     lambda: fixable_sizes(verify.signature, verify.structures))
        count = world_of(state.module)
        if count > 1:
            tell_notes([f"the levels were executed on {count} ranks in this process; `torchrun "
                        f"--nproc-per-node {count} -m compiler run` executes native code"])
        elif compilation.target.lowers and compilation.is_final(state):
            loaded = compilation.load(state)
            verify.check_outputs(compilation.target.name, loaded.run)
            tell_notes(loaded.notes)
    remarks.show(arguments.verbose)
    tell_warnings(verify.oddities)
    if verify.first_wrong is None:
        return _conclusion(verify)
    raise compilation.wrong_numbers(state, verify.first_wrong, verify.before_text,
                                    verify.named_inputs)


def _in_ring(arguments: argparse.Namespace) -> int:
    """Compare all levels bit by bit. Returns the exit status."""
    from compiler.cli.execution import WantedInputs
    from compiler.cli.session import read_at_once, session
    from compiler.instrument.ring import BLURRED, RingVerify, bits_of
    from compiler.instrument.verify import Check
    from compiler.recompilation import fitting, fixable_sizes

    def tell_row(row: Check) -> None:
        if len(verify.rows) == 1:
            started.progress.print(COLUMNS.format("after", "level", "ops", "bits", "time"))
        bits = "differ" if row.wrong or row.note.startswith(BLURRED) else (
            "unknown" if row.note else "equal")
        line = COLUMNS.format(row.made_by, row.level, row.operations, bits,
                              f"{row.seconds:.2f} s")
        started.progress.print(f"{line} {row.wrong or row.note}")

    def lowered(options: CompileOptions) -> tuple[Compiler, State]:
        found = replace(started, options=options).compiler(model, verify)
        return found, found.lower()

    wanted = WantedInputs(arguments)
    verify = RingVerify(wanted.arrays, tell_row, {*wanted.given}, arguments.seed,
                        bits_of(arguments.precision), arguments.levels_only)
    model = read_at_once(arguments.model)
    with session(arguments) as started:
        compilation, state = fitting(lowered, started.options,
                                     lambda: fixable_sizes(verify.signature, verify.structures))
        if compilation.target.lowers and compilation.is_final(state):
            verify.check_code(state, compilation.parts.running, compilation.target.name)
    if verify.first_wrong is not None:
        raise compilation.wrong_numbers(state, verify.first_wrong, verify.before_text,
                                        verify.named_inputs, "--ring")
    blurred = f", but for {', '.join(verify.blurred)}" if verify.blurred else ""
    p, q = verify.ring.primes
    show(f"{len(verify.rows)} executions agree bit for bit modulo {p}*{q}{blurred}")
    return 0


def _conclusion(verify: Verify) -> int:
    """Report that all executions agree, and what could not be compared. Returns the exit status."""
    from compiler.cli.execution import tell_warnings
    from compiler.measuring.oddities import has_numbers

    tell_warnings(verify.incomparable)
    if not has_numbers(verify.expected):
        show("nothing was compared: all outputs are NaN; --inputs FILE.npz gives other inputs")
        return 1
    show(f"{len(verify.rows)} executions agree")
    return 0
