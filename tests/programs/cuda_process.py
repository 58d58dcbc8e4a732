"""Compiles a model for CUDA in a process of its own, runs it, and says what that took.

    python tests/programs/cuda_process.py recorded|gpu model.onnx cache inputs.npz outputs.npz

A model's name may also be a file that `save` wrote. Prints JSON: what was launched if it was only
recorded, how many kernels were compiled, and which modules of the compiler were loaded.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

HEAVY = ("xdsl", "triton", "llvmlite", "onnx", "passes", "compiler.pipeline.driver",
         "compiler.frontend.onnx", "targets.cuda.target", "targets.cuda.emit",
         "targets.cuda.planning", "targets.cuda.scheduling")


def main(how: str, model: str, cache: str, inputs: str, outputs: str) -> Mapping[str, Any]:
    import numpy as np

    import compiler
    from targets.cuda.runtime import kernels

    launches, compiled = [], [0]
    if how == "recorded":
        from tests.targets.cuda.fakes.recording_driver import RecordingDriver

        launches = RecordingDriver.placed(setattr).launches
    compile_kernels = kernels.compile_kernels

    def counted(jobs: Any, options: Any) -> Any:
        compiled[0] += len(jobs)
        return compile_kernels(jobs, options)

    setattr(kernels, "compile_kernels", counted)  # noqa: B010
    exe = (compiler.load(model) if not model.endswith(".onnx") else
           compiler.compile(model, target="cuda", cache=cache))
    with np.load(inputs) as given:
        found = [exe(*[given[f"{k}.{n}"] for n in exe.input_names])
                 for k in range(int(given["calls"]))]
    np.savez(outputs, **{f"{k}.{n}": a for k, call in enumerate(found)
                         for n, a in zip(exe.output_names, call, strict=True)})
    return {"launches": launches, "compiled": compiled[0],
            "modules": sorted(name for name in HEAVY if name in sys.modules)}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
