"""A program that somebody starts to get one result; what rows about whole processes measure.

    python benchmarks/cpu/first_result.py strata|onnxruntime MODEL INPUTS.npz --threads N
                                          [--cache DIR|off] [--more N]
    python benchmarks/cpu/first_result.py compile MODEL --threads N

prints a line when the first result is there (or the model compiled), and, after some more calls,
the most bytes that the process has held.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

STATUS = Path("/proc/self/status")


def first_call(options: argparse.Namespace) -> Any:
    """Make the model ready and call it; a function that calls it again."""
    if options.who == "compile":
        import compiler

        compiler.compile(options.model, target="cpu", threads=options.threads, cache="off")
        return lambda: None
    import numpy as np

    with np.load(options.inputs) as file:
        inputs = {name: file[name] for name in file.files}
    call = (ours if options.who == "strata" else theirs)(options, inputs)
    call()
    return call


def ours(options: argparse.Namespace, inputs: dict[str, Any]) -> Any:
    import compiler

    exe = compiler.compile(options.model, target="cpu", threads=options.threads,
                           cache=options.cache)
    arrays = [inputs[name] for name in exe.input_names]
    return lambda: exe.run(arrays)


def theirs(options: argparse.Namespace, inputs: dict[str, Any]) -> Any:
    import onnxruntime

    settings: Any = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.inter_op_num_threads = options.threads, 1
    settings.log_severity_level = 3
    session: Any = onnxruntime.InferenceSession(options.model, settings,
                                                providers=["CPUExecutionProvider"])
    return lambda: session.run(None, inputs)


def peak() -> int:
    """The most bytes that this process has held; Linux only."""
    line = next(x for x in STATUS.read_text().splitlines() if x.startswith("VmHWM:"))
    return 1024 * int(line.split()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description="Get one result.")
    parser.add_argument("who", choices=("strata", "onnxruntime", "compile"))
    parser.add_argument("model")
    parser.add_argument("inputs", nargs="?")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cache", default="off")
    parser.add_argument("--more", type=int, default=0)
    options = parser.parse_args()
    call = first_call(options)
    print("ready", flush=True)
    for _ in range(options.more):
        call()
    print(peak(), flush=True)


if __name__ == "__main__":
    main()
