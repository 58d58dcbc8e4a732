// PASSES: graph-to-loop,loop-split-reductions
// TARGET: cuda sm_90
// TOLERANCE: 1e-4
builtin.module {
  // A sum along a size that only a call knows: parts of a known length, the last of which adds less.
  // CHECK: strata.func @main
  // CHECK: loop.nest (i0: 100, i1: ((n + 63) floordiv 64), reduce i1_part: 64) ins(%x[64*i1 + i1_part, i0] pad 0)
  // CHECK: loop.nest (i0: 100, reduce i1: ((n + 63) floordiv 64))
  strata.func @main(%x: f32[n, 100]) -> (f32[100]) inputs ["x"] outputs ["y"] {
    %y = graph.reduce_sum %x {axes = [0]} : f32[100]
    strata.return %y
  }
}
