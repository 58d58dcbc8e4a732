"""Block kernels as a CUDA schedule makes them, written by hand, with sizes and inputs.

Used by the tests here, which need no GPU, and by `benchmarks/cuda/selftest.py`, which needs one.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser

from dialects.block import KernelOp, StoreOp
from dialects.context import make_context
from dialects.host import FuncOp, LaunchOp, ReturnOp
from dialects.strata import types as t
from dialects.strata.types import Array, BufferType
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from dialects.verifying import verify
from tests.symbols import by_symbol


@dataclass(frozen=True)
class Sample:
    """A kernel with values for its sizes.

    `limits`: the range of an integer buffer's random values. `tolerance`: relative to the largest
    value of the result.
    """

    text: str
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    limits: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    tolerance: float = 2e-6

    @property
    def values(self) -> dict[Symbol, int]:
        """The values of the kernel's sizes."""
        return by_symbol(self.sizes)

    @property
    def kernel(self) -> KernelOp:
        return kernel_of(self.text)

    @property
    def name(self) -> str:
        return self.kernel.sym_name.data

    def buffers(self, kernel: KernelOp) -> list[Array]:
        """Random contents, the same on every call; what the kernel stores to is zero."""
        stored = {op.buffer for op in kernel.walk() if isinstance(op, StoreOp)}
        rng = np.random.default_rng(zlib.crc32(self.text.encode()))
        return [np.zeros_like(a) if b in stored else a for b in kernel.buffers
                for a in [self._random(rng, b.type, b.name_hint or "")]]

    def _random(self, rng: np.random.Generator, type_: object, name: str) -> Array:
        assert isinstance(type_, BufferType)
        shape = tuple(int(s.evaluate(self.values)) for s in type_.shape)
        if t.is_float(type_.element):
            return rng.standard_normal(shape).astype(type_.dtype)
        if type_.element == t.i1:
            return rng.random(shape) < 0.5
        return rng.integers(*self.limits.get(name, (-9, 9)), shape).astype(type_.dtype)


def as_model(kernel: KernelOp) -> ModuleOp:
    """A model of one launch: what the kernel stores to are its outputs, the rest its inputs."""
    stored = {op.buffer for op in kernel.walk() if isinstance(op, StoreOp)}
    inputs = [b for b in kernel.buffers if b not in stored]
    arguments = [*inputs, *(b for b in kernel.buffers if b in stored)]
    names = [b.name_hint or "" for b in arguments]
    types = [b.type for b in arguments if isinstance(b.type, BufferType)]
    main = FuncOp.of("main", names[: len(inputs)], names[len(inputs):], types, kernel.size_names)
    values = dict(zip(arguments, main.body.block.args, strict=True))
    launch = LaunchOp.of(kernel.sym_name.data, [values[b] for b in kernel.buffers],
                         [Expr.symbol(s) for s in kernel.size_names])
    main.body.block.add_ops([launch, ReturnOp.create()])
    module = ModuleOp([kernel.clone(), main])
    verify(module)
    return module


def parse(text: str) -> ModuleOp:
    module = Parser(make_context(), text).parse_module()
    verify(module)
    return module


def kernel_of(text: str) -> KernelOp:
    """The kernel of a text with one."""
    op = parse(text).body.block.first_op
    assert isinstance(op, KernelOp)
    return op


