"""Where the time of a model goes on the CPU, kernel by kernel.

    python benchmarks/cpu/profile_model.py MODEL.onnx [--top 20] [--rounds 9] [--dim name=8]
                                             [--precision fast]

The launches run one after another, on one thread, as they do in the model, so that each finds in
the caches what those before it leave there; the median of its CPU time in some rounds counts. For
contractions multiply-adds per second are shown too.
"""

from __future__ import annotations

import argparse
import ctypes
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from compiler.frontend import ImportOptions, load_model
from compiler.pipeline.steps import PIPELINE
from dialects.block import KernelOp
from dialects.host import host_function
from dialects.host.interpret import interpret_host
from dialects.loop import KernelOp as LoopKernelOp
from dialects.strata.types import Array
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.kinds import is_contraction
from passes.registry import parse_passes
from targets.base import TargetOptions, find_target
from targets.cpu.build.cache import ObjectCache
from targets.cpu.build.jit import compile_texts, link
from targets.cpu.driver.frame import FLUSHED, Mode, read_mode, set_mode
from targets.cpu.emit import emit_kernel_text
from targets.cpu.emit.kernel import LINE_BYTES
from targets.cpu.llvm.modules import definitions
from targets.cpu.llvm.native import exported, local
from targets.cpu.machine import machine_of


@exported("flush")
def flush() -> None:
    """From now on denormal floats are zeros on this thread."""
    mode = local(Mode)
    read_mode(mode)
    mode.bits |= FLUSHED
    set_mode(mode)


@dataclass
class Timing:
    """All launches of one kernel in one run of the model."""

    seconds: float = 0.0
    products: float = 0.0
    launches: int = 0
    schedule: str = ""


@dataclass
class Launch:
    """A kernel, its seconds in each round, and its multiply-adds."""

    kernel: KernelOp
    products: float
    seconds: list[float] = field(default_factory=list[float])


@dataclass
class Profile:
    """Runs launches natively and notes their times."""

    kernels: dict[str, Any] = field(default_factory=dict[str, Any])
    products: dict[str, Any] = field(default_factory=dict[str, Any])
    launches: list[Launch] = field(default_factory=list[Launch])
    at: int = 0
    """The launch that comes next."""

    def compile(self, ops: Sequence[KernelOp]) -> None:
        machine = machine_of()
        texts = [emit_kernel_text(op, machine, f"k{n}") for n, op in enumerate(ops)]
        codes = compile_texts([t.module.text for t in texts], machine, ObjectCache(None))
        for op, text, code in zip(ops, texts, codes, strict=True):
            self.kernels[op.sym_name.data] = link([code], text.name)

    def flush_denormals(self) -> None:
        """From now on compute as compiled models do, on x86: small numbers are 0."""
        machine = machine_of()
        if machine.is_x86:
            text = definitions([flush], {}).text
            library = link(compile_texts([text], machine, ObjectCache(None)), "flush")
            ctypes.CFUNCTYPE(None)(library.address)()

    def run(self, op: KernelOp, buffers: Sequence[Array], sizes: dict[Symbol, int]) -> None:
        name = op.sym_name.data
        function = ctypes.CFUNCTYPE(None)(self.kernels[name].address)
        programs = int(np.prod([e.evaluate(sizes) for e in op.grid.data], dtype=np.int64))
        numbers = [*(sizes[s] for s in op.size_names), 0, programs]
        placed = [_aligned(b) for b in buffers]
        arguments = [*(ctypes.c_void_p(b.ctypes.data) for b in placed),
                     *(ctypes.c_int64(n) for n in numbers)]
        start = time.thread_time()
        function(*arguments)
        seconds = time.thread_time() - start
        for buffer, memory in zip(buffers, placed, strict=True):
            if memory is not buffer and buffer.flags.writeable:
                buffer[...] = memory
        if self.at == len(self.launches):
            known = name in self.products
            products = float(self.products[name].evaluate(sizes)) if known else 0.0
            self.launches.append(Launch(op, products))
        self.launches[self.at].seconds.append(seconds)
        self.at += 1

    def timings(self) -> dict[str, Timing]:
        """Per kernel: the medians of its launches, added."""
        found: dict[str, Timing] = {}
        for launch in self.launches:
            op = launch.kernel
            timing = found.setdefault(op.sym_name.data, Timing())
            timing.seconds += median(launch.seconds)
            timing.launches += 1
            timing.products += launch.products
            timing.schedule = op.schedule.text if op.schedule is not None else ""
        return found


