"""The options with which `torch.compile` made a program, in our own words.

PyTorch keeps a backend's `mode` and `options` in the callable that it wraps around the backend. A
module holds its context; a function has it among the variables that it closes over.
"""

from __future__ import annotations

import inspect
from typing import Any

from compiler.torch.vocabulary.translation import translated


def chosen_of(fn: Any) -> dict[str, Any]:
    """The options of a program that `torch.compile(fn, backend="strata")` returned; none for
    programs that are not compiled or have another backend. Raises StrataError."""
    context = getattr(fn, "dynamo_ctx", None)
    if context is None and inspect.isfunction(fn):
        context = inspect.getclosurevars(fn).nonlocals.get("self")
    backend = getattr(context, "callback", None)
    while backend is not None:
        if getattr(backend, "compiler_name", None) == "strata":
            return dict(translated(backend.kwargs.get("mode"), backend.kwargs.get("options")))
        backend = getattr(backend, "_torchdynamo_orig_backend", getattr(
            backend, "_torchdynamo_orig_callable", None))
    return {}
