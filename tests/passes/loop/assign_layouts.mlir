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
  // A sound has one channel and no dim for it. A product of matrices makes no channels.
  // CHECK: strata.func @sound
  // CHECK: ins(%x[i0, 5*i2 + i4], %w[i1, 0, i4]) outs(add f32[n, ((s + 3) floordiv 5) - 1, 9][i0, i2, i1])
  // CHECK: ins(%{{.*}}[i0, i2, i1]) outs(f32[n, 9, ((s + 3) floordiv 5) - 1][i0, i1, i2])
  // CHECK: ins(%a[i0, i1, i3], %m[i3, i2]) outs(add f32[n, 4, 6][i0, i1, i2])
  // CHECK: ins(%{{.*}}[i0, i1, i2]) outs(f32[n, 4, 6][i0, i1, i2])
  strata.func @sound(%x: f32[n, s], %w: f32[9, 1, 7], %a: f32[n, 4, 5], %m: f32[5, 6])
      -> (f32[n, 9, ((s + 3) floordiv 5) - 1], f32[n, 4, 6])
      inputs ["x", "w", "a", "m"] outputs ["y", "p"] {
    %v = graph.reshape %x {shape = [n, 1, s]} : f32[n, 1, s]
    %c = graph.conv %v, %w {strides = [5]} : f32[n, 9, ((s + 3) floordiv 5) - 1]
    %y = graph.exp %c : f32[n, 9, ((s + 3) floordiv 5) - 1]
    %d = graph.matmul %a, %m : f32[n, 4, 6]
    %p = graph.exp %d : f32[n, 4, 6]
    strata.return %y, %p
  }
  // Nor does a batch of products of one row, though each head makes one of its own.
  // CHECK: strata.func @heads
  // CHECK: outs(f32[1, 4, n, 6][0, i1, i2, i3])
  // CHECK: %e[0, i1, i3, i4]) outs(add f32[1, 4, 1, n][0, i1, 0, i3])
  strata.func @heads(%q: f32[1, 4, 1, 6], %k: f32[1, 4, n, 6]) -> (f32[1, 4, n, 6], f32[1, 4, 1, n])
      inputs ["q", "k"] outputs ["e", "s"] {
    %e = graph.exp %k : f32[1, 4, n, 6]
    %t = graph.transpose %e {perm = [0, 1, 3, 2]} : f32[1, 4, 6, n]
    %s = graph.matmul %q, %t : f32[1, 4, 1, n]
    strata.return %e, %s
  }
  // What is returned with channels last has no other copy, unless it is returned twice.
  // CHECK: strata.func @saved
  // CHECK: outs(add f32[n, h, h, 8][i0, i2, i3, i1])
  // CHECK: ins(%{{.*}}[i0, i2, i3, i1]) outs(f32[n, h, h, 8][i0, i2, i3, i1])
  // CHECK: outs(add f32[n, 4, h, h][i0, i1, i2, i3])
  // CHECK: ins(%{{.*}}[i0, i1, i2, i3]) outs(f32[n, h, h, 8][i0, i1, i2, i3])
  // CHECK-NOT: loop.nest
  // CHECK: strata.return
  strata.func @saved(%x: f32[n, 3, h, h], %w: f32[8, 3, 3, 3], %v: f32[4, 8, 1, 1])
      -> (f32[n, h, h, 8], f32[n, h, h, 8], f32[n, h, h, 8], f32[n, 4, h, h])
      inputs ["x", "w", "v"] outputs ["p", "q", "r", "y"] {
    %a = graph.conv %x, %w {pads = [1, 1, 1, 1]} : f32[n, 8, h, h]
    %b = graph.relu %a : f32[n, 8, h, h]
    %y = graph.conv %b, %v : f32[n, 4, h, h]
    %p = graph.transpose %a {perm = [0, 2, 3, 1]} : f32[n, h, h, 8]
    %q = graph.transpose %b {perm = [0, 2, 3, 1]} : f32[n, h, h, 8]
    %r = graph.transpose %b {perm = [0, 2, 3, 1]} : f32[n, h, h, 8]
    strata.return %p, %q, %r, %y
  }
}