def _aligned(buffer: Array) -> Array:
    """The buffer, or a copy of it that begins at a cache line, as kernels take for granted."""
    if buffer.ctypes.data % LINE_BYTES == 0:
        return buffer
    memory = np.empty(buffer.nbytes + LINE_BYTES, np.uint8)
    begin = -memory.ctypes.data % LINE_BYTES
    copy = memory[begin:begin + buffer.nbytes].view(buffer.dtype).reshape(buffer.shape)
    copy[...] = buffer
    return copy


def count_products(ops: Sequence[LoopKernelOp]) -> dict[str, Any]:
    """Multiply-adds of each contraction kernel, over its sizes."""
    from dialects.symbolic.expr import Expr
    from dialects.symbolic.size_products import product

    counts = {op.sym_name.data: [product(a.extent for a in nest.axes)
                                 for nest in op.nests if is_contraction(nest)] for op in ops}
    return {name: sum(parts, start=Expr.of(0)) for name, parts in counts.items() if parts}


def profile(
    path: Path, rounds: int, dims: dict[str, int], inputs: dict[str, Array], precision: str
) -> Profile:
    """Compile a model, run it launch by launch."""
    model = load_model(path, ImportOptions(dims=dims))
    context = find_target("cpu").bind(TargetOptions(precision=precision)).context(model.weights)
    found = Profile()
    for step in PIPELINE:
        if step.name == "loop-to-block":
            found.products = count_products(
                [op for op in model.module.body.block.ops if isinstance(op, LoopKernelOp)])
        for pass_ in parse_passes(step.spec):
            pass_.apply(context, model.module)
    found.compile([op for op in model.module.body.block.ops if isinstance(op, KernelOp)])
    found.flush_denormals()
    func = host_function(model.module)
    arrays = [inputs[n] if n in inputs else _random(a.type) for n, a in
              zip(func.input_names, func.input_arguments, strict=True)]
    for _ in range(rounds):
        found.at = 0
        interpret_host(model.module, arrays, model.weights, found.run)
    return found


def _random(type_: Any) -> Array:
    shape = [s.constant or 1 for s in type_.shape]
    generator = np.random.default_rng(0)
    if np.issubdtype(type_.dtype, np.floating):
        return generator.standard_normal(shape).astype(type_.dtype)
    return generator.integers(0, 2, shape).astype(type_.dtype)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--top", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--dim", action="append", default=[])
    parser.add_argument("--inputs", type=Path)
    parser.add_argument("--precision", default="f32")
    options = parser.parse_args()
    dims = {k: int(v) for k, v in (d.split("=") for d in options.dim)}
    inputs = dict(np.load(options.inputs, allow_pickle=False)) if options.inputs else {}
    found = profile(options.model, options.rounds, dims, inputs, options.precision)
    rows = sorted(found.timings().items(), key=lambda item: -item[1].seconds)
    total = sum(t.seconds for _, t in rows)
    print(f"{total * 1e3:.2f} ms in {sum(t.launches for _, t in rows)} launches")
    for name, timing in rows[: options.top]:
        rate = 2 * timing.products / timing.seconds / 1e9
        print(f"{timing.seconds * 1e3:9.3f} ms {timing.seconds / total:6.1%} x{timing.launches:<3d}"
              f"{rate:8.1f} GFLOP/s  {name}  {timing.schedule}")


if __name__ == "__main__":
    main()
