"""The compiler: from a model, as people keep it, to something that runs.

    import compiler
    exe = compiler.compile("model.onnx", target="cpu")
    outputs = exe(x)
    compiler.tune("model.onnx")             later compilations use what it finds

Importing this package loads nothing else; the first use does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compiler.api import Executable, compile
    from compiler.options import Specialize
    from compiler.tuning.api import tune

__version__ = "0.1.0"
__all__ = ["Executable", "Specialize", "__version__", "compile", "tune"]

_HOMES = {"Executable": "compiler.api", "compile": "compiler.api",
          "Specialize": "compiler.options", "tune": "compiler.tuning.api"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from compiler.own_packages import check_packages

        check_packages()
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
