"""Kernels at the block level, as text, and what tests of them share."""

from __future__ import annotations

from typing import Any

import numpy as np
from xdsl.context import Context
from xdsl.dialects.arith import Arith
from xdsl.dialects.builtin import Builtin
from xdsl.dialects.math import Math
from xdsl.parser import Parser

from dialects.block import KernelOp
from dialects.block.dialect import Block
from dialects.block.interpret import interpret_kernel
from dialects.strata.dialect import Strata
from dialects.strata.types import Array
from dialects.verifying import verify
from tests.symbols import by_symbol

RANDOM = np.random.default_rng(0)


def parse(text: str) -> KernelOp:
    context = Context()
    for dialect in (Builtin, Arith, Math, Strata, Block):
        context.load_dialect(dialect)
    kernel = Parser(context, text).parse_op()
    verify(kernel)
    assert isinstance(kernel, KernelOp)
    return kernel


def randoms(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


def run(text: str, *buffers: Array, exact_order: bool = False, **sizes: int) -> None:
    interpret_kernel(parse(text), buffers, by_symbol(sizes), exact_order=exact_order)


def unlike(shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
    """An output buffer full of a number that no test computes."""
    return np.full(shape, 77, dtype)


FMA = """{
^bb0(%left: f32, %right: f32, %total: f32):
  %product = arith.mulf %left, %right : f32
  %next = arith.addf %total, %product : f32
  block.yield %next
}"""
ADD = """{
^bb0(%left: f32, %right: f32):
  %both = arith.addf %left, %right : f32
  block.yield %both
}"""


def copy_kernel(element: str, tile: str) -> str:
    return f"""
    block.kernel @copy(%x: {element}[n], %y: {element}[n]) grid(%p: n ceildiv 64) sizes(n) {{
      %a = block.load %x[64*%p + t0] check [0] : tile<[64]x{tile}>
      block.store %a, %y[64*%p + t0] check [0]
      block.yield
    }}"""


def gemm(m: int, n: int, k: int) -> str:
    """6x[64] tiles, the rest of the rows in a smaller body."""
    def rows(count: int, first: int, last: int) -> str:
        tile = f"tile<{count}x[64]xf32>"
        return f"""
        block.for %m = {first} to {last} step {count} parallel {{
          %z = block.full 0.0 : {tile}
          %acc = block.for %k = 0 to {k} step 1 unroll 4 (%c = %z) {{
            %a = block.load %A[%m + t0, %k] : tile<{count}xf32>
            %b = block.load %B[%no, %k, t0] : tile<[64]xf32>
            %n = block.map (%a[0], %b[1], %c[0, 1]) : {tile} {FMA}
            block.yield %n
          }}
          %v = block.load %bias[64*%no + t0] : tile<[64]xf32>
          %o = block.map (%acc[0, 1], %v[1]) : {tile} {ADD}
          block.store %o, %Y[%m + t0, 64*%no + t1]
          block.yield
        }}"""

    full = m // 6 * 6
    return f"""
    block.kernel @gemm(%A: f32[{m}, {k}], %B: f32[{n // 64}, {k}, 64], %bias: f32[{n}],
                       %Y: f32[{m}, {n}]) grid(%no: {n // 64}) sizes() {{
      {rows(6, 0, full)}
      {rows(m - full, full, m) if full < m else ""}
      block.yield
    }}"""


def packed(b: Array) -> Array:
    """k x n as n/64 x k x 64."""
    return np.ascontiguousarray(b.reshape(b.shape[0], -1, 64).transpose(1, 0, 2))


CONV = """
block.kernel @conv(%X: f32[2, H, W, C], %Wt: f32[K, K, C, 32], %Y: f32[2, OH, OW, 32])
    grid(%n: 2, %ho: OH, %co: 2) sizes(H, W, C, K, S, P, OH, OW) {
  %z = block.full 0.0 : tile<6x[16]xf32>
  block.for %wo = 0 to OW step 6 parallel {
    %acc = block.for %kh = 0 to K step 1 (%c0 = %z) {
      %acc1 = block.for %kw = 0 to K step 1 (%c1 = %c0) {
        %acc2 = block.for %ci = 0 to C step 1 (%c = %c1) {
          %x = block.load %X[%n, S*%ho + %kh - P, S*%wo + S*t0 + %kw - P, %ci]
              check [1, 2] pad 0.0 : tile<6xf32>
          %w = block.load %Wt[%kh, %kw, %ci, 16*%co + t0] : tile<[16]xf32>
          %r = block.map (%x[0], %w[1], %c[0, 1]) : tile<6x[16]xf32> """ + FMA + """
          block.yield %r
        }
        block.yield %acc2
      }
      block.yield %acc1
    }
    block.store %acc, %Y[%n, %ho, %wo + t0, 16*%co + t1] check [2]
    block.yield
  }
  block.yield
}"""


def convolution(x: Array, w: Array, stride: int, pad: int) -> Array:
    padded = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[:2], (1, 2))
    return np.einsum("nhwcij,ijco->nhwo", windows[:, ::stride, ::stride], w)
