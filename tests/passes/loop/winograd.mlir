// PASSES: graph-fold-constants,graph-to-loop,loop-fuse,loop-assign-layouts,loop-winograd
// TARGET: cpu avx512
// TOLERANCE: 1e-4
// Two windows are shortened, the innermost first and by four points, and the filter's values are computed now.
builtin.module {
  // CHECK: strata.func @main
  // CHECK: loop.nest (i0: 4, i10: 34, i11: 15, i12: 64, reduce i8: 4) ins(%{{[a-z0-9]+}}[i0, i8], %h[0, i10 - 1, 2*i11 + i8 - 1, i12] pad 0.0) outs(add f32[4, 1, 34, 15, 64][i0, 0, i10, i11, i12])
  // CHECK: graph.constant {{.*}}winograd.input{{.*}} : f32[6, 6]
  // CHECK: loop.nest (i7: 6, i13: 4, i15: 8, i16: 15, i17: 64, reduce i8: 6) ins(%{{[a-z0-9]+}}[i7, i8], %{{[a-z0-9]+}}[i13, 0, 4*i15 + i8, i16, i17]) outs(add f32[6, 4, 1, 8, 15, 64][i7, i13, 0, i15, i16, i17])
  // CHECK: graph.constant {{.*}}.values{{.*}} : f32[6, 4, 64, 64]
  // CHECK: loop.nest (i7: 6, i0: 4, i1: 64, i2: 8, i3: 15, reduce i4: 64) ins(%{{[a-z0-9]+}}[i7, i0, 0, i2, i3, i4], %{{[a-z0-9]+}}[i7, i0, i1, i4]) outs(add f32[6, 4, 1, 8, 15, 64][i7, i0, 0, i2, i3, i1])
  // CHECK: loop.nest (i0: 4, i1: 64, i2: 32, i3: 15, reduce i7: 6) ins(%{{[a-z0-9]+}}[(i2 mod 4), i7], %{{[a-z0-9]+}}[i7, i0, 0, (i2 floordiv 4), i3, i1]) outs(add f32[4, 1, 32, 15, 64][i0, 0, i2, i3, i1])
  // CHECK: loop.nest (i1: 64, i2: 32, i3: 30, reduce i0: 4) ins(%{{[a-z0-9]+}}[(i3 mod 2), i0], %{{[a-z0-9]+}}[i0, 0, i2, (i3 floordiv 2), i1]) outs(add f32[1, 32, 30, 64][0, i2, i3, i1])
  // CHECK: %y = loop.nest (i1: 64, i2: 32, i3: 30) ins(%{{[a-z0-9]+}}[0, i2, i3, i1], %b[i1])
  // CHECK-NOT: loop.nest
  // CHECK: strata.return %y
  strata.func @main(%x: f32[1, 64, 32, 30], %b: f32[64]) -> (f32[1, 64, 32, 30]) inputs ["x", "b"] outputs ["y"] {
    %r = graph.range {start = 0, step = 1, count = 36864, to = f32} : f32[36864]
    %s = graph.sin %r : f32[36864]
    %w = graph.reshape %s {shape = [64, 64, 3, 3]} : f32[64, 64, 3, 3]
    %h = graph.neg %x : f32[1, 64, 32, 30]
    %y = graph.conv %h, %w, %b {pads = [1, 1, 1, 1]} : f32[1, 64, 32, 30]
    strata.return %y
  }
}
