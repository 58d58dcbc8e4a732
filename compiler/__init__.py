"""The compiler: turns a model file or object into an executable.

    import compiler
    exe = compiler.compile("model.onnx", target="cpu")
    outputs = exe(x)
    exe.save("model.strata")                a later process calls compiler.load("model.strata")
    compiler.profile(exe, x)                how long each kernel takes
    compiler.explain(exe)                   its kernels, and what was not fused, and why
    compiler.tune("model.onnx")             later compilations use the schedules that it finds
    compiler.free_graphs()                  lets NCCL end; see `targets/cuda/libraries/leaving.py`

Importing this package loads nothing else; modules are imported on first use.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

from compiler.version import __version__

if TYPE_CHECKING:
    from compiler.api import compile, load
    from compiler.diagnostics import StrataError
    from compiler.executable import Executable
    from compiler.explaining.api import explain
    from compiler.faults import CompilerFault
    from compiler.frontend import MemoryModel
    from compiler.fx.api import to_fx
    from compiler.options import CompileOptions, Specialize
    from compiler.profiling.measure import profile
    from compiler.tuning.api import tune
    from dialects.strata.assumptions import (
        AccessError,
        DivisionByZeroError,
        IndexRangeError,
        SizeError,
    )
    from targets.cuda.libraries.leaving import free_graphs

__all__ = ["AccessError", "CompileOptions", "CompilerFault", "DivisionByZeroError", "Executable",
           "IndexRangeError", "MemoryModel", "SizeError", "Specialize", "StrataError",
           "__version__", "compile", "explain", "free_graphs", "load", "profile", "to_fx", "tune"]

_HOMES = {"Executable": "compiler.executable", "compile": "compiler.api",
          "load": "compiler.api", "to_fx": "compiler.fx.api",
          "CompileOptions": "compiler.options", "Specialize": "compiler.options",
          "MemoryModel": "compiler.frontend", "tune": "compiler.tuning.api",
          "profile": "compiler.profiling.measure", "explain": "compiler.explaining.api",
          "free_graphs": "targets.cuda.libraries.leaving",
          "StrataError": "compiler.diagnostics", "CompilerFault": "compiler.faults",
          "AccessError": "dialects.strata.assumptions", "SizeError": "dialects.strata.assumptions",
          "IndexRangeError": "dialects.strata.assumptions",
          "DivisionByZeroError": "dialects.strata.assumptions"}

if not TYPE_CHECKING:  # to type checkers a name that is not imported above is an error

    def __getattr__(name: str) -> object:
        if name in _HOMES:
            from compiler.plugins.own_packages import check_packages

            check_packages()
            return getattr(_imported(_HOMES[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def _imported(home: str) -> object:
        """A module. Its import makes many objects that stay, which no collection need visit."""
        if home in sys.modules:
            return importlib.import_module(home)
        from compiler.programs.collection import rare_collections

        with rare_collections():
            return importlib.import_module(home)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