GELU = """
block.kernel @bias_gelu(%x: f32[n, 300], %bias: f32[300], %y: f32[n, 300])
    grid(%r: n ceildiv 4, %c: 3) sizes(n) schedule<grid i0 tile 4, grid i1 tile 128 | warps = 4> {
  %v = block.load %x[4*%r + t0, 128*%c + t1] check [0, 1] pad 0.0 : tile<4x128xf32>
  %b = block.load %bias[128*%c + t0] check [0] pad 0.0 : tile<128xf32>
  %g = block.map (%v[0, 1], %b[1]) : tile<4x128xf32> {
  ^bb0(%p: f32, %q: f32):
    %half = arith.constant 0.5 : f32
    %root = arith.constant 0.707106769 : f32
    %one = arith.constant 1.0 : f32
    %s = arith.addf %p, %q : f32
    %e = arith.mulf %s, %root : f32
    %f = math.erf %e : f32
    %h = arith.addf %f, %one : f32
    %i = arith.mulf %s, %half : f32
    %j = arith.mulf %i, %h : f32
    block.yield %j
  }
  block.store %g, %y[4*%r + t0, 128*%c + t1] check [0, 1]
  block.yield
}
"""

SOFTMAX = """
block.kernel @softmax(%x: f32[n, 1000], %y: f32[n, 1000]) grid(%r: n ceildiv 2) sizes(n)
    schedule<grid i0 tile 2, whole i1 tile 1024 | warps = 4> {
  %v = block.load %x[2*%r + t0, t1] check [0, 1] pad -inf : tile<2x1024xf32>
  %m = block.reduce max %v dim 1 : tile<2xf32>
  %e = block.map (%v[0, 1], %m[0]) : tile<2x1024xf32> {
  ^bb0(%a: f32, %b: f32):
    %s = arith.subf %a, %b : f32
    %t = math.exp %s : f32
    block.yield %t
  }
  %w = block.valid t1 < 1000 : tile<2x1024xi1>
  %z = block.map (%e[0, 1], %w[0, 1]) : tile<2x1024xf32> {
  ^bb0(%a: f32, %b: i1):
    %zero = arith.constant 0.0 : f32
    %s = arith.select %b, %a, %zero : f32
    block.yield %s
  }
  %s = block.reduce add %z dim 1 : tile<2xf32>
  %q = block.map (%e[0, 1], %s[0]) : tile<2x1024xf32> {
  ^bb0(%a: f32, %b: f32):
    %d = arith.divf %a, %b : f32
    block.yield %d
  }
  block.store %q, %y[2*%r + t0, t1] check [0, 1]
  block.yield
}
"""

ONLINE_SOFTMAX_SUM = """
block.kernel @log_sum_exp(%x: f32[n, c], %y: f32[n]) grid(%r: n) sizes(n, c)
    schedule<grid i0 tile 1, loop i1 tile 64 | warps = 2> {
  %low = block.full -inf : tile<f32>
  %none = block.full 0.0 : tile<f32>
  %m, %s = block.for %k = 0 to c step 64 (%m0 = %low, %s0 = %none) {
    %v = block.load %x[%r, %k + t0] check [1] pad -inf : tile<64xf32>
    %peak = block.reduce max %v dim 0 : tile<f32>
    %m1 = block.map (%m0[], %peak[]) : tile<f32> {
    ^bb0(%a: f32, %b: f32):
      %g = arith.maximumf %a, %b : f32
      block.yield %g
    }
    %e = block.map (%v[0], %m1[]) : tile<64xf32> {
    ^bb0(%a: f32, %b: f32):
      %d = arith.subf %a, %b : f32
      %f = math.exp %d : f32
      block.yield %f
    }
    %t = block.reduce add %e dim 0 : tile<f32>
    %s1 = block.map (%s0[], %t[], %m0[], %m1[]) : tile<f32> {
    ^bb0(%a: f32, %b: f32, %old: f32, %new: f32):
      %d = arith.subf %old, %new : f32
      %f = math.exp %d : f32
      %g = arith.mulf %a, %f : f32
      %h = arith.addf %g, %b : f32
      block.yield %h
    }
    block.yield %m1, %s1
  }
  %l = block.map (%m[], %s[]) : tile<f32> {
  ^bb0(%a: f32, %b: f32):
    %d = math.log %b : f32
    %f = arith.addf %a, %d : f32
    block.yield %f
  }
  block.store %l, %y[%r]
  block.yield
}
"""

