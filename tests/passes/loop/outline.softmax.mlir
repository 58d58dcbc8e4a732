// PASSES: graph-decompose,graph-to-loop,loop-fuse,loop-outline
// TOLERANCE: 1e-6
// Reductions over the same rows and what is computed on rows: one kernel.
builtin.module {
  // CHECK: strata.func @main
  // CHECK-NEXT: loop.call @reduce_0(%x) sizes(n) : f32[8, n]
  // CHECK-NEXT: strata.return
  // CHECK: loop.kernel @reduce_0(%x: f32[8, n]) -> (f32[8, n]) sizes(n) {
  // CHECK-NEXT: loop.nest (i0: 8, reduce i1: n) ins(%x[i0, i1]) outs(max f32[8, 1][i0, 0])
  // CHECK: loop.nest (i0: 8, i1: n)
  // CHECK: loop.nest (i0: 8, reduce i1: n) ins(%{{.*}}[i0, i1]) outs(add f32[8, 1][i0, 0])
  // CHECK: loop.nest (i0: 8, i1: n)
  // CHECK-NOT: loop.kernel
  strata.func @main(%x: f32[8, n]) -> (f32[8, n]) inputs ["x"] outputs ["y"] {
    %y = graph.softmax %x {axis = 1} : f32[8, n]
    strata.return %y
  }
}
