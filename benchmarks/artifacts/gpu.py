"""Libraries for GPUs: as fast as the program in this process, and what they compute alone.

    python benchmarks/artifacts/gpu.py [MODEL...] [--seconds N]

Models are functions of `benchmarks/contrast/gpu_models.py`. Each is compiled in this process and to
a library, for the GPU that is here. Both are called with the same tensors, in turns. A process that
knows neither Strata nor PyTorch loads the library, too (`use_library.py`, by ctypes). Columns:

    code        bytes of the library beside its constants
    device      milliseconds of a call on the device, from cold caches; the median
    call        milliseconds from a call to its result; the median
    outputs     whether all three compute the same, bit by bit

The ratios are what calls take in this process over what those of the library take. The last line
has their geometric means. Exit status: 0 if all outputs are equal, 1 otherwise.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1] / "cuda"))
sys.path.insert(0, str(Path(__file__).parents[1] / "contrast"))

import gpu_models
import numpy as np
import torch
from rows import Setting
from rows.timing import device_times, wall_times

import compiler
from compiler.api import model_of_argument
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from compiler.programs.library import write_library
from targets.library_file import read_facts
from tests.targets.cuda.artifact import use_library

MODELS = ("perceptron", "encoder_small", "residual_small", "encoder", "vision", "residual")
HERE, THERE = "here", "library"


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure libraries for GPUs.")
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--seconds", type=float, default=2.0, help="of calls of a model")
    options = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}\n\n| model | code | constants | device here | device "
          "library | ratio | call here | call library | ratio | outputs |\n|---" + "|---:" * 8 +
          "|---|")
    ratios: list[tuple[float, float]] = []
    bad = 0
    for name in options.models:
        line, found, equal = row(name, Setting(seconds=options.seconds / 2))
        ratios.append(found)
        bad += not equal
        print(line, flush=True)
    device, call = map(statistics.geometric_mean, zip(*ratios, strict=True))
    print(f"| mean | | | | | {device:.3f} | | | {call:.3f} | |")
    return int(bad > 0)


def row(name: str, setting: Setting) -> tuple[str, tuple[float, float], bool]:
    """The line of a model, its ratios, and whether all outputs are equal."""
    module, inputs = getattr(gpu_models, name)()
    program = torch.export.export(module, inputs, strict=False)
    exe = compiler.compile(program, target="cuda")
    major, minor = torch.cuda.get_device_capability()
    with tempfile.TemporaryDirectory() as folder:
        library = written(program, f"sm_{major}{minor}", Path(folder))
        held = read_facts(str(library))["constants"]["bytes"]
        given = [x.cuda() for x in inputs]
        state, call = loaded(library, given)
        calls: dict[str, Callable[[], Any]] = {HERE: lambda: exe(*given), THERE: call}
        device, whole = device_times(calls, setting), wall_times(calls, setting)
        wanted = [np.asarray(y.cpu()) for y in exe(*given)]
        found = [state.fetch(t) for t in call()]
        equal = _same(found, wanted) and _same(alone(library, inputs, Path(folder)), wanted)
        state.close()
        size = library.stat().st_size - held
    ratios = device[HERE] / device[THERE], whole[HERE] / whole[THERE]
    return (f"| {name} | {size / 1e6:.2f} MB | {held / 1e6:.1f} MB | {device[HERE]:.4f} | "
            f"{device[THERE]:.4f} | {ratios[0]:.3f} | {whole[HERE]:.4f} | {whole[THERE]:.4f} | "
            f"{ratios[1]:.3f} | {'equal' if equal else 'unlike'} |"), ratios, equal


def written(program: Any, arch: str, folder: Path) -> Path:
    """The library of an exported program."""
    library = folder / "net.so"
    one = Compiler(model_of_argument(program), CompileOptions(target="cuda", features=arch))
    write_library([one], library, "net", None)
    return library


def loaded(library: Path, given: Sequence[torch.Tensor]) -> tuple[use_library.Library, Any]:
    """A state on PyTorch's stream, and a call of it with these tensors that returns its outputs."""
    state = use_library.Library(str(library), "net")
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    state.check(state.of("set_stream")(state.state, stream))
    inputs = (use_library.Tensor * len(given))(*map(_described, given))
    outputs = (use_library.Tensor * state.of("output_count")())()
    state.check(state.of("bind")(state.state, inputs, len(inputs), outputs, len(outputs)))
    run = state.of("run_bound")

    def call() -> Any:
        state.check(run(state.state))
        return outputs

    return state, call


def _described(x: torch.Tensor) -> use_library.Tensor:
    dtype = use_library.DTYPES[str(x.dtype).removeprefix("torch.")]
    return use_library.Tensor(x.data_ptr(), x.numel() * x.element_size(), dtype, x.dim(),
                              (ctypes.c_int64 * 16)(*x.shape))


def alone(library: Path, inputs: Sequence[torch.Tensor], folder: Path) -> list[np.ndarray]:
    """What a process with NumPy and the library computes."""
    given, wanted = folder / "in.npz", folder / "out.npz"
    np.savez(given, *(np.asarray(x) for x in inputs))
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, use_library.__file__, str(library), "net", str(given), str(wanted)],
        capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(done.stderr)
    with np.load(wanted) as file:
        return [file[k] for k in file.files]


def _same(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> bool:
    return all((one.shape, one.tobytes()) == (other.shape, other.tobytes())
               for one, other in zip(found, wanted, strict=True))


if __name__ == "__main__":
    raise SystemExit(main())
