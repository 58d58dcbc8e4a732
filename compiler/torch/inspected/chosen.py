"""The options with which `torch.compile` made a program, in our own words.

PyTorch keeps a backend's `mode` and `options` in the callable that it wraps around the backend. A
module holds its context; a function has it among the variables that it closes over.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from compiler.frontend.torch import in_memory
from compiler.torch.vocabulary.translation import translated


@dataclass(frozen=True)
class Chosen:
    """What a program was made with. `options`: those of `compiler.compile` that its `mode` and
    `options` stand for. `dynamic`, `fullgraph`: as for `torch.compile`."""

    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    dynamic: bool | None = None
    fullgraph: bool = False


def chosen_of(fn: Any) -> Chosen | None:
    """The choices of a program that `torch.compile(fn, backend="strata")` returned, or of a module
    after `module.compile(backend="strata")`; None for programs that are not compiled or have
    another backend. Raises StrataError."""
    fn = getattr(fn, "_compiled_call_impl", None) or fn
    context = getattr(fn, "dynamo_ctx", None)
    if context is None and inspect.isfunction(fn):
        context = inspect.getclosurevars(fn).nonlocals.get("self")
    backend = getattr(context, "callback", None)
    while backend is not None:
        if getattr(backend, "compiler_name", None) == "strata":
            options = translated(backend.kwargs.get("mode"), backend.kwargs.get("options"))
            return Chosen(options, getattr(context, "_dynamic", None),
                          bool(getattr(context, "fullgraph", False)))
        backend = getattr(backend, "_torchdynamo_orig_backend", getattr(
            backend, "_torchdynamo_orig_callable", None))
    return None


def is_program(fn: Any) -> bool:
    """Whether something is a module or a function of PyTorch, and not a model that is a file or
    exported. False where torch is not imported."""
    torch = sys.modules.get("torch")
    return (torch is not None and callable(fn) and not isinstance(fn, type)
            and in_memory(fn) is None)


def plain_of(fn: Any) -> Any:
    """The program that `torch.compile` was given; others as they are."""
    if getattr(fn, "_compiled_call_impl", None) is not None:
        return fn._call_impl
    return getattr(fn, "_orig_mod", getattr(fn, "_torchdynamo_orig_callable", fn))
