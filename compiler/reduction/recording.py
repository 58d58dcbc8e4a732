"""Records every value of a model on its inputs, so that parts of the model can start from them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import onnx
from onnx import helper

from compiler.io.output import npz_bytes, write_bytes
from compiler.reduction.peer import run_onnxruntime
from compiler.reduction.verdict import Question, arrange

if TYPE_CHECKING:
    from dialects.strata.types import Array


def record(model: Path, inputs: Mapping[str, Array], question: Question, to: Path) -> int:
    """Write the arrays by name, and return their number. Uses onnxruntime, else the reference."""
    proto: onnx.ModelProto = cast(Any, onnx).load(str(model))
    extended = with_all_outputs(proto)
    names = [info.name for info in extended.graph.output]
    opened = model.with_name("recorded.onnx")
    opened.write_bytes(extended.SerializeToString())
    named = _inputs(model, inputs, question)
    found: list[Any] | None = run_onnxruntime(opened, named)
    if found is None:
        found = _by_reference(opened, named, question)
    arrays: dict[str, Array] = {n: a for n, a in zip(names, found or [], strict=False)
                                if isinstance(a, np.ndarray)}
    write_bytes(to, npz_bytes({**named, **arrays}))
    return len(arrays)


def with_all_outputs(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model with each value of its graph among the outputs."""
    extended = onnx.ModelProto()
    extended.CopyFrom(proto)
    there = {info.name for info in extended.graph.output}
    for node in extended.graph.node:
        extended.graph.output.extend(helper.make_empty_tensor_value_info(name)
                                 for name in node.output if name and name not in there)
    return extended


def _inputs(model: Path, inputs: Mapping[str, Array], question: Question) -> dict[str, Array]:
    """All inputs of the model by name."""
    from compiler.io.signature import signature_of

    signature = signature_of(question.compiler(model).read().module)
    arrays = arrange(signature, inputs, question)
    return dict(zip(signature.input_names, arrays, strict=True))


def _by_reference(
    opened: Path, named: Mapping[str, Array], question: Question
) -> list[Any] | None:
    from compiler.diagnostics import StrataError
    from compiler.io.signature import signature_of
    from dialects.strata.assumptions import SizeError
    from dialects.strata.binding import EvaluationError
    from targets.reference.interpret import interpret

    try:
        state = question.compiler(opened).read()
        order = signature_of(state.module).input_names
        return interpret(state.module, state.context.weights, [named[n] for n in order])
    except (StrataError, EvaluationError, SizeError):
        return None
