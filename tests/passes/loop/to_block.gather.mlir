// PASSES: host-bufferize,loop-to-block
// Rows gathered by index: one index per tile of a row. Tails of unrolled rows: pairs, then one.
builtin.module {
  // CHECK: block.kernel @pick(%i: i64[n], %x: f32[9, 20], %y: f32[n, 20]) grid() sizes(n)
  // CHECK-NEXT: block.for %{{.*}} = 0 to n - 3 step 4 parallel {
  // CHECK-NEXT: block.load %i[%{{.*}} + t0] : tile<4xi64>
  // CHECK-NEXT: block.load %x[%{{.*}}, t1] with %{{.*}}[0] : tile<4x[20]xf32>
  // CHECK: block.for %{{.*}} = 4*(n floordiv 4) to n - 1 step 2 parallel {
  // CHECK-NEXT: block.load %i[%{{.*}} + t0] : tile<2xi64>
  // CHECK: block.for %{{.*}} = 2*(n floordiv 2) to n step 1 parallel {
  // CHECK-NEXT: block.load %i[%{{.*}}] : tile<i64>
  strata.func @main(%i: i64[n], %x: f32[9, 20]) -> (f32[n, 20]) inputs ["i", "x"] outputs ["y"] {
    %y = loop.call @pick(%i, %x) sizes(n) : f32[n, 20]
    strata.return %y
  }
  loop.kernel @pick(%i: i64[n], %x: f32[9, 20]) -> (f32[n, 20]) sizes(n) schedule<loop i0 tile 4, whole i1 tile 20 lanes> {
    %y = loop.nest (i0: n, i1: 20) ins(%i[i0], %x[in0, i1]) outs(f32[n, 20][i0, i1]) {
    ^bb0(%k: i64, %p: f32):
      loop.yield %p
    }
    loop.yield %y
  }
}
