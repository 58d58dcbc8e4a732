"""The first call of a process on a GPU whose model an earlier process has compiled.

    python benchmarks/cuda/warm_start.py [--only encoder,decoder] [--seconds 500]

Each figure comes from a process of its own, with weights of its own. The first process of a model
and a way has empty caches; those after it find what it has kept. The ways take turns. A process
starts the device and calls the model eagerly before it measures. The columns:

    cold     seconds of the first call in the first process, results on the device included
    warm     the same in later processes: the median
    backend  seconds of the warm call within the backend, without Dynamo and AOTAutograd; 0 where
             PyTorch's caches answer before the backend is asked
    process  seconds of later processes from start to end
    loads    parts of the compiler that the later processes loaded

Ways: `torch.compile` with Strata and with Inductor, whose caches are on; and `compiler.compile` of
an ONNX file. Every result is compared with eager mode. The page is WARM_START.md beside this file.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "torch"))
LATER = 3
PARTS = ("xdsl", "triton", "passes", "torch._inductor.codegen.triton")


# ---------------------------------------------------------------------- models
def encoder() -> tuple[Any, Any]:
    """12 layers as in BERT-base, fp16, 8 sequences of 128 tokens."""
    import torch
    from door import encoder as layers

    return layers(12).cuda().half(), torch.randn(8, 128, 768, device="cuda").half()


def decoder() -> tuple[Any, Any]:
    """16 layers as in Llama-1B, bf16, 512 tokens: grouped heads, gated products, RMSNorm."""
    import torch

    model = torch.nn.Sequential(*(_decoder_layer(2048, 32, 8, 8192) for _ in range(16)))
    return (model.cuda().bfloat16().eval(),
            torch.randn(1, 512, 2048, device="cuda").bfloat16())


def images() -> tuple[Any, Any]:
    """24 residual blocks of convolutions, fp16, channels last, 32 images."""
    import torch

    model = torch.nn.Sequential(*(_image_block(64 << k // 8) for k in range(24)), _Pool())
    stem = torch.nn.Conv2d(3, 64, 7, 2, 3)
    widen = [torch.nn.Conv2d(64 << k, 128 << k, 3, 2, 1) for k in range(2)]
    layers = [stem, *model[:8], widen[0], *model[8:16], widen[1], *model[16:]]
    whole = torch.nn.Sequential(*layers).cuda().half().eval()
    x = torch.randn(32, 3, 128, 128, device="cuda").half()
    form = torch.channels_last
    return whole.to(memory_format=form), x.to(memory_format=form)


def opened() -> tuple[Any, Any]:
    """The encoder with an open number of sequences and tokens."""
    import torch

    model, x = encoder()
    torch._dynamo.mark_dynamic(x, 0)
    torch._dynamo.mark_dynamic(x, 1)
    return model, x


MODELS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "encoder": encoder, "decoder": decoder, "images": images, "open sizes": opened}
WAYS = ("strata", "inductor")


def _decoder_layer(width: int, heads: int, groups: int, inner: int) -> Any:
    import torch
    from torch import nn

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            size = width // heads
            self.before, self.after = nn.RMSNorm(width), nn.RMSNorm(width)
            self.q, self.out = (nn.Linear(width, width, bias=False) for _ in range(2))
            self.k, self.v = (nn.Linear(width, groups * size, bias=False) for _ in range(2))
            self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
            self.down = nn.Linear(inner, width, bias=False)

        def forward(self, x: Any) -> Any:
            y = self.before(x)
            q, k, v = (p(y).unflatten(-1, (-1, width // heads)).transpose(1, 2)
                       for p in (self.q, self.k, self.v))
            mixed = nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=True, enable_gqa=True)
            x = x + self.out(mixed.transpose(1, 2).flatten(2))
            y = self.after(x)
            return x + self.down(torch.nn.functional.silu(self.gate(y)) * self.up(y))

    return Layer()


def _image_block(width: int) -> Any:
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = (nn.Conv2d(width, width, 3, padding=1, bias=False)
                                       for _ in range(2))
            self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(2))

        def forward(self, x: Any) -> Any:
            y = torch.relu(self.norms[0](self.first(x)))
            return torch.relu(x + self.norms[1](self.second(y)))

    return Block()


def _Pool() -> Any:
    from torch import nn

    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())


# ---------------------------------------------------------------------- one process
def one(name: str, way: str, folder: str) -> Mapping[str, Any]:
    """What one process measures. `folder`: for the ONNX file."""
    return onnx_file(folder) if way == "onnx" else through_torch(name, way)


def through_torch(name: str, way: str) -> Mapping[str, Any]:
    import torch
    from door import _timed
    from torch._dynamo.utils import compile_times

    model, x = MODELS[name]()
    seconds = [0.0]
    with torch.no_grad():
        wanted = model(x)
        torch.cuda.synchronize()
        compile_times(repr="csv")
        fast = torch.compile(model, backend=_timed(seconds) if way == "strata" else way)
        started = time.perf_counter()
        found = fast(x)
        torch.cuda.synchronize()
        whole = time.perf_counter() - started
    if way != "strata":
        names, values = compile_times(repr="csv")
        times = dict(zip(names, values, strict=True))
        seconds[0] = sum(float(v) for k in times if k.endswith("compile_fx_inner")
                         for v in times[k].split(","))
    error = float((found.float() - wanted.float()).norm() / wanted.float().norm())
    return {"whole": whole, "backend": seconds[0], "error": error, "loads": _loaded()}


def onnx_file(folder: str) -> Mapping[str, Any]:
    """A stack of 24 products of 1024 columns, with layer norms and GELU, in f16."""
    import numpy as np

    import compiler

    path = Path(folder) / "model.onnx"
    if not path.exists():
        _write_onnx(path)
        time.sleep(3)  # a file that is younger is hashed again
    x = np.ones((64, 1024), np.float16)
    started = time.perf_counter()
    [y] = compiler.compile(path, target="cuda")(x)
    whole = time.perf_counter() - started
    return {"whole": whole, "backend": whole, "error": float(not np.isfinite(y).all()),
            "loads": _loaded()}


def _write_onnx(path: Path) -> None:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    random, nodes, weights = np.random.default_rng(0), list[Any](), list[Any]()
    name = "x"
    for k in range(24):
        w = (random.standard_normal((1024, 1024)) / 32).astype(np.float16)
        weights += [numpy_helper.from_array(w, f"w{k}"),
                    numpy_helper.from_array(np.ones(1024, np.float16), f"s{k}")]
        nodes += [helper.make_node("LayerNormalization", [name, f"s{k}"], [f"n{k}"], axis=-1),
                  helper.make_node("MatMul", [f"n{k}", f"w{k}"], [f"p{k}"]),
                  helper.make_node("Gelu", [f"p{k}"], [f"g{k}"]),
                  helper.make_node("Add", [f"g{k}", name], [f"y{k}"])]
        name = f"y{k}"
    types = [helper.make_tensor_value_info(n, TensorProto.FLOAT16, [64, 1024])
             for n in ("x", name)]
    graph = helper.make_graph(nodes, "stack", types[:1], types[1:], weights)
    onnx.save(helper.make_model(graph, ir_version=10,
                                opset_imports=[helper.make_opsetid("", 20)]), path)


def _loaded() -> list[str]:
    return [name for name in PARTS if name in sys.modules]


# ---------------------------------------------------------------------- all processes
def measured(name: str, ways: Sequence[str], until: float) -> dict[str, dict[str, Any]]:
    """The rows of a model by way, as far as the time goes."""
    rows: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as folder:
        for way in [*ways] * (1 + LATER):
            if time.monotonic() < until:
                rows[way].append(_process(name, way, folder))
    return {way: _row(found) for way, found in rows.items() if len(found) > 1}


def _process(name: str, way: str, folder: str) -> dict[str, Any]:
    root = str(HERE.parents[1])
    caches = {"STRATA_CACHE": f"{folder}/{way}", "TORCHINDUCTOR_CACHE_DIR": f"{folder}/{way}-torch",
              "TRITON_CACHE_DIR": f"{folder}/{way}-triton",
              "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    started = time.perf_counter()
    done = subprocess.run([sys.executable, __file__, "--one", name, way, folder],
                          capture_output=True, text=True, env={**os.environ, **caches})
    if done.returncode:
        sys.exit(f"{name} by {way}: {done.stderr[-3000:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    return {**found, "process": time.perf_counter() - started}


def _row(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    later = found[1:]
    return {"cold": found[0]["whole"],
            **{column: statistics.median(row[key] for row in later) for column, key in (
                ("warm", "whole"), ("backend", "backend"), ("process", "process"))},
            "error": max(row["error"] for row in found),
            "loads": ", ".join(sorted({part for row in later for part in row["loads"]})) or "-"}


def _cells(row: Mapping[str, Any]) -> list[str]:
    times = [f"{row[column]:.2f}" for column in ("cold", "warm", "backend", "process")]
    return [*times, f"{row['error']:.2g}", row["loads"]]


def page(rows: Mapping[str, Mapping[str, Mapping[str, Any]]], left_out: Sequence[str]) -> str:
    from importlib.metadata import version

    import torch

    about = str(__doc__).split("\n\n", 2)[2].rsplit(" The page is", 1)[0]
    lines = ["# The first call of a process on a GPU", "", "```",
             "python benchmarks/cuda/warm_start.py", "```", "", about, "",
             f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, Triton "
             f"{version('triton')}, Python {sys.version.split()[0]}.", "",
             "| model | way | cold | warm | backend | process | error | loads |",
             "|---|---|---:|---:|---:|---:|---:|---|"]
    for name, found in rows.items():
        lines += [f"| {name} | {way} | {' | '.join(_cells(row))} |" for way, row in found.items()]
    if left_out:
        lines += ["", f"Left out for want of time: {', '.join(left_out)}."]
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join([*MODELS, "onnx"]))
    parser.add_argument("--seconds", type=float, default=500.0)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(one(*arguments.one)))
        return
    until, left_out = time.monotonic() + arguments.seconds, list[str]()
    rows: dict[str, dict[str, dict[str, Any]]] = {}
    for name in arguments.only.split(","):
        found = measured(name, ["onnx"] if name == "onnx" else WAYS, until)
        if found:
            rows[name] = found
            (HERE / "WARM_START.md").write_text(page(rows, left_out))
        else:
            left_out.append(name)
    text = page(rows, left_out)
    (HERE / "WARM_START.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
