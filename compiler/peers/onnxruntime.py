"""onnxruntime on the CPU, with its default optimizations.

Its threads only spin during a call, so that a waiting session does not take processor time from
other runtimes. A PyTorch model is exported to a temporary file. There is no lower precision on
x86: it always computes in the model's own types.
"""

from __future__ import annotations

import importlib
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compiler.diagnostics import StrataError
from compiler.frontend.torch.library import quiet
from compiler.peers import Request, Run, refusal

if TYPE_CHECKING:
    from dialects.strata.types import Array

PACKAGE = "onnxruntime"


def load(request: Request) -> Run:
    """A session on the request's threads. Raises StrataError for a model that it does not take."""
    if request.is_onnx:
        session = _session(request, request.model)
    else:
        with tempfile.TemporaryDirectory() as folder:
            session = _session(request, str(_exported(request, Path(folder) / "model.onnx")))
    inputs = request.named([i.name for i in session.get_inputs()])

    def run() -> Sequence[Array]:
        return session.run(None, inputs)

    return run


def _session(request: Request, file: str) -> Any:
    """A session that knows the sizes that are fixed."""
    session = _open(request, file, {})
    sizes = _fixed_sizes(request, {i.name: i.shape for i in session.get_inputs()})
    return _open(request, file, sizes) if sizes else session


def _fixed_sizes(request: Request, own: Mapping[str, Sequence[Any]]) -> dict[str, int]:
    """The sizes that the file names and we know; not a name such as `?` that stands for several."""
    pairs = {(name, size) for key, known in request.named_shapes(list(own)).items()
             for name, size in zip(own[key], known, strict=True)
             if isinstance(name, str) and size is not None}
    count = Counter(name for name, _ in pairs)
    return {name: size for name, size in pairs if count[name] == 1}


def _open(request: Request, file: str, sizes: dict[str, int]) -> Any:
    runtime: Any = importlib.import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = request.threads, 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.force_spinning_stop", "1")
    for name, size in sizes.items():
        options.add_free_dimension_override_by_name(name, size)
    try:
        return runtime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # it has many kinds, of no common class
        raise refusal(PACKAGE, request.model, error) from None


def _exported(request: Request, file: Path) -> Path:
    """The model of PyTorch as a file. Raises ImportError without onnxscript."""
    if request.captured is None:
        raise StrataError(f"onnxruntime runs .onnx files and models of PyTorch, not "
                          f"{request.model}")
    torch: Any = importlib.import_module("torch")
    importlib.import_module("onnxscript")
    try:
        with quiet():
            torch.onnx.export(request.captured.program, (), str(file), dynamo=True, verbose=False)
    except Exception as error:
        raise refusal("torch.onnx.export", request.model, error) from None
    return file
