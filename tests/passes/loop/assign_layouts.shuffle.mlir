// PASSES: graph-to-loop,loop-fuse,loop-assign-layouts
// TOLERANCE: 1e-5
// Channels that are shuffled between convolutions stay last: the nest stores the merged dim itself.
builtin.module {
  // CHECK: strata.func @main
  // CHECK: loop.nest {{.*}} ins(%x[{{.*}}) outs(add f32[n, h, w, 6]
  // CHECK: loop.nest (i0: n, i1: 3, i2: 2, i3: h, i4: w) ins(%{{[a-z0-9]+}}[i0, i3, i4, i1 + 3*i2]) outs(f32[n, h, w, 6][i0, i3, i4, 2*i1 + i2])
  // CHECK-NOT: loop.view
  // CHECK: loop.nest {{.*}} outs(add f32[n, h, w, 6]
  // CHECK: strata.return
  strata.func @main(%x: f32[n, 4, h, w], %k: f32[6, 4, 1, 1], %d: f32[6, 1, 3, 3]) -> (f32[n, 6, h, w]) inputs ["x", "k", "d"] outputs ["y"] {
    %a = graph.conv %x, %k : f32[n, 6, h, w]
    %b = graph.reshape %a {shape = [n, 2, 3, h, w]} : f32[n, 2, 3, h, w]
    %c = graph.transpose %b {perm = [0, 2, 1, 3, 4]} : f32[n, 3, 2, h, w]
    %s = graph.reshape %c {shape = [n, 6, h, w]} : f32[n, 6, h, w]
    %e = graph.conv %s, %d {pads = [1, 1, 1, 1], group = 6} : f32[n, 6, h, w]
    %y = graph.neg %e : f32[n, 6, h, w]
    strata.return %y
  }
}
