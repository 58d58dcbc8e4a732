"""The node of an ONNX model at which its import fails, or that the import gets wrong.

An import that fails is repeated with the first nodes of the model only. What is imported wrong
shows in comparison with onnxruntime, if that is installed: each value of the model is compared.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from compiler.bisection.outcome import Outcome
from compiler.bisection.quiet import QuietCompiler
from compiler.diagnostics import StrataError
from compiler.faults import CompilerFault
from compiler.measuring.comparison import worst
from compiler.reduction.peer import difference, run_onnxruntime

if TYPE_CHECKING:
    from compiler.instrument.verify import Verify
    from compiler.options import CompileOptions
    from dialects.strata.types import Array

SUFFIX = ".onnx"
BOUNDED_UNITS = 4
"""By how many units in the last place of 1 two libraries' values of _BOUNDED may differ."""
_BOUNDED = ("Sigmoid", "Tanh", "Erf")


def is_onnx(model: str) -> bool:
    return model.lower().endswith(SUFFIX) and Path(model).is_file()


def of_first_nodes(arguments: argparse.Namespace, count: int, folder: Path) -> Outcome:
    """What the import of the first nodes leads to: the last of them is the operation."""
    from compiler.cli.arguments import options_from
    from compiler.reduction.candidate import Candidate
    from compiler.reduction.graphs import with_nodes
    from compiler.reduction.reading import read_onnx

    try:
        model = read_onnx(Path(arguments.model))
    except StrataError as error:
        return Outcome("refused", str(error))
    nodes = model.graph.node
    if count > len(nodes):
        return Outcome("refused", "there are no more nodes")
    part = with_nodes(Candidate(model), range(count), {})
    path = folder / "first.onnx"
    assert part is not None
    part.save(path)
    last = nodes[count - 1]
    outcome = Outcome(done=count, operation=last.op_type, nodes=[last.name or last.output[0]])
    try:
        QuietCompiler(str(path), replace(options_from(arguments), cache="off")).read()
    except StrataError as error:
        return replace(outcome, kind="refused", text=str(error))
    except CompilerFault as fault:
        return replace(outcome, kind="fault", text=f"{type(fault.cause).__name__}: {fault.cause}")
    return outcome


def differs_from_peer(model: str, verify: Verify) -> Outcome:
    """The numbers of the imported model against onnxruntime's; right without it."""
    if not is_onnx(model):
        return Outcome()
    theirs = run_onnxruntime(Path(model), verify.named_inputs)
    if theirs is None:
        return Outcome()
    text = difference(verify, theirs)
    return Outcome("peer", text) if text else Outcome()


def first_unlike(name: str, verify: Verify, options: CompileOptions, folder: Path) -> Outcome:
    """The first node of which onnxruntime computes something else, as far as that can be seen."""
    from compiler.reduction.reading import read_onnx
    from compiler.reduction.recording import with_all_outputs

    path, named = folder / "all.onnx", verify.named_inputs
    model = with_all_outputs(read_onnx(Path(name)))
    path.write_bytes(model.SerializeToString())
    names = [info.name for info in model.graph.output]
    ours, theirs = _ours(path, named, options), run_onnxruntime(path, named)
    known = {} if theirs is None else dict(zip(names, theirs, strict=True))
    for number, node in enumerate(model.graph.node, 1):
        units = BOUNDED_UNITS if node.op_type in _BOUNDED else 0
        if any(_is_unlike(ours, known, name, units) for name in node.output if name):
            return Outcome("peer", done=number, operation=node.op_type,
                           nodes=[node.name or node.output[0]])
    return Outcome("peer")


def _ours(
    path: Path, named: Mapping[str, Array], options: CompileOptions
) -> Mapping[str, Array]:
    from compiler.io.signature import signature_of
    from targets.reference.interpret import interpret

    state = QuietCompiler(str(path), options).read()
    signature = signature_of(state.module)
    outputs = interpret(state.module, state.context.weights,
                        [named[name] for name in signature.input_names])
    return dict(zip(signature.output_names, outputs, strict=True))


def _is_unlike(
    ours: Mapping[str, Array], theirs: Mapping[str, Array], name: str, units: int
) -> bool:
    """Whether a value differs. `units` in the last place of 1 are allowed."""
    if name not in ours or name not in theirs:
        return False
    mine, yours = ours[name], theirs[name]
    if mine.shape != yours.shape:
        return True
    coarse = units * float(np.finfo(mine.dtype).eps) if units else 0.0
    return worst([mine], [yours])[1] is not None and not (
        coarse and np.allclose(mine, yours, rtol=0, atol=coarse, equal_nan=True))
