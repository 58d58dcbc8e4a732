// PASSES: loop-fuse
// Nests that write the parts of a tensor store them in the order of its only copy.
builtin.module {
  // CHECK: strata.func @main
  // CHECK: %{{[a-z0-9]+}} = loop.empty : f32[6, n]
  // CHECK: %{{[a-z0-9]+}} = loop.nest (i0: n, i1: 3) ins(%{{[a-z0-9]+}}[i0, i1]) outs(f32[6, n][2*i1, i0]) into(%{{[a-z0-9]+}})
  // CHECK: %q = loop.nest (i0: n, i1: 3) ins(%b[i0, i1]) outs(f32[6, n][2*i1 + 1, i0]) into(%{{[a-z0-9]+}})
  // CHECK: strata.return %q
  strata.func @main(%a: f32[n, 3, 4], %b: f32[n, 3]) -> (f32[6, n]) inputs ["a", "b"] outputs ["y"] {
    %e = loop.empty : f32[n, 6]
    %s = loop.nest (i0: n, i1: 3, reduce i2: 4) ins(%a[i0, i1, i2]) outs(add f32[n, 3][i0, i1]) {
    ^bb0(%x: f32):
      loop.yield %x
    }
    %p = loop.nest (i0: n, i1: 3) ins(%s[i0, i1]) outs(f32[n, 6][i0, 2*i1]) into(%e) {
    ^bb0(%x: f32):
      %z = arith.addf %x, %x : f32
      loop.yield %z
    }
    %q = loop.nest (i0: n, i1: 3) ins(%b[i0, i1]) outs(f32[n, 6][i0, 2*i1 + 1]) into(%p) {
    ^bb0(%x: f32):
      loop.yield %x
    }
    %y = loop.nest (i0: 6, i1: n) ins(%q[i1, i0]) outs(f32[6, n][i0, i1]) {
    ^bb0(%x: f32):
      loop.yield %x
    }
    strata.return %y
  }
}
