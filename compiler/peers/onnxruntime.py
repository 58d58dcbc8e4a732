"""onnxruntime on the CPU, with its default optimizations."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from compiler.diagnostics import Problem, StrataError

if TYPE_CHECKING:
    from dialects.types import Array

PACKAGE = "onnxruntime"


@dataclass
class OnnxRuntime:
    """An inference session."""

    session: Any

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        return self.session.run(None, dict(inputs))


def load(model: str, threads: int) -> OnnxRuntime:
    """A session on `threads` threads. Raises StrataError for a model that it does not take."""
    onnxruntime: Any = importlib.import_module("onnxruntime")
    if not model.endswith(".onnx"):
        raise StrataError(f"onnxruntime runs .onnx files, not {model}")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # it has many kinds, of no common class
        raise StrataError(f"onnxruntime cannot load {model}", [Problem(str(error))]) from None
    return OnnxRuntime(session)
