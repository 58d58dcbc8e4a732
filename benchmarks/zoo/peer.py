"""onnxruntime as the zoo's peer: one thread, on the CPU."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from inputs import Array

THREADS = 1


def onnxruntime_call(model: Path) -> Callable[[Mapping[str, Array]], list[Array]]:
    """A function from inputs, by name, to outputs in order."""
    runtime: Any = importlib.import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = THREADS
    options.log_severity_level = 3
    session = runtime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return lambda feeds: session.run(None, dict(feeds))
