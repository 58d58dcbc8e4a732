// PASSES: loop-collapse-axes
// Neighbouring axes that all references walk as whole neighbouring dims become one; unit dims go.
builtin.module {
  // CHECK: strata.func @main
  // CHECK-NEXT: loop.view %x : f32[48*n]
  // CHECK-NEXT: loop.call @all(%{{.*}}) sizes(n) : f32[48*n]
  // CHECK-NEXT: loop.view %{{.*}} : f32[n, 6, 1, 8]
  // CHECK: loop.kernel @all(%x: f32[48*n]) -> (f32[48*n]) sizes(n) {
  // CHECK-NEXT: loop.nest (i0: 48*n) ins(%x[i0]) outs(f32[48*n][i0]) {
  // CHECK: loop.kernel @some(%x: f32[n, 6, 8], %b: f32[6]) -> (f32[n, 6, 8]) sizes(n) {
  // CHECK-NEXT: loop.nest (i0: n, i1: 6, i2: 8) ins(%x[i0, i1, i2], %b[i1])
  strata.func @main(%x: f32[n, 6, 1, 8], %b: f32[6]) -> (f32[n, 6, 1, 8], f32[n, 6, 8]) inputs ["x", "b"] outputs ["y", "z"] {
    %y = loop.call @all(%x) sizes(n) : f32[n, 6, 1, 8]
    %z = loop.call @some(%x, %b) sizes(n) : f32[n, 6, 8]
    strata.return %y, %z
  }
  loop.kernel @all(%x: f32[n, 6, 1, 8]) -> (f32[n, 6, 1, 8]) sizes(n) {
    %y = loop.nest (i0: n, i1: 6, i2: 8) ins(%x[i0, i1, 0, i2]) outs(f32[n, 6, 1, 8][i0, i1, 0, i2]) {
    ^bb0(%v: f32):
      loop.yield %v
    }
    loop.yield %y
  }
  // %b is walked by i1 alone, so i1 and i2 stay apart.
  loop.kernel @some(%x: f32[n, 6, 1, 8], %b: f32[6]) -> (f32[n, 6, 8]) sizes(n) {
    %y = loop.nest (i0: n, i1: 6, i2: 8) ins(%x[i0, i1, 0, i2], %b[i1]) outs(f32[n, 6, 8][i0, i1, i2]) {
    ^bb0(%v: f32, %w: f32):
      %s = arith.addf %v, %w : f32
      loop.yield %s
    }
    loop.yield %y
  }
}
