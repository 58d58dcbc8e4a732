// PASSES: loop-collapse-axes
// Rows that a scatter keeps become one axis, the dim that inputs index stays.
builtin.module {
  // CHECK: loop.kernel @merge(%i: i64[k], %u: f32[k, 12], %x: f32[2, 12]) -> (f32[2, 12])
  // CHECK-NEXT: loop.nest (reduce i0: k, i1: 12) ins(%i[i0], %u[i0, i1]) outs(f32[2, 12][in0, i1]) into(%x) {
  strata.func @main(%i: i64[k], %u: f32[k, 3, 4], %x: f32[2, 3, 4]) -> (f32[2, 3, 4]) inputs ["i", "u", "x"] outputs ["y"] {
    %y = loop.call @merge(%i, %u, %x) sizes(k) : f32[2, 3, 4]
    strata.return %y
  }
  loop.kernel @merge(%i: i64[k], %u: f32[k, 3, 4], %x: f32[2, 3, 4]) -> (f32[2, 3, 4]) sizes(k) {
    %y = loop.nest (reduce i0: k, i1: 3, i2: 4) ins(%i[i0], %u[i0, i1, i2]) outs(f32[2, 3, 4][in0, i1, i2]) into(%x) {
    ^bb0(%a: i64, %b: f32):
      loop.yield %b
    }
    loop.yield %y
  }
}