LAYER_NORM = """
block.kernel @layer_norm(%x: f16[n, 768], %g: f16[768], %b: f16[768], %y: f16[n, 768])
    grid(%r: n) sizes(n) schedule<grid i0 tile 1, whole i1 tile 1024 | warps = 4> {
  %h = block.load %x[%r, t1] check [1] pad 0.0 : tile<1x1024xf16>
  %v = block.map (%h[0, 1]) : tile<1x1024xf32> {
  ^bb0(%a: f16):
    %f = arith.extf %a : f16 to f32
    block.yield %f
  }
  %sum = block.reduce add %v dim 1 : tile<1xf32>
  %w = block.valid t1 < 768 : tile<1x1024xi1>
  %d = block.map (%v[0, 1], %sum[0], %w[0, 1]) : tile<1x1024xf32> {
  ^bb0(%a: f32, %s: f32, %in: i1):
    %c = arith.constant 768.0 : f32
    %zero = arith.constant 0.0 : f32
    %mean = arith.divf %s, %c : f32
    %f = arith.subf %a, %mean : f32
    %i = arith.select %in, %f, %zero : f32
    block.yield %i
  }
  %sq = block.map (%d[0, 1]) : tile<1x1024xf32> {
  ^bb0(%a: f32):
    %f = arith.mulf %a, %a : f32
    block.yield %f
  }
  %var = block.reduce add %sq dim 1 : tile<1xf32>
  %gamma = block.load %g[t0] check [0] pad 0.0 : tile<1024xf16>
  %beta = block.load %b[t0] check [0] pad 0.0 : tile<1024xf16>
  %o = block.map (%d[0, 1], %var[0], %gamma[1], %beta[1]) : tile<1x1024xf16> {
  ^bb0(%a: f32, %s: f32, %p: f16, %q: f16):
    %c = arith.constant 768.0 : f32
    %eps = arith.constant 1.0e-05 : f32
    %mean = arith.divf %s, %c : f32
    %e = arith.addf %mean, %eps : f32
    %i = math.rsqrt %e : f32
    %j = arith.mulf %a, %i : f32
    %k = arith.extf %p : f16 to f32
    %l = arith.extf %q : f16 to f32
    %m = arith.mulf %j, %k : f32
    %n = arith.addf %m, %l : f32
    %u = arith.truncf %n : f32 to f16
    block.yield %u
  }
  block.store %o, %y[%r, t1] check [1]
  block.yield
}
"""


def matmul(
    element: str, m: int, n: int, k: int, precision: str = "ieee", columns: int = 96,
    warps: int = 4,
) -> str:
    """A matrix product of symbolic m and k, with bias and tanh, in tiles of m x n x k."""
    narrow = "" if element == "f32" else f"%h = arith.truncf %g : f32 to {element}"
    return f"""
block.kernel @matmul_{element}(%A: {element}[m, k], %B: {element}[k, {columns}],
    %bias: f32[{columns}], %Y: {element}[m, {columns}])
    grid(%pm: m ceildiv {m}, %pn: {columns} ceildiv {n}) sizes(m, k)
    schedule<grid i0 tile {m}, grid i1 tile {n}, loop i2 tile {k} | warps = {warps}, stages = 3> {{
  %z = block.full 0.0 : tile<{m}x{n}xf32>
  %acc = block.for %i = 0 to k step {k} (%c = %z) {{
    %a = block.load %A[{m}*%pm + t0, %i + t1] check [0, 1] pad 0.0 : tile<{m}x{k}x{element}>
    %b = block.load %B[%i + t0, {n}*%pn + t1] check [0, 1] pad 0.0 : tile<{k}x{n}x{element}>
    %d = block.dot %a, %b, %c {precision} : tile<{m}x{n}xf32>
    block.yield %d
  }}
  %v = block.load %bias[{n}*%pn + t0] check [0] pad 0.0 : tile<{n}xf32>
  %y = block.map (%acc[0, 1], %v[1]) : tile<{m}x{n}x{element}> {{
  ^bb0(%p: f32, %q: f32):
    %s = arith.addf %p, %q : f32
    %g = math.tanh %s : f32
    {narrow}
    block.yield %{"g" if element == "f32" else "h"}
  }}
  block.store %y, %Y[{m}*%pm + t0, {n}*%pn + t1] check [0, 1]
  block.yield
}}
"""


