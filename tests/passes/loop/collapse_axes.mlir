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
  // CHECK: loop.kernel @sums(%x: f32[48, n]) -> (f32[48, n]) sizes(n) {
  // CHECK-NEXT: loop.nest (reduce i0: 48, i2: n) ins(%x[i0, i2])
  // CHECK: loop.nest (i0: 48, i2: n) ins(%x[i0, i2], %s[i2])
  strata.func @main(%x: f32[n, 6, 1, 8], %b: f32[6], %t: f32[6, 8, n]) -> (f32[n, 6, 1, 8], f32[n, 6, 8], f32[6, 8, n]) inputs ["x", "b", "t"] outputs ["y", "z", "u"] {
    %y = loop.call @all(%x) sizes(n) : f32[n, 6, 1, 8]
    %z = loop.call @some(%x, %b) sizes(n) : f32[n, 6, 8]
    %u = loop.call @sums(%t) sizes(n) : f32[6, 8, n]
    strata.return %y, %z, %u
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
  // i0 and i1 are summed in one nest and parallel in the other, but alike in both.
  loop.kernel @sums(%x: f32[6, 8, n]) -> (f32[6, 8, n]) sizes(n) {
    %s = loop.nest (reduce i0: 6, reduce i1: 8, i2: n) ins(%x[i0, i1, i2]) outs(add f32[n][i2]) {
    ^bb0(%v: f32):
      loop.yield %v
    }
    %y = loop.nest (i0: 6, i1: 8, i2: n) ins(%x[i0, i1, i2], %s[i2]) outs(f32[6, 8, n][i0, i1, i2]) {
    ^bb0(%v: f32, %w: f32):
      %d = arith.subf %v, %w : f32
      loop.yield %d
    }
    loop.yield %y
  }
}
