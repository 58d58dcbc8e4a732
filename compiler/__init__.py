"""The compiler: from a model, as people keep it, to something that runs.

    import compiler
    exe = compiler.compile("model.onnx", target="cpu")
    outputs = exe(x)

Importing this package loads nothing else; the first use does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compiler.api import Executable, compile

__version__ = "0.1.0"
__all__ = ["Executable", "__version__", "compile"]


def __getattr__(name: str) -> Any:
    if name in ("Executable", "compile"):
        return getattr(importlib.import_module("compiler.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
