"""How exact models are: Strata's error and onnxruntime's, both against the model computed in f64.

    STRATA_ZOO=folder python benchmarks/zoo/accuracy.py [--models a,b] [--variants 5] [-o FILE.md]

Each model runs on its first case and on variants of it, in which each number of floating-point
inputs is changed by about a thousandth: a single output of a single run may be exact by luck. The
error of a run is the root of the mean square of its deviations over that of the values expected,
of the worst output; a row tells the root of the mean square over all runs, and the ratio of both.
Both run on one thread. A model that rounds on purpose (quantized, or of halves) has no meaning in
f64 and is left out. Exit status: 1 when Strata is off by more than LIMIT times what onnxruntime is.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from doubles import in_doubles
from inputs import Array, make_inputs

import compiler
from compiler.faults import versions

HERE = Path(__file__).parent
LIMIT = 4.0
"""How many times onnxruntime's error ours may be."""
FLOOR = 2.0 ** -24
"""The error of a number that is only rounded to f32, which is no loss of digits."""
CHANGE = 1e-3


def variant(feeds: dict[str, Array], number: int) -> dict[str, Array]:
    """The inputs with each float changed a little; the first variant is unchanged."""
    if number == 0:
        return feeds
    random = np.random.default_rng(number)
    return {name: array if array.dtype.kind != "f" else (
        np.asarray(array * (1 + CHANGE * random.standard_normal(array.shape)), array.dtype))
        for name, array in feeds.items()}


def error(got: Sequence[Array], want: Sequence[Array]) -> float:
    """The error of the worst output; infinite where NaN or infinities stand elsewhere."""
    return max((_output_error(np.asarray(g), np.asarray(w)) for g, w in zip(got, want, strict=True)
                if np.asarray(w).dtype.kind == "f" and np.asarray(w).size), default=0.0)


def _output_error(got: Array, want: Array) -> float:
    finite = np.isfinite(want)
    if not np.array_equal(finite, np.isfinite(got)):
        return float("inf")
    if not finite.any():
        return 0.0
    wide = got.astype(np.float64)[finite] - want[finite]
    size = float(np.sqrt(np.mean(want[finite] ** 2)))
    return float(np.sqrt(np.mean(wide ** 2))) / (size or 1.0)


def measure(path: Path, feeds: dict[str, Array], variants: int) -> tuple[float, float]:
    """Our error and onnxruntime's."""
    exe = compiler.compile(path, target="cpu", threads=1)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    found = list[tuple[float, float]]()
    for number in range(variants):
        inputs = variant(feeds, number)
        want = in_doubles(path, inputs)
        found.append((error(exe(**inputs), want), error(session.run(None, inputs), want)))
    ours, theirs = np.sqrt(np.mean(np.square(found), axis=0))
    return float(ours), float(theirs)


def rounds_on_purpose(entry: dict[str, Any]) -> bool:
    return bool({"quantized", "fp16"} & set(entry.get("flags", {})))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", metavar="A,B")
    parser.add_argument("--models-json", type=Path)
    parser.add_argument("--variants", metavar="N", type=int, default=5)
    parser.add_argument("-o", dest="output", metavar="FILE.md", type=Path,
                        default=HERE / "ACCURACY.md")
    options = parser.parse_args()
    zoo = Path(os.environ["STRATA_ZOO"])
    onnxruntime.set_default_logger_severity(3)
    described = json.loads((options.models_json or zoo / "models.json").read_text())["models"]
    chosen = None if options.models is None else options.models.split(",")
    lines, worse = list[str](), list[str]()
    for entry in described:
        name, path = entry["name"], zoo / f"{entry['name']}.onnx"
        if not path.exists() or rounds_on_purpose(entry) or (chosen and name not in chosen):
            continue
        ours, theirs = measure(path, make_inputs(entry["cases"][0]), options.variants)
        ratio = max(ours, FLOOR) / max(theirs, FLOOR)
        worse += [name] if ratio > LIMIT else []
        lines.append(f"| {name} | {ours:.1e} | {theirs:.1e} | {ratio:.2f} |")
        print(lines[-1], flush=True)
    header = ["# Accuracy of whole models on the CPU", "",
              f"Made by `python benchmarks/zoo/accuracy.py --variants {options.variants}`; its "
              "docstring says what is", "measured. Errors below 6e-8, which a single rounding "
              "makes, count as 6e-8 in the ratio.", "",
              f"With {', '.join(versions())}.", "",
              "| model | Strata's error | onnxruntime's | ratio |", "|---|---|---|---|"]
    options.output.write_text("\n".join([*header, *lines]) + "\n", encoding="utf-8")
    if worse:
        sys.exit(f"more than {LIMIT} times onnxruntime's error: {', '.join(worse)}")


if __name__ == "__main__":
    main()
