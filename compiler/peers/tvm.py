"""Apache TVM on the CPU, with its default pipeline: kernels by rules, not tuned by measuring."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from compiler.frontend.torch.library import quiet
from compiler.peers import Request, Run, refusal

PACKAGE, INSTALL = "tvm", "apache-tvm"


def load(request: Request) -> Run:
    """A compiled program of PyTorch. Raises StrataError for a model that it does not take."""
    captured = request.program(PACKAGE)
    tvm, relax = (importlib.import_module(name) for name in ("tvm", "tvm.relax"))
    frontend = importlib.import_module("tvm.relax.frontend.torch")
    tvm.get_global_func("runtime.config_threadpool")(1, request.threads)
    try:
        with quiet():
            module = frontend.from_exported_program(captured.program)
            code = tvm.compile(module, tvm.target.Target({"kind": "llvm", "mcpu": _processor()}))
        main = relax.VirtualMachine(code, tvm.cpu())["main"]
    except Exception as error:  # it has many kinds, of no common class
        raise refusal(PACKAGE, request.model, error) from None
    make = tvm.runtime.tensor if hasattr(tvm.runtime, "tensor") else tvm.nd.array
    named = request.named(captured.input_names)
    inputs = [make(named[name]) for name in captured.input_names]

    def run() -> Sequence[Any]:
        found = main(*inputs)
        return [x.numpy() for x in ([found] if hasattr(found, "numpy") else found)]

    return run


def _processor() -> str:
    from targets.cpu.machine import machine_of

    return machine_of().cpu
