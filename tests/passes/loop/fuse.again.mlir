// PASSES: loop-fuse
// TOLERANCE: 1e-6
// What a few cheap operations compute from narrow arguments, as long as these, is computed again by
// every reader: the differences from a mean, and their products with a gradient.
builtin.module {
  // CHECK: strata.func @normalized
  // CHECK-NEXT: %s = loop.nest (reduce i0: n, i1: 8) ins(%x[i0, i1], %m[i1], %g[i0, i1]) outs(add f32[8][i1]) {
  // CHECK: %z = loop.nest (i0: n, i1: 8) ins(%x[i0, i1], %m[i1], %s[i1]) outs(f32[n, 8][i0, i1]) {
  // CHECK-NOT: loop.nest
  strata.func @normalized(%x: bf16[n, 8], %m: f32[8], %g: bf16[n, 8]) -> (f32[n, 8]) inputs ["x", "m", "g"] outputs ["z"] {
    %d = loop.nest (i0: n, i1: 8) ins(%x[i0, i1], %m[i1]) outs(f32[n, 8][i0, i1]) {
    ^bb0(%p: bf16, %q: f32):
      %v = arith.extf %p : bf16 to f32
      %w = arith.subf %v, %q : f32
      loop.yield %w
    }
    %e = loop.nest (i0: n, i1: 8) ins(%d[i0, i1], %g[i0, i1]) outs(f32[n, 8][i0, i1]) {
    ^bb0(%p: f32, %q: bf16):
      %v = arith.extf %q : bf16 to f32
      %w = arith.mulf %p, %v : f32
      loop.yield %w
    }
    %s = loop.nest (reduce i0: n, i1: 8) ins(%e[i0, i1]) outs(add f32[8][i1]) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    %z = loop.nest (i0: n, i1: 8) ins(%d[i0, i1], %s[i1]) outs(f32[n, 8][i0, i1]) {
    ^bb0(%p: f32, %q: f32):
      %w = arith.subf %p, %q : f32
      loop.yield %w
    }
    strata.return %z
  }
  // Not from wide arguments, not by a call, and not where a product reads an element again.
  // CHECK: strata.func @others
  // CHECK-NEXT: %d = loop.nest
  // CHECK: %e = loop.nest
  // CHECK: %f = loop.nest
  strata.func @others(%x: f32[4, 8], %s: bf16[8, 3], %t: bf16[4, 8]) -> (f32[4], f32[4], f32[4, 3], f32[4], f32[4]) inputs ["x", "s", "t"] outputs ["y", "z", "p", "q", "r"] {
    %d = loop.nest (i0: 4, i1: 8) ins(%x[i0, i1]) outs(f32[4, 8][i0, i1]) {
    ^bb0(%p: f32):
      %w = arith.negf %p : f32
      loop.yield %w
    }
    %e = loop.nest (i0: 4, i1: 8) ins(%t[i0, i1]) outs(f32[4, 8][i0, i1]) {
    ^bb0(%p: bf16):
      %v = arith.extf %p : bf16 to f32
      %w = math.exp %v : f32
      loop.yield %w
    }
    %f = loop.nest (i0: 8, i1: 3) ins(%s[i0, i1]) outs(f32[8, 3][i0, i1]) {
    ^bb0(%p: bf16):
      %v = arith.extf %p : bf16 to f32
      %w = arith.addf %v, %v : f32
      loop.yield %w
    }
    %y = loop.nest (i0: 4, reduce i1: 8) ins(%d[i0, i1]) outs(add f32[4][i0]) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    %z = loop.nest (i0: 4, reduce i1: 8) ins(%d[i0, i1]) outs(max f32[4][i0]) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    %g = loop.nest (i0: 4, i1: 3, reduce i2: 8) ins(%x[i0, i2], %f[i2, i1]) outs(add f32[4, 3][i0, i1]) {
    ^bb0(%p: f32, %q: f32):
      %v = arith.mulf %p, %q : f32
      loop.yield %v
    }
    %h = loop.nest (i0: 4, reduce i1: 8) ins(%e[i0, i1]) outs(add f32[4][i0]) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    %k = loop.nest (i0: 4, reduce i1: 8) ins(%e[i0, i1]) outs(max f32[4][i0]) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    strata.return %y, %z, %g, %h, %k
  }
}
