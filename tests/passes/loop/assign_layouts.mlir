// PASSES: graph-decompose,graph-to-loop,loop-fuse,loop-assign-layouts
// TOLERANCE: 1e-5
// What is between convolutions has its channels last; inputs and results keep the model's order.
builtin.module {
  // CHECK: strata.func @main(%x: f32[n, 3, h, h], 
  // CHECK: ins(%x[i0, i4, {{.*}}] pad 0.0, {{.*}}) outs(add f32[n, h, h, 8][i0, i2, i3, i1])
  // CHECK: loop.nest {{.*}} ins(%{{.*}}[i0, i2, i3, i1]) outs(f32[n, h, h, 8][i0, i2, i3, i1])
  // CHECK: ins(%{{.*}}[i0, i2, i3, i4], {{.*}}) outs(add f32[n, 4, h, h][i0, i1, i2, i3])
  strata.func @main(%x: f32[n, 3, h, h], %w: f32[8, 3, 3, 3], %v: f32[4, 8, 1, 1]) -> (f32[n, 4, h, h]) inputs ["x", "w", "v"] outputs ["y"] {
    %a = graph.conv %x, %w {pads = [1, 1, 1, 1]} : f32[n, 8, h, h]
    %b = graph.relu %a : f32[n, 8, h, h]
    %y = graph.conv %b, %v : f32[n, 4, h, h]
    strata.return %y
  }
}
