// PASSES: loop-fuse
// What a sum makes alike along an axis is computed once, also where the axis shares a dim.
builtin.module {
  // CHECK: strata.func @main
  // CHECK: %{{[a-z0-9]+}} = loop.nest (i0: 2, i2: n, reduce i3: 4) ins(%x[4*i0 + i3, i2]) outs(add f32[2, n][i0, i2])
  // CHECK: %y = loop.nest (i0: 2, i1: 3, i2: n) ins(%{{[a-z0-9]+}}[i0, i2]) outs(f32[6, n][3*i0 + i1, i2])
  // CHECK: strata.return %y
  strata.func @main(%x: f32[8, n]) -> (f32[6, n]) inputs ["x"] outputs ["y"] {
    %y = loop.nest (i0: 2, i1: 3, i2: n, reduce i3: 4) ins(%x[4*i0 + i3, i2]) outs(add f32[6, n][3*i0 + i1, i2]) {
    ^bb0(%a: f32):
      loop.yield %a
    }
    strata.return %y
  }
}