CONVOLUTION = """
block.kernel @convolution(%X: f16[b, 14, 14, 16], %W: f16[144, 32], %Y: f16[b, 14, 14, 32])
    grid(%p: 196*b ceildiv 64) sizes(b)
    schedule<grid i0 tile 64, whole i1 tile 32, loop i2 tile 16 | warps = 4, stages = 2> {
  %z = block.full 0.0 : tile<64x32xf32>
  %pix = block.index 64*%p + t0 : tile<64xindex>
  %acc = block.for %k = 0 to 144 step 16 (%c = %z) {
    %x = block.load %X[%pix floordiv 196,
                       (%pix mod 196) floordiv 14 + (%k + t1) floordiv 48 - 1,
                       %pix mod 14 + ((%k + t1) mod 48) floordiv 16 - 1,
                       (%k + t1) mod 16] with %pix[0] check [0, 1, 2] pad 0.0 : tile<64x16xf16>
    %w = block.load %W[%k + t0, t1] : tile<16x32xf16>
    %d = block.dot %x, %w, %c ieee : tile<64x32xf32>
    block.yield %d
  }
  %y = block.map (%acc[0, 1]) : tile<64x32xf16> {
  ^bb0(%a: f32):
    %zero = arith.constant 0.0 : f32
    %r = arith.maximumf %a, %zero : f32
    %h = arith.truncf %r : f32 to f16
    block.yield %h
  }
  block.store %y, %Y[%pix floordiv 196, (%pix mod 196) floordiv 14, %pix mod 14, t1]
      with %pix[0] check [0]
  block.yield
}
"""

DEPTHWISE = """
block.kernel @depthwise(%X: f32[1, 9, 9, 24], %W: f32[3, 3, 24], %Y: f32[1, 9, 9, 24])
    grid(%h: 9) sizes() schedule<grid i0 tile 1 | warps = 2> {
  %z = block.full 0.0 : tile<16x32xf32>
  %acc = block.for %i = 0 to 3 step 1 (%c = %z) {
    %inner = block.for %j = 0 to 3 step 1 (%d = %c) {
      %x = block.load %X[0, %h + %i - 1, t0 + %j - 1, t1] check [1, 2, 3] pad 0.0
          : tile<16x32xf32>
      %w = block.load %W[%i, %j, t0] check [2] pad 0.0 : tile<32xf32>
      %n = block.map (%x[0, 1], %w[1], %d[0, 1]) : tile<16x32xf32> {
      ^bb0(%p: f32, %q: f32, %s: f32):
        %m = arith.mulf %p, %q : f32
        %a = arith.addf %m, %s : f32
        block.yield %a
      }
      block.yield %n
    }
    block.yield %inner
  }
  block.store %acc, %Y[0, %h, t0, t1] check [2, 3]
  block.yield
}
"""

EMBEDDING = """
block.kernel @embedding(%ids: i64[n], %table: bf16[50, 72], %y: bf16[n, 72])
    grid(%p: n ceildiv 8) sizes(n) schedule<grid i0 tile 8, whole i1 tile 128 | warps = 4> {
  %i = block.load %ids[8*%p + t0] check [0] pad 0 : tile<8xi64>
  %v = block.load %table[%i, t1] with %i[0] check [1] pad 0.0 : tile<8x128xbf16>
  %w = block.map (%v[0, 1]) : tile<8x128xbf16> {
  ^bb0(%a: bf16):
    %two = arith.constant 2.5 : bf16
    %m = arith.mulf %a, %two : bf16
    %s = arith.addf %m, %a : bf16
    block.yield %s
  }
  block.store %w, %y[8*%p + t0, t1] check [0, 1]
  block.yield
}
"""

