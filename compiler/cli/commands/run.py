"""Run a model once on given or random inputs, and summarize its outputs.

Random inputs are generated from --seed: floats are standard normal, integers are 0 or 1. Sizes
that the model leaves open, and that neither --dim nor --shape fixes, are 2. The keys of .npz files
are the model's own names of inputs and outputs. A warning is printed if outputs are NaN, infinite
or empty and the inputs do not explain it. With a --precision other than f32, a note gives the
resulting error.

With --mesh, the model is divided among processes. Start as many as the mesh has ranks; the first
one tells and writes the outputs:

    torchrun --nproc-per-node 2 -m compiler run model.onnx --mesh tp=2
"""

from __future__ import annotations

import argparse
import sys

from compiler.cli import arguments as shared
from compiler.io.printing import show

SUMMARY = "run a model on given or random inputs"
TOPIC = "Compile and run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_model(parser)
    shared.add_target(parser)
    shared.add_inputs(parser)
    shared.add_output(parser.add_argument_group("the outputs"), "--output", "-o",
                      metavar="FILE.npz",
                      text="write the outputs, keyed by the model's names; an .npy holds one; "
                           "- for standard output")
    shared.add_dump(parser)
    shared.add_pipeline(parser)


def run(arguments: argparse.Namespace) -> int:
    from compiler.agreement import check_agreement
    from compiler.cli.execution import (
        WantedInputs,
        run_loaded,
        tell_notes,
        tell_oddities,
        tell_precision_error,
    )
    from compiler.cli.session import session
    from compiler.cli.standard_streams import is_standard_output
    from compiler.io.output import check_output, check_writable, write_arrays
    from compiler.ranks import among_ranks

    check_writable(arguments.output)
    wanted = WantedInputs(arguments)
    with among_ranks(arguments.mesh, arguments.target) as is_first, session(arguments) as started:
        exe = started.compile(arguments.model, wanted)
        check_output(arguments.output, exe.output_names)
        check_agreement(exe)
        inputs = wanted.arrays(exe.signature)
        started.progress.report(f"running {arguments.model}")
        outputs = run_loaded(exe, inputs)
        tell_notes(exe.loaded.notes)
        tell_precision_error(exe, inputs)  # runs the model again, on all ranks
    if not is_first:
        return 0
    tell_oddities(exe, inputs, outputs)
    for name, array in zip(exe.output_names, outputs, strict=True):
        show(describe(name, array),
             file=sys.stderr if is_standard_output(arguments.output) else sys.stdout)
    if arguments.output is not None:
        write_arrays(arguments.output, dict(zip(exe.output_names, outputs, strict=True)))
    return 0


def describe(name: str, array: object) -> str:
    """`logits  float32[1, 1000]  min -2.1  max 9.4  mean 0.01`, and how many are not finite."""
    import numpy as np

    values = np.asarray(array)
    head = f"{name}  {values.dtype.name}[{', '.join(map(str, values.shape))}]"
    if not values.size:
        return f"{head}  empty"
    if values.dtype == np.bool_:
        return f"{head}  {int(values.sum())} of {values.size} true"
    wide = values.astype(np.float64)
    bad = int(np.count_nonzero(~np.isfinite(wide)))
    finite = wide[np.isfinite(wide)]
    if not finite.size:
        return f"{head}  no finite value"
    not_finite = f"  {bad} not finite" if bad else ""
    return (f"{head}  min {finite.min():.6g}  max {finite.max():.6g}  "
            f"mean {finite.mean():.6g}{not_finite}")
