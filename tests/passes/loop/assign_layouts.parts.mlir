// PASSES: graph-to-loop,loop-fuse,loop-assign-layouts
// TOLERANCE: 1e-5
// Parts that are written into a result of the model keep its order; between, they change together.
builtin.module {
  // CHECK: strata.func @main
  // CHECK: loop.empty : f32[n, h, 9]
  // CHECK: outs(f32[n, h, 9][i0, i2, i1]) into(
  // CHECK: loop.empty : f32[2*n, 9, h]
  // CHECK: outs(f32[2*n, 9, h][i0, i1, i2]) into(
  // CHECK: strata.return
  strata.func @main(%x: f32[n, 3, h], %w: f32[8, 3, 1], %v: f32[9, 9, 1]) -> (f32[2*n, 9, h]) inputs ["x", "w", "v"] outputs ["y"] {
    %a = graph.conv %x, %w : f32[n, 8, h]
    %s = graph.slice %x {starts = [0, 0, 0], sizes = [n, 1, h], steps = [1, 1, 1]} : f32[n, 1, h]
    %c = graph.concat %a, %s {axis = 1} : f32[n, 9, h]
    %b = graph.conv %c, %v : f32[n, 9, h]
    %y = graph.concat %b, %b {axis = 0} : f32[2*n, 9, h]
    strata.return %y
  }
}