TRUTHS = """
block.kernel @truths(%x: i32[n], %m: i1[n], %y: i1[n], %z: i64[n], %u: ui8[n])
    grid(%p: n ceildiv 128) sizes(n) schedule<grid i0 tile 128 | warps = 4> {
  %v = block.load %x[128*%p + t0] check [0] pad 0 : tile<128xi32>
  %b = block.load %m[128*%p + t0] check [0] pad false : tile<128xi1>
  %k = block.index 128*%p + t0 : tile<128xindex>
  %r, %s, %t = block.map (%v[0], %b[0], %k[0], %p[]) : tile<128xi1>, tile<128xi64>, tile<128xi8> {
  ^bb0(%a: i32, %c: i1, %i: index, %id: index):
    %two = arith.constant 2 : i32
    %true = arith.constant true
    %g = arith.cmpi sgt, %a, %two : i32
    %not = arith.xori %c, %true : i1
    %h = arith.andi %g, %not : i1
    %w = arith.extsi %a : i32 to i64
    %j = arith.index_cast %i : index to i64
    %o = arith.index_cast %id : index to i64
    %q = arith.muli %w, %j : i64
    %l = arith.addi %q, %o : i64
    %e = arith.extui %c : i1 to i64
    %f = arith.addi %l, %e : i64
    %d = arith.trunci %a : i32 to i8
    %sh = arith.constant 1 : i8
    %n = arith.shrui %d, %sh : i8
    block.yield %h, %f, %n
  }
  block.store %r, %y[128*%p + t0] check [0]
  block.store %s, %z[128*%p + t0] check [0]
  block.store %t, %u[128*%p + t0] check [0]
  block.yield
}
"""

TRANSPOSE = """
block.kernel @transpose(%x: f32[m, n], %y: f32[n, m]) grid(%p: m ceildiv 32, %q: n ceildiv 64)
    sizes(m, n) schedule<grid i0 tile 32, grid i1 tile 64 | warps = 4> {
  %v = block.load %x[32*%p + t1, 64*%q + t0] check [0, 1] pad 0.0 : tile<64x32xf32>
  %w = block.convert %v : tile<64x32xf32>
  block.store %w, %y[64*%q + t0, 32*%p + t1] check [0, 1]
  block.yield
}
"""

FOUR_AXES = """
block.kernel @four_axes(%x: f64[3, 2, 5, 40], %y: f64[40, 5, 3, 2])
    grid(%a: 3, %b: 2, %c: 5, %d: 40 ceildiv 16) sizes() schedule<grid i0 tile 1 | warps = 1> {
  %v = block.load %x[%a, %b, %c, 16*%d + t0] check [3] pad 0.0 : tile<16xf64>
  %w = block.map (%v[0]) : tile<16xf64> {
  ^bb0(%p: f64):
    %q = math.tanh %p : f64
    %r = arith.divf %q, %p : f64
    block.yield %r
  }
  block.store %w, %y[16*%d + t0, %c, %a, %b] check [0]
  block.yield
}
"""

