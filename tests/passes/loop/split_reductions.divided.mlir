// PASSES: graph-to-loop,loop-split-reductions
// TARGET: cuda sm_90
// TOLERANCE: 1e-4
builtin.module {
  // Where the size is divided already, both divisions are one, which is seen: no part is split again.
  // CHECK: loop.nest (i0: 100, i1: ((n + 191) floordiv 192), reduce i1_part: 64)
  // CHECK: loop.nest (i0: 100, reduce i1: ((n + 191) floordiv 192))
  // CHECK-NOT: loop.nest
  strata.func @main(%x: f32[n, 100]) -> (f32[100]) inputs ["x"] outputs ["y"] {
    %s = graph.slice %x {starts = [0, 0], sizes = [(n + 2) floordiv 3, 100], steps = [3, 1]} : f32[((n + 2) floordiv 3), 100]
    %y = graph.reduce_sum %s {axes = [0]} : f32[100]
    strata.return %y
  }
}
