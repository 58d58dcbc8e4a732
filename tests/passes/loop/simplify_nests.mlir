// PASSES: loop-simplify-nests
// An axis of one element is the index 0; what a reduction computes alike along an axis is computed once; what
// an operator names twice is read once.
builtin.module {
  // CHECK: strata.func @main
  // CHECK: %{{[a-z0-9]+}} = loop.nest (i0: 2, i2: n, reduce i3: 4) ins(%x[4*i0 + i3, i2]) outs(add f32[2, n][i0, i2])
  // CHECK: %y = loop.nest (i0: 2, i1: 3, i2: n) ins(%{{[a-z0-9]+}}[i0, i2]) outs(f32[6, n][3*i0 + i1, i2])
  // CHECK: %z = loop.nest (i0: n) ins(%x[0, i0]) outs(f32[1, n][0, i0])
  // CHECK-NEXT: ^{{.*}}(%{{[0-9]+}}: f32):
  // CHECK-NEXT: arith.mulf
  // CHECK: strata.return %y, %z
  strata.func @main(%x: f32[8, n]) -> (f32[6, n], f32[1, n]) inputs ["x"] outputs ["y", "z"] {
    %y = loop.nest (i0: 2, i1: 3, i2: n, reduce i3: 4) ins(%x[4*i0 + i3, i2]) outs(add f32[6, n][3*i0 + i1, i2]) {
    ^bb0(%a: f32):
      loop.yield %a
    }
    %z = loop.nest (i5: 1, i0: n) ins(%x[i5, i0], %x[i5, i0]) outs(f32[1, n][i5, i0]) {
    ^bb0(%a: f32, %b: f32):
      %c = arith.mulf %a, %b : f32
      loop.yield %c
    }
    strata.return %y, %z
  }
}
