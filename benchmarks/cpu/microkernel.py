"""How near generated matrix products come to the processor's peak, on one thread.

    python benchmarks/cpu/microkernel.py [--features avx2|avx512] [--rounds 20]

The peak is measured: independent multiply-adds in registers. Then packed f32 products run, in the
register tiles that fit, as block kernels through the emitter. The best of some rounds counts.
"""

from __future__ import annotations

import argparse
import ctypes
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from xdsl.context import Context
from xdsl.dialects.arith import Arith
from xdsl.dialects.builtin import Builtin
from xdsl.parser import Parser

from dialects.block import KernelOp
from dialects.block.dialect import Block
from dialects.strata.dialect import Strata
from dialects.strata.types import Array
from targets.cpu.build.cache import ObjectCache
from targets.cpu.build.jit import Library, compile_texts, link
from targets.cpu.emit import emit_kernel
from targets.cpu.machine import Machine, machine_of

TILES = {64: ((6, 64), (14, 32), (8, 48), (12, 32)), 32: ((6, 16), (4, 24))}
"""Register tiles (rows, columns) by vector bytes."""

SHAPES = ((1024, 1024, 1024), (128, 768, 3072), (128, 3072, 768), (197, 768, 768))

GEMM = """
block.kernel @gemm(%A: f32[{m}, {k}], %B: f32[{panels}, {k}, {columns}],
                   %Y: f32[{m}, {panels}*{columns}])
    grid(%mo: {m} ceildiv {block}, %no: {panels}) sizes() {{
  block.for %m = {block}*%mo to min({m} - {rest}, {block}*%mo + {block}) step {rows} parallel {{
    {body}
    block.yield
  }}
  block.for %r = max({m} - {rest}, {block}*%mo) to min({m}, {block}*%mo + {block}) step {last} {{
    {tail}
    block.yield
  }}
  block.yield
}}"""

BODY = """
%z{id} = block.full 0.0 : tile<{rows}x[{columns}]xf32>
%acc{id} = block.for %k{id} = 0 to {k} step 1 unroll 2 (%c{id} = %z{id}) {{
  %a{id} = block.load %A[%{row} + t0, %k{id}] : tile<{rows}xf32>
  %b{id} = block.load %B[%no, %k{id}, t0] : tile<[{columns}]xf32>
  %n{id} = block.map (%a{id}[0], %b{id}[1], %c{id}[0, 1]) : tile<{rows}x[{columns}]xf32> {{
  ^bb0(%x: f32, %y: f32, %w: f32):
    %p = arith.mulf %x, %y : f32
    %q = arith.addf %w, %p : f32
    block.yield %q
  }}
  block.yield %n{id}
}}
block.store %acc{id}, %Y[%{row} + t0, {columns}*%no + t1]
"""


def gemm_text(m: int, k: int, n: int, rows: int, columns: int) -> str:
    """A product of m x k and packed k x n; rows that are left over in a smaller body."""
    rest = m % rows
    body = BODY.format(id=0, row="m", rows=rows, columns=columns, k=k)
    tail = BODY.format(id=1, row="r", rows=rest or rows, columns=columns, k=k)
    return GEMM.format(m=m, k=k, panels=n // columns, columns=columns, rows=rows, rest=rest,
                       last=rest or rows, block=96 // rows * rows, body=body, tail=tail)


def parse(text: str) -> KernelOp:
    context = Context()
    for dialect in (Builtin, Arith, Strata, Block):
        context.load_dialect(dialect)
    kernel = Parser(context, text).parse_op()
    assert isinstance(kernel, KernelOp)
    return kernel


def load(text: str, name: str, machine: Machine) -> Library:
    return link(compile_texts([text], machine, ObjectCache(None)), name)


def aligned(*shape: int) -> Array:
    """Random f32 on a cache line's boundary."""
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    raw = np.empty(values.nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    memory = raw[start: start + values.nbytes].view(np.float32).reshape(shape)
    memory[...] = values
    return memory


def best_seconds(call: Callable[[], Any], rounds: int) -> float:
    def once() -> float:
        start = time.perf_counter()
        call()
        return time.perf_counter() - start
    return min(once() for _ in range(rounds))


# ---------------------------------------------------------------------- the peak
def peak_text(machine: Machine, chains: int) -> str:
    """A loop of independent multiply-adds, all in registers."""
    vector = f"<{machine.lanes} x float>"
    names = range(chains)
    phis = [f"  %c{k} = phi {vector} [zeroinitializer, %entry], [%d{k}, %body]" for k in names]
    products = [f"  %d{k} = call {vector} @llvm.fma.v{machine.lanes}f32({vector} %x, "
                f"{vector} %x, {vector} %c{k})" for k in names]
    stores = [f"  store {vector} %d{k}, ptr %memory" for k in names]
    return "\n".join([
        "define void @peak(ptr %memory, i64 %trips) {", "entry:",
        f"  %x = load {vector}, ptr %memory", "  br label %body", "body:",
        "  %k = phi i64 [0, %entry], [%next, %body]", *phis, *products,
        "  %next = add i64 %k, 1", "  %again = icmp slt i64 %next, %trips",
        "  br i1 %again, label %body, label %done", "done:", *stores, "  ret void", "}", ""])


def peak(machine: Machine, rounds: int) -> float:
    """Floating-point operations per second."""
    chains, trips = machine.vector_registers * 3 // 4, 100_000
    library = load(peak_text(machine, chains), "peak", machine)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(library.address)
    memory = aligned(64)
    seconds = best_seconds(lambda: function(memory.ctypes.data, trips), rounds)
    return 2 * chains * machine.lanes * trips / seconds


# ---------------------------------------------------------------------- products
def product_rate(
    machine: Machine, shape: Sequence[int], tile: tuple[int, int], rounds: int
) -> float:
    """Floating-point operations per second of one product; its result is checked."""
    (m, k, n), (rows, columns) = shape, tile
    n = n // columns * columns
    kernel = parse(gemm_text(m, k, n, rows, columns))
    library = load(emit_kernel(kernel, machine), "gemm", machine)
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    function = ctypes.CFUNCTYPE(None, *[pointer] * 3, *[integer] * 2)(library.address)
    a, b, y = aligned(m, k), aligned(n // columns, k, columns), aligned(m, n)
    programs = int(np.prod([e.constant for e in kernel.grid.data]))
    addresses = [x.ctypes.data for x in (a, b, y)]
    seconds = best_seconds(lambda: function(*addresses, 0, programs), rounds)
    np.testing.assert_allclose(y, a @ b.transpose(1, 0, 2).reshape(k, n), atol=1e-2)
    return 2 * m * k * n / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--features", choices=("avx2", "avx512"))
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    machine = machine_of(options.features)
    best = peak(machine, options.rounds)
    print(f"{machine.name}; peak {best / 1e9:.1f} GFLOP/s")
    for shape in SHAPES:
        for tile in TILES[machine.vector_bytes]:
            rate = product_rate(machine, shape, tile, options.rounds)
            print(f"{'x'.join(map(str, shape)):>14}  tile {tile[0]:2}x{tile[1]:2}  "
                  f"{rate / 1e9:6.1f} GFLOP/s  {100 * rate / best:5.1f}% of peak")


if __name__ == "__main__":
    main()