REDUCTIONS = """
block.kernel @reductions(%x: f32[8, 64], %i: i64[8, 64], %b: i1[8, 64], %p: f32[3, 8],
    %q: i64[5, 8], %r: i1[2, 8]) grid() sizes() schedule<whole i0 tile 8 | warps = 1> {
  %v = block.load %x[t0, t1] : tile<8x64xf32>
  %p0 = block.reduce min %v dim 1 : tile<8xf32>
  %p1 = block.reduce mul %v dim 1 : tile<8xf32>
  %p2 = block.reduce max %v dim 1 : tile<8xf32>
  block.store %p0, %p[0, t0]
  block.store %p1, %p[1, t0]
  block.store %p2, %p[2, t0]
  %w = block.load %i[t0, t1] : tile<8x64xi64>
  %q0 = block.reduce min %w dim 1 : tile<8xi64>
  %q1 = block.reduce max %w dim 1 : tile<8xi64>
  %q2 = block.reduce add %w dim 1 : tile<8xi64>
  %q3 = block.reduce and %w dim 1 : tile<8xi64>
  %q4 = block.reduce or %w dim 1 : tile<8xi64>
  block.store %q0, %q[0, t0]
  block.store %q1, %q[1, t0]
  block.store %q2, %q[2, t0]
  block.store %q3, %q[3, t0]
  block.store %q4, %q[4, t0]
  %u = block.load %b[t0, t1] : tile<8x64xi1>
  %r0 = block.reduce and %u dim 1 : tile<8xi1>
  %r1 = block.reduce or %u dim 1 : tile<8xi1>
  block.store %r0, %r[0, t0]
  block.store %r1, %r[1, t0]
  block.yield
}
"""

UPSAMPLE = """
block.kernel @upsample(%x: f32[b, 7], %y: f32[b, 16]) grid(%p: b) sizes(b)
    schedule<grid i0 tile 1 | warps = 1> {
  %v = block.load %x[%p, (3 - t0) floordiv 2] check [1] pad 1.5 : tile<16xf32>
  %w = block.load %x[%p, (3 - t0) mod 7] : tile<16xf32>
  %u = block.load %x[%p, min(t0, 6)] : tile<16xf32>
  %s = block.map (%v[0], %w[0], %u[0]) : tile<16xf32> {
  ^bb0(%a: f32, %c: f32, %d: f32):
    %e = arith.mulf %a, %c : f32
    %f = arith.addf %e, %d : f32
    block.yield %f
  }
  block.store %s, %y[%p, t0]
  block.yield
}
"""

SWAP = """
block.kernel @fibonacci(%x: f32[2], %y: f32[2]) grid() sizes() schedule<whole i0 tile 1> {
  %a = block.load %x[0] : tile<f32>
  %b = block.load %x[1] : tile<f32>
  %c, %d = block.for %k = 0 to 5 step 1 (%p = %a, %q = %b) {
    %s = block.map (%p[], %q[]) : tile<f32> {
    ^bb0(%u: f32, %v: f32):
      %w = arith.addf %u, %v : f32
      block.yield %w
    }
    block.yield %q, %s
  }
  block.store %c, %y[0]
  block.store %d, %y[1]
  block.for %k = 0 to 0 step 1 parallel {
    block.store %c, %y[%k]
    block.yield
  }
  block.yield
}
"""

SAMPLES = [
    Sample(GELU, {"n": 7}),
    Sample(SOFTMAX, {"n": 5}),
    Sample(ONLINE_SOFTMAX_SUM, {"n": 3, "c": 200}),
    Sample(LAYER_NORM, {"n": 3}, tolerance=1e-3),
    Sample(matmul("f16", 32, 32, 32), {"m": 45, "k": 70}, tolerance=1e-3),
    Sample(matmul("bf16", 16, 64, 32), {"m": 20, "k": 64}, tolerance=1e-2),
    Sample(matmul("f32", 16, 32, 16), {"m": 33, "k": 40}, tolerance=2e-5),
    Sample(CONVOLUTION, {"b": 1}, tolerance=1e-3),
    Sample(DEPTHWISE),
    Sample(EMBEDDING, {"n": 13}, {"ids": (0, 50)}, tolerance=1e-2),
    Sample(TRUTHS, {"n": 300}),
    Sample(TRANSPOSE, {"m": 45, "n": 70}),
    Sample(FOUR_AXES, tolerance=1e-14),
    Sample(REDUCTIONS, tolerance=1e-5),
    Sample(UPSAMPLE, {"b": 2}),
    Sample(SWAP),
]
