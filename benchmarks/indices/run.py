"""What it costs to check the indices that data bring.

    python benchmarks/indices/run.py [NAME ...] [--seconds 3] [--threads 1] [-o FILE.md]

Models with random weights, each compiled twice, as by default and with `check=False`; calls of the
machine code take turns in one process, in changing order, timed by CPU time. Reported are the least
times and their ratio, and the median of the ratios of neighbouring calls, which other work on the
machine moves by more than what is measured. Models named `.._alone` hold nothing but the operator:
the most that a check can cost.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import onnx.parser

import compiler
from compiler.frontend import MemoryModel
from compiler.io.output import write_text

Array = np.ndarray
HEADER = ("| model | checked, us | unchecked, us | ratio | median of ratios |\n"
          "|---|---|---|---|---|\n")


class Model(NamedTuple):
    """The text of an ONNX graph, and its inputs."""

    text: str
    inputs: Sequence[Array]


def random(*shape: int) -> Array:
    return (np.random.default_rng(shape).standard_normal(shape) / 8).astype(np.float32)


def indices(size: int, *shape: int) -> Array:
    return np.random.default_rng(size).integers(0, size, shape)


def bert(layers: int, hidden: int, tokens: int) -> Model:
    """Three embeddings, their sum normalized, then blocks of attention and a perceptron."""
    lines = ["w0 = Gather(words, ids)", "p0 = Gather(places, positions)",
             "t0 = Gather(kinds, types)", "s0 = Add(w0, p0)", "s1 = Add(s0, t0)",
             "h0 = LayerNormalization(s1, gain)"]
    heads = hidden // 64
    for k in range(layers):
        for name in "qkv":
            lines += [f"{name}{k} = MatMul(h{k}, square)",
                      f"{name}r{k} = Reshape({name}{k}, apart)"]
        lines += [f"qt{k} = Transpose<perm = [0, 2, 1, 3]>(qr{k})",
                  f"kt{k} = Transpose<perm = [0, 2, 3, 1]>(kr{k})",
                  f"vt{k} = Transpose<perm = [0, 2, 1, 3]>(vr{k})",
                  f"sc{k} = MatMul(qt{k}, kt{k})", f"pr{k} = Softmax<axis = -1>(sc{k})",
                  f"at{k} = MatMul(pr{k}, vt{k})", f"ab{k} = Transpose<perm = [0, 2, 1, 3]>(at{k})",
                  f"ac{k} = Reshape(ab{k}, joined)", f"ao{k} = MatMul(ac{k}, square)",
                  f"ar{k} = Add(ao{k}, h{k})", f"an{k} = LayerNormalization(ar{k}, gain)",
                  f"up{k} = MatMul(an{k}, wide)", f"ge{k} = Relu(up{k})",
                  f"dn{k} = MatMul(ge{k}, narrow)", f"mr{k} = Add(dn{k}, an{k})",
                  f"h{k + 1} = LayerNormalization(mr{k}, gain)"]
    text = (f"b (int64[n, s] ids, int64[n, s] positions, int64[n, s] types, "
            f"float[30522, {hidden}] words, float[512, {hidden}] places, float[2, {hidden}] kinds, "
            f"float[{hidden}] gain, float[{hidden}, {hidden}] square, "
            f"float[{hidden}, {4 * hidden}] wide, float[{4 * hidden}, {hidden}] narrow) "
            f"=> (float[a, b, c] y) <int64[4] apart = {{1, {tokens}, {heads}, 64}}, "
            f"int64[3] joined = {{1, {tokens}, {hidden}}}> "
            f"{{ {' '.join(lines)} y = Identity(h{layers}) }}")
    return Model(text, [
        indices(30522, 1, tokens), np.arange(tokens)[None], indices(2, 1, tokens),
        random(30522, hidden), random(512, hidden), random(2, hidden),
        np.ones(hidden, np.float32), random(hidden, hidden), random(hidden, 4 * hidden),
        random(4 * hidden, hidden)])


def graph_network(layers: int, nodes: int, edges: int, width: int) -> Model:
    """Messages: rows of nodes at both ends of edges, a layer of each, added up where they end."""
    lines = ["h0 = Identity(x)", "to = Reshape(target, column)"]
    for k in range(layers):
        lines += [f"a{k} = Gather(h{k}, source)", f"b{k} = Gather(h{k}, target)",
                  f"c{k} = Concat<axis = 1>(a{k}, b{k})", f"d{k} = MatMul(c{k}, message)",
                  f"e{k} = Relu(d{k})", f"f{k} = ScatterND<reduction = \"add\">(zeros, to, e{k})",
                  f"g{k} = Concat<axis = 1>(h{k}, f{k})", f"i{k} = MatMul(g{k}, update)",
                  f"h{k + 1} = Relu(i{k})"]
    text = (f"g (float[n, {width}] x, float[n, {width}] zeros, int64[e] source, int64[e] target, "
            f"float[{2 * width}, {width}] message, float[{2 * width}, {width}] update) "
            f"=> (float[a, b] y) <int64[2] column = {{-1, 1}}> "
            f"{{ {' '.join(lines)} y = Identity(h{layers}) }}")
    return Model(text, [random(nodes, width), np.zeros((nodes, width), np.float32),
                        indices(nodes, edges), indices(nodes, edges),
                        random(2 * width, width), random(2 * width, width)])


MODELS: dict[str, Callable[[], Model]] = {
    "bert_4x256_128": lambda: bert(4, 256, 128),
    "bert_2x128_16": lambda: bert(2, 128, 16),
    "graph_3x64_10000": lambda: graph_network(3, 2000, 10000, 64),
    "graph_3x16_10000": lambda: graph_network(3, 2000, 10000, 16),
    "graph_2x32_500": lambda: graph_network(2, 100, 500, 32),
    "gather_64_alone": lambda: Model(
        "g (float[n, 64] x, int64[e] i) => (float[a, b] y) { y = Gather(x, i) }",
        [random(2000, 64), indices(2000, 10000)]),
    "gather_elements_alone": lambda: Model(
        "g (float[n, 64] x, int64[e, 64] i) => (float[a, b] y) { y = GatherElements(x, i) }",
        [random(2000, 64), indices(2000, 2000, 64)]),
    "scatter_16_alone": lambda: Model(
        "g (float[n, 16] x, int64[e, 1] i, float[e, 16] u) => (float[a, b] y) "
        "{ y = ScatterND<reduction = \"add\">(x, i, u) }",
        [random(2000, 16), indices(2000, 10000, 1), random(10000, 16)]),
}


def program(model: Model, check: bool | None, threads: int) -> Callable[[], object]:
    """The call of the machine code."""
    text = '<ir_version: 10, opset_import: ["" : 18]>\n' + model.text
    file = MemoryModel("m.onnx", onnx.parser.parse_model(text).SerializeToString())
    weights = model.inputs
    made = compiler.compile(file, check=check, threads=threads, cache="off")
    return made.loaded.general.native_call(list(weights))  # type: ignore[attr-defined]


def measure(name: str, seconds: float, threads: int) -> str:
    """One row of the table."""
    model = MODELS[name]()
    calls = [program(model, check, threads) for check in (None, False)]
    times: list[list[int]] = [[], []]
    until = time.monotonic() + seconds
    while time.monotonic() < until or len(times[0]) < 7:
        for k in (0, 1) if len(times[0]) % 2 else (1, 0):
            started = time.process_time_ns()
            calls[k]()
            times[k].append(time.process_time_ns() - started)
    ratio = statistics.median(a / b for a, b in zip(*times, strict=True))
    least = [min(t) / 1000 for t in times]
    return (f"| {name} | {least[0]:.1f} | {least[1]:.1f} | {least[0] / least[1]:.3f} | "
            f"{ratio:.3f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", default=list(MODELS))
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    rows: list[str] = []
    for name in arguments.names:
        rows.append(measure(name, arguments.seconds, arguments.threads))
        print(rows[-1], flush=True)
    if arguments.output is not None:
        write_text(HEADER + "\n".join(rows) + "\n", arguments.output)


if __name__ == "__main__":
    main()
