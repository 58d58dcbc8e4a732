// PASSES: graph-decompose,graph-to-loop,loop-fuse,loop-split-reductions
// TARGET: cuda sm_90
// TOLERANCE: 2e-3
builtin.module {
  // Statistics of a batch between two products are split, unlike a softmax, whose chain is joined.
  // CHECK: strata.func @statistics
  // CHECK: loop.nest (i1: 32, i2: 256, reduce i2_part: 32) {{.*}} outs(add f32[256, 1, 32]
  // CHECK: %m = loop.nest (i1: 32, reduce i2: 256)
  strata.func @statistics(%x: f16[8192, 16], %w: f16[16, 32], %v: f16[32, 8]) -> (f16[8192, 8]) inputs ["x", "w", "v"] outputs ["y"] {
    %a = graph.matmul %x, %w : f16[8192, 32]
    %c = graph.cast %a {to = f32} : f32[8192, 32]
    %m = graph.reduce_sum %c {axes = [0], keepdims = true} : f32[1, 32]
    %d = graph.sub %c, %m : f32[8192, 32]
    %n = graph.cast %d {to = f16} : f16[8192, 32]
    %y = graph.matmul %n, %v : f16[8192, 8]
    strata.return %y
  }
}
