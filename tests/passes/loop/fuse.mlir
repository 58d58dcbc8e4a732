// PASSES: loop-fuse
// Producers are computed in their readers, and what only moves data vanishes into index maps.
builtin.module {
  // Inline: one nest, with both bodies. It has one input: %x is read once though it is named twice.
  // CHECK: strata.func @chain
  // CHECK-NEXT: loop.nest (i0: n, i1: 8) ins(%x[i0, i1]) outs(f32[n, 8][i0, i1]) {
  // CHECK-NEXT: ^{{.*}}(%{{[0-9]+}}: f32):
  // CHECK-NEXT: math.exp
  // CHECK-NEXT: arith.mulf
  // CHECK-NEXT: loop.yield
  // CHECK-NOT: loop.nest
  strata.func @chain(%x: f32[n, 8]) -> (f32[n, 8]) inputs ["x"] outputs ["r"] {
    %e = loop.nest (i0: n, i1: 8) ins(%x[i0, i1]) outs(f32[n, 8][i0, i1]) {
    ^bb0(%p: f32):
      %v = math.exp %p : f32
      loop.yield %v
    }
    %r = loop.nest (i0: n, i1: 8) ins(%e[i0, i1], %x[i0, i1]) outs(f32[n, 8][i0, i1]) {
    ^bb0(%p: f32, %q: f32):
      %v = arith.mulf %p, %q : f32
      loop.yield %v
    }
    strata.return %r
  }
  // Two readers, or a reader that reads elements again: computed once, so kept.
  // CHECK: strata.func @shared
  // CHECK: math.exp
  // CHECK: loop.nest
  // CHECK: loop.nest (i0: 8, i1: 4)
  strata.func @shared(%x: f32[8]) -> (f32[8], f32[8, 4]) inputs ["x"] outputs ["r", "s"] {
    %e = loop.nest (i0: 8) ins(%x[i0]) outs(f32[8][i0]) {
    ^bb0(%p: f32):
      %v = math.exp %p : f32
      loop.yield %v
    }
    %r = loop.nest (i0: 8) ins(%e[i0]) outs(f32[8][i0]) {
    ^bb0(%p: f32):
      %v = math.sin %p : f32
      loop.yield %v
    }
    %s = loop.nest (i0: 8, i1: 4) ins(%e[i0]) outs(f32[8, 4][i0, i1]) {
    ^bb0(%p: f32):
      %v = math.cos %p : f32
      loop.yield %v
    }
    strata.return %r, %s
  }
  // CHECK: strata.func @repeated
  // CHECK: math.exp
  // CHECK: loop.nest (i0: 8, i1: 4)
  strata.func @repeated(%x: f32[8]) -> (f32[8, 4]) inputs ["x"] outputs ["s"] {
    %e = loop.nest (i0: 8) ins(%x[i0]) outs(f32[8][i0]) {
    ^bb0(%p: f32):
      %v = math.exp %p : f32
      loop.yield %v
    }
    %s = loop.nest (i0: 8, i1: 4) ins(%e[i0]) outs(f32[8, 4][i0, i1]) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    strata.return %s
  }
  // A copy may be repeated: a transposed and reversed read.
  // CHECK: strata.func @copies
  // CHECK-NEXT: loop.nest (i0: 8, i1: n, i2: 3) ins(%x[i1, -i0 + 7]) outs(f32[8, n, 3][i0, i1, i2])
  // CHECK-NOT: loop.nest
  strata.func @copies(%x: f32[n, 8]) -> (f32[8, n, 3]) inputs ["x"] outputs ["s"] {
    %t = loop.nest (i0: 8, i1: n) ins(%x[i1, 7 - i0]) outs(f32[8, n][i0, i1]) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    %s = loop.nest (i0: 8, i1: n, i2: 3) ins(%t[i0, i1]) outs(f32[8, n, 3][i0, i1, i2]) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    strata.return %s
  }
  // Views become index arithmetic; one of another becomes one; the last one stays.
  // CHECK: strata.func @views
  // CHECK-NEXT: loop.nest (i0: n, i1: 2, i2: 4) ins(%x[i0, 4*i1 + i2]) outs(f32[n, 2, 4][i0, i1, i2])
  // CHECK: loop.view %{{.*}} : f32[2*n, 4]
  // CHECK-NEXT: strata.return
  strata.func @views(%x: f32[n, 8]) -> (f32[2*n, 4]) inputs ["x"] outputs ["s"] {
    %v = loop.view %x : f32[8*n]
    %w = loop.view %v : f32[n, 2, 4]
    %e = loop.nest (i0: n, i1: 2, i2: 4) ins(%w[i0, i1, i2]) outs(f32[n, 2, 4][i0, i1, i2]) {
    ^bb0(%p: f32):
      %q = math.exp %p : f32
      loop.yield %q
    }
    %f = loop.view %e : f32[8*n]
    %r = loop.view %f : f32[2*n, 4]
    strata.return %r
  }
  // The producer of a copied tensor stores in the copy's order.
  // CHECK: strata.func @forward
  // CHECK-NEXT: loop.nest (i0: n, i1: 4, reduce i2: 8) ins(%x[i0, i1, i2]) outs(add f32[4, n][i1, i0])
  // CHECK-NOT: loop.nest
  strata.func @forward(%x: f32[n, 4, 8]) -> (f32[4, n]) inputs ["x"] outputs ["s"] {
    %t = loop.nest (i0: n, i1: 4, reduce i2: 8) ins(%x[i0, i1, i2]) outs(add f32[n, 4][i0, i1]) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    %s = loop.nest (i0: 4, i1: n) ins(%t[i1, i0]) outs(f32[4, n][i0, i1]) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    strata.return %s
  }
  // Axes of extent 1 go; a sum over one element is the element.
  // CHECK: strata.func @units
  // CHECK-NEXT: loop.nest (i1: n) ins(%x[0, i1]) outs(f32[1, n][0, i1])
  strata.func @units(%x: f32[1, n]) -> (f32[1, n]) inputs ["x"] outputs ["s"] {
    %s = loop.nest (i0: 1, i1: n, reduce i2: 1) ins(%x[i2, i1]) outs(add f32[1, n][i0, i1]) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    strata.return %s
  }
  // A padded read passes through a permutation, but not through what makes new dims: outside of
  // these the pad is read, and %x has no outside there. Nor does arithmetic commute with a pad.
  // CHECK: strata.func @pads
  // CHECK-NEXT: loop.nest (i0: n + 2, i1: 4) ins(%x[i1, i0 - 1] pad 1.0)
  // CHECK: loop.nest (i0: 3, i1: n)
  // CHECK: loop.nest (i0: 5, i1: n) ins(%{{.*}}[i0 - 1, i1] pad 1.0)
  // CHECK: math.exp
  // CHECK: loop.nest (i0: n + 1) ins(%{{.*}}[i0 - 1] pad 1.0)
  // CHECK: loop.view
  // CHECK: loop.nest (i0: 2, i1: n) ins(%{{.*}}[i0, i1] pad 1.0)
  strata.func @pads(%x: f32[4, n], %y: f32[n]) -> (f32[n + 2, 4], f32[5, n], f32[n + 1], f32[2, n]) inputs ["x", "y"] outputs ["a", "b", "c", "d"] {
    %t = loop.nest (i0: n, i1: 4) ins(%x[i1, i0]) outs(f32[n, 4][i0, i1]) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    %a = loop.nest (i0: n + 2, i1: 4) ins(%t[i0 - 1, i1] pad 1.0) outs(f32[n + 2, 4][i0, i1]) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    %u = loop.nest (i0: 3, i1: n) ins(%y[i1]) outs(f32[3, n][i0, i1]) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    %b = loop.nest (i0: 5, i1: n) ins(%u[i0 - 1, i1] pad 1.0) outs(f32[5, n][i0, i1]) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    %e = loop.nest (i0: n) ins(%y[i0]) outs(f32[n][i0]) {
    ^bb0(%p: f32):
      %q = math.exp %p : f32
      loop.yield %q
    }
    %c = loop.nest (i0: n + 1) ins(%e[i0 - 1] pad 1.0) outs(f32[n + 1][i0]) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    %v = loop.view %y : f32[1, n]
    %d = loop.nest (i0: 2, i1: n) ins(%v[i0, i1] pad 1.0) outs(f32[2, n][i0, i1]) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    strata.return %a, %b, %c, %d
  }
  // A gathered row of a transposed tensor: the index is read before what it indexes.
  // CHECK: strata.func @gathered
  // CHECK-NEXT: loop.nest (i0: 3, i1: n) ins(%i[i0], %x[i1, in0]) outs(f32[3, n][i0, i1])
  // CHECK-NOT: loop.nest
  strata.func @gathered(%x: f32[n, 4], %i: i64[3]) -> (f32[3, n]) inputs ["x", "i"] outputs ["s"] {
    %t = loop.nest (i0: 4, i1: n) ins(%x[i1, i0]) outs(f32[4, n][i0, i1]) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    %s = loop.nest (i0: 3, i1: n) ins(%i[i0], %t[in0, i1]) outs(f32[3, n][i0, i1]) {
    ^bb0(%k: i64, %p: f32):
      loop.yield %p
    }
    strata.return %s
  }
  // A sum that is the same along an axis is computed once, and repeated where it is used.
  // CHECK: strata.func @idle
  // CHECK-NEXT: loop.nest (i0: n, reduce i2: 5) ins(%x[i0, i2]) outs(add f32[n][i0])
  // CHECK: loop.nest (i0: n, i1: 64) ins(%{{.*}}[i0], %b[i1]) outs(f32[n, 64][i0, i1])
  // CHECK-NOT: loop.nest
  strata.func @idle(%x: f32[n, 5], %b: f32[64]) -> (f32[n, 64]) inputs ["x", "b"] outputs ["z"] {
    %y = loop.nest (i0: n, i1: 64, reduce i2: 5) ins(%x[i0, i2]) outs(add f32[n, 64][i0, i1]) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    %z = loop.nest (i0: n, i1: 64) ins(%y[i0, i1], %b[i1]) outs(f32[n, 64][i0, i1]) {
    ^bb0(%p: f32, %q: f32):
      %r = arith.addf %p, %q : f32
      loop.yield %r
    }
    strata.return %z
  }
}
