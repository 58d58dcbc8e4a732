"""Peers: other runtimes that `bench` measures, one per file, found by file name.

    PACKAGE: str                          what must be installed
    INSTALL: str                          what pip calls it, if that differs
    def load(request: Request) -> Run     ready to run; a Run is one call, and returns the outputs

A peer gets the same arrays, number of threads, allowed precision and fixed sizes as Strata. It
raises StrataError for a kind of model that it does not support.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler.diagnostics import Problem, StrataError
from compiler.suggestions import hint_for

if TYPE_CHECKING:
    from compiler.frontend.torch.capture import Captured
    from dialects.strata.types import Array

Run = Callable[[], Sequence[Any]]
ONNX_SUFFIX = ".onnx"
LOW_PRECISIONS = ("bf16", "fp8", "fast")
"""The precisions with which peers may compute in bf16."""


@dataclass(frozen=True)
class Request:
    """What a peer is to run, and how.

    `captured`: the model as PyTorch has it, if it is one of PyTorch's. `names`, `inputs`,
    `shapes`: of our inputs in their order; a size that our compiled model leaves open is None.
    `device`: where PyTorch computes, "cpu" or "cuda"; other peers compute on the CPU.
    """

    model: str
    captured: Captured | None
    names: Sequence[str]
    inputs: Sequence[Array]
    shapes: Sequence[tuple[int | None, ...]]
    threads: int
    precision: str = "f32"
    device: str = "cpu"

    @property
    def is_onnx(self) -> bool:
        return self.model.lower().endswith(ONNX_SUFFIX)

    @property
    def is_low_precision(self) -> bool:
        return self.precision in LOW_PRECISIONS

    @property
    def is_dynamic(self) -> bool:
        return any(size is None for shape in self.shapes for size in shape)

    def named(self, own: Sequence[str]) -> dict[str, Array]:
        """The inputs by a peer's own names: matched by name if possible, otherwise in order.

        They are C-contiguous, as runtimes that read files want them."""
        return {name: np.asarray(a, order="C")
                for name, a in self._by_name(own, self.inputs).items()}

    def named_shapes(self, own: Sequence[str]) -> dict[str, tuple[int | None, ...]]:
        return self._by_name(own, self.shapes)

    def program(self, peer: str) -> Captured:
        """The PyTorch model. Raises StrataError if there is none."""
        if self.captured is None:
            raise StrataError(f"{peer} runs models of PyTorch, not {self.model}", [Problem(
                "it takes file.py:function and .pt2",
                hint=f"--against {peer}=FILE.py:FUNCTION names the same model in PyTorch")])
        return self.captured

    def _by_name(self, own: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
        if len(own) > len(values):
            raise StrataError(f"{self.model} has {len(own)} inputs, ours has {len(values)}")
        if set(own) <= set(self.names):
            found = dict(zip(self.names, values, strict=True))
            return {name: found[name] for name in own}
        return dict(zip(own, values, strict=True))


def peer_names() -> list[str]:
    return sorted(m.name for m in pkgutil.iter_modules(__path__))


def parse_peers(text: str) -> dict[str, str | None]:
    """`onnxruntime,torch=twin.py:make` -> peer -> the model it shall run, None for the same.

    Raises StrataError for an unknown peer, or one that is not installed.
    """
    parts = [part.partition("=") for part in filter(None, text.split(","))]
    for name, _, _ in parts:
        _check_installed(name)
    return {name: model or None for name, _, model in parts}


def load_peer(name: str, request: Request) -> Run:
    """Raises StrataError for a model that it does not take, or what else it needs installed."""
    module = importlib.import_module(f"{__name__}.{name}")
    try:
        return module.load(request)
    except ImportError as error:
        raise StrataError(f"{name} lacks a package", [Problem(
            str(error), hint=f"pip install {error.name or module.PACKAGE}")]) from None


def refusal(name: str, model: str, error: Exception) -> StrataError:
    """The error for an exception that a peer raised for a model."""
    return StrataError(f"{name} cannot load {model}", [Problem(str(error))])


def _check_installed(name: str) -> None:
    if name not in peer_names():
        raise StrataError(f"there is no peer '{name}'", [Problem(
            "unknown peer", hint=hint_for(name, peer_names()))])
    module = importlib.import_module(f"{__name__}.{name}")
    if importlib.util.find_spec(module.PACKAGE) is None:
        install = getattr(module, "INSTALL", module.PACKAGE)
        raise StrataError(f"{name} is not installed", [Problem(
            f"there is no package {module.PACKAGE}", hint=f"pip install {install}")])
