// PASSES: graph-to-loop,loop-assume-bounds,loop-fuse,loop-outline
// A scatter is a kernel of its own: its updates are computed in it, the places before it.
builtin.module {
  // CHECK: strata.func @main
  // CHECK: loop.call @map_0(%{{.*}}) sizes(k, n) : i64[k]
  // CHECK: strata.assume min(1, 12*k) <= n
  // CHECK: loop.call @scatter_1(%{{.*}}, %u, %x) sizes(k, n) : f32[n, 3, 4]
  // CHECK: loop.call @map_2
  // CHECK: loop.kernel @scatter_1(%0: i64[k], %u: f32[k, 3, 4], %x: f32[n, 3, 4])
  // CHECK-NEXT: loop.nest (reduce i0: k, i1: 3, i2: 4) ins(%0[i0], %u[i0, i1, i2]) outs(add f32[n, 3, 4][in0, i1, i2]) into(%x) {
  // CHECK: arith.negf
  strata.func @main(%x: f32[n, 3, 4], %i: i64[k, 1], %u: f32[k, 3, 4]) -> (f32[n, 3, 4]) inputs ["x", "i", "u"] outputs ["y"] {
    %n = graph.neg %u : f32[k, 3, 4]
    %s = graph.scatter_nd %x, %i, %n {combiner = "add"} : f32[n, 3, 4]
    %y = graph.exp %s : f32[n, 3, 4]
    strata.return %y
  }
}
