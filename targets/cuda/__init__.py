"""The CUDA target: block kernels become Triton source, and then cubins that we launch.

    target.py     the parts of the target: facts, scheduling, emission, building, running, tuning
    machine.py    what data sheets say about GPUs; `facts/` has what was fitted on a device
    scheduling/   schedules of kernels: memory-bound ones, convolutions, attention; in `products/`
                  matrix products, with a model of their time
    emit/         a kernel as Triton source; in `specialized/` with warp specialization
    build/        source to PTX and cubins, in worker processes; Triton's interpreter
    runtime/      the driver's functions, memory, CUDA graphs, control flow, calls
    libraries/    cuBLASLt and cuDNN, where the user allows them as candidates

Only `build/workers/` imports Triton, in processes of its own. Nothing needs torch, and compiling
needs no GPU.
The target object is created only on request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from targets.cuda.target import CudaTarget

    TARGET: CudaTarget

__all__ = ["TARGET"]


def __getattr__(name: str) -> Any:
    if name != "TARGET":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from targets.cuda.target import CudaTarget

    globals()["TARGET"] = CudaTarget(
        "cuda", ("triton", "ptx", "sass"), "NVIDIA GPUs (sm_80 and newer), through Triton")
    return globals()["TARGET"]
