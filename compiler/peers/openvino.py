"""OpenVINO's CPU plugin: one stream, for latency, in f32 unless a lower precision is permitted.

Pinning threads to cores is off, because other runtimes in the process share them.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from compiler.diagnostics import StrataError
from compiler.frontend.torch.library import quiet
from compiler.peers import Request, Run, refusal

if TYPE_CHECKING:
    from dialects.strata.types import Array

PACKAGE = "openvino"


def load(request: Request) -> Run:
    """A compiled model with a request. Raises StrataError for a model that it does not take."""
    openvino = _module()
    try:
        core = openvino.Core()
        model = _read(openvino, core, request)
        _fix_sizes(model, request)
        compiled = core.compile_model(model, "CPU", _properties(request))
    except StrataError:
        raise
    except Exception as error:  # mostly RuntimeError, with several lines
        raise refusal(PACKAGE, request.model, error) from None
    inputs = request.named(_names(compiled))
    call = compiled.create_infer_request()

    def run() -> Sequence[Array]:
        return call.infer(inputs, share_inputs=True, share_outputs=True).to_tuple()

    return run


def _module() -> Any:
    """OpenVINO, whose import would report to its makers if it found the package for that."""
    cast(dict[str, Any], sys.modules).setdefault("openvino_telemetry", None)
    return importlib.import_module("openvino")


def _properties(request: Request) -> Mapping[str, Any]:
    return {
        "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1, "INFERENCE_NUM_THREADS": request.threads,
        "INFERENCE_PRECISION_HINT": "bf16" if request.is_low_precision else "f32",
        "ENABLE_HYPER_THREADING": True, "ENABLE_CPU_PINNING": False,
    }


def _read(openvino: Any, core: Any, request: Request) -> Any:
    if request.is_onnx:
        return core.read_model(request.model)
    if request.captured is None:
        raise StrataError(f"openvino runs .onnx files and models of PyTorch, not {request.model}")
    with quiet():
        model = openvino.convert_model(request.captured.program)
    for parameter in model.get_parameters():  # other arguments than tensors are constants by now
        if not parameter.output(0).get_target_inputs():
            model.remove_parameter(parameter)
    return model


def _fix_sizes(model: Any, request: Request) -> None:
    """Sizes that we know are known to OpenVINO as well."""
    known = request.named_shapes(_names(model)).values()
    new = {i.any_name: [-1 if size is None else size for size in shape]
           for i, shape in zip(model.inputs, known, strict=True)
           if i.partial_shape.is_dynamic and _tells(i.partial_shape, shape)}
    if new:
        model.reshape(new)


def _tells(own: Any, shape: Sequence[int | None]) -> bool:
    """Whether a shape has a size that the model's own has not."""
    return own.rank.is_dynamic or any(
        size is not None and dim.is_dynamic for dim, size in zip(own, shape, strict=True))


def _names(model: Any) -> list[str]:
    return [i.any_name for i in model.inputs]
