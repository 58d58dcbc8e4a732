// PASSES: graph-to-loop
// TOLERANCE: 1e-5
// Operators become nests; result dims are the parallel axes, in order, then come the reductions.
builtin.module {
  // A dim of size 1 that broadcasts is read at 0; a constant of one element goes into the body.
  // CHECK: strata.func @broadcasting
  // CHECK-NEXT: loop.nest (i0: n, i1: 4) ins(%x[i0, i1], %y[0, i1]) outs(f32[n, 4][i0, i1]) {
  // CHECK-NEXT: ^{{.*}}(%{{.*}}: f32, %{{.*}}: f32):
  // CHECK-NEXT: arith.addf
  // CHECK-NEXT: loop.yield
  // CHECK: loop.nest (i0: n, i1: 4) ins(%{{.*}}[i0, i1]) outs(f32[n, 4][i0, i1]) {
  // CHECK: arith.constant 2.000000e+00 : f32
  // CHECK-NEXT: arith.mulf
  strata.func @broadcasting(%x: f32[n, 4], %y: f32[1, 4]) -> (f32[n, 4]) inputs ["x", "y"] outputs ["r"] {
    %c = graph.constant {value = literal[2.0]} : f32[]
    %s = graph.add %x, %y : f32[n, 4]
    %r = graph.mul %s, %c : f32[n, 4]
    strata.return %r
  }
  // CHECK: strata.func @matmul
  // CHECK-NEXT: loop.nest (i0: n, i1: 8, i2: 5, i3: 7, reduce i4: 64) ins(%a[i0, 0, i2, i4], %b[i1, i4, i3]) outs(add f32[n, 8, 5, 7][i0, i1, i2, i3])
  strata.func @matmul(%a: f32[n, 1, 5, 64], %b: f32[8, 64, 7]) -> (f32[n, 8, 5, 7]) inputs ["a", "b"] outputs ["r"] {
    %r = graph.matmul %a, %b : f32[n, 8, 5, 7]
    strata.return %r
  }
  // Narrow floats are accumulated in f32 and rounded by a nest of their own.
  // CHECK: strata.func @narrow
  // CHECK-NEXT: loop.nest (i0: 5, i1: 7, reduce i2: 64) ins(%a[i0, i2], %b[i2, i1]) outs(add f32[5, 7][i0, i1])
  // CHECK: arith.extf
  // CHECK-NEXT: arith.extf
  // CHECK-NEXT: arith.mulf
  // CHECK: loop.nest (i0: 5, i1: 7) ins(%{{.*}}[i0, i1]) outs(bf16[5, 7][i0, i1])
  // CHECK: arith.truncf
  strata.func @narrow(%a: bf16[5, 64], %b: bf16[64, 7]) -> (bf16[5, 7]) inputs ["a", "b"] outputs ["r"] {
    %r = graph.matmul %a, %b : bf16[5, 7]
    strata.return %r
  }
  // The bias is a nest of its own: fusion makes it an epilogue.
  // CHECK: strata.func @conv
  // CHECK-NEXT: loop.nest (i0: n, i1: 8, i2: {{.*}}, reduce i3: 3, reduce i4: 3) ins(%x[i0, i3, 2*i2 + i4 - 1] pad 0.0, %w[i1, i3, i4]) outs(add f32[n, 8, {{.*}}][i0, i1, i2])
  // CHECK: loop.nest (i0: n, i1: 8, i2: {{.*}}) ins(%{{.*}}[i0, i1, i2], %b[i1])
  strata.func @conv(%x: f32[n, 3, h], %w: f32[8, 3, 3], %b: f32[8]) -> (f32[n, 8, (h - 1) floordiv 2 + 1]) inputs ["x", "w", "b"] outputs ["r"] {
    %r = graph.conv %x, %w, %b {strides = [2], pads = [1, 1]} : f32[n, 8, (h - 1) floordiv 2 + 1]
    strata.return %r
  }
  // Groups are axes: all maps stay affine.
  // CHECK: strata.func @grouped
  // CHECK-NEXT: loop.nest (i0: n, i1: 2, i2: 3, i3: h - 2, reduce i4: 4, reduce i5: 3) ins(%x[i0, 4*i1 + i4, i3 + i5], %w[3*i1 + i2, i4, i5]) outs(add f32[n, 6, h - 2][i0, 3*i1 + i2, i3])
  strata.func @grouped(%x: f32[n, 8, h], %w: f32[6, 4, 3]) -> (f32[n, 6, h - 2]) inputs ["x", "w"] outputs ["r"] {
    %r = graph.conv %x, %w {group = 2} : f32[n, 6, h - 2]
    strata.return %r
  }
  // CHECK: strata.func @depthwise
  // CHECK-NEXT: loop.nest (i0: n, i1: 8, i2: h - 2, reduce i3: 3) ins(%x[i0, i1, i2 + i3], %w[i1, 0, i3]) outs(add f32[n, 8, h - 2][i0, i1, i2])
  strata.func @depthwise(%x: f32[n, 8, h], %w: f32[8, 1, 3]) -> (f32[n, 8, h - 2]) inputs ["x", "w"] outputs ["r"] {
    %r = graph.conv %x, %w {group = 8} : f32[n, 8, h - 2]
    strata.return %r
  }
  // Windows side by side: every result element has one source, and no zeros are inserted.
  // CHECK: strata.func @tiled
  // CHECK-NEXT: loop.nest (i0: n, i1: 4, i2: h, i3: 2, reduce i4: 3) ins(%x[i0, i4, i2], %w[i4, i1, i3]) outs(add f32[n, 4, 2*h][i0, i1, 2*i2 + i3])
  strata.func @tiled(%x: f32[n, 3, h], %w: f32[3, 4, 2]) -> (f32[n, 4, 2*h]) inputs ["x", "w"] outputs ["r"] {
    %r = graph.conv_transpose %x, %w {strides = [2]} : f32[n, 4, 2*h]
    strata.return %r
  }
  // CHECK: strata.func @reduction
  // CHECK-NEXT: loop.nest (i0: n, i1: 1, reduce i2: 5) ins(%x[i0, i2]) outs(max f32[n, 1][i0, i1])
  strata.func @reduction(%x: f32[n, 5]) -> (f32[n, 1]) inputs ["x"] outputs ["r"] {
    %r = graph.reduce_max %x {axes = [1], keepdims = true} : f32[n, 1]
    strata.return %r
  }
  // CHECK: strata.func @joined
  // CHECK-NEXT: %{{.*}} = loop.empty : f32[n + 2]
  // CHECK-NEXT: loop.nest (i0: n) ins(%x[i0]) outs(f32[n + 2][i0]) into(
  // CHECK: loop.nest (i0: 2) ins(%y[i0]) outs(f32[n + 2][i0 + n]) into(
  strata.func @joined(%x: f32[n], %y: f32[2]) -> (f32[n + 2]) inputs ["x", "y"] outputs ["r"] {
    %r = graph.concat %x, %y {axis = 0} : f32[n + 2]
    strata.return %r
  }
  // CHECK: strata.func @moved
  // CHECK-NEXT: %{{.*}} = loop.view %x : f32[2*n, 3]
  // CHECK-NEXT: loop.nest (i0: 3, i1: 2*n) ins(%{{.*}}[i1, i0]) outs(f32[3, 2*n][i0, i1])
  // CHECK: loop.nest (i0: 2, i1: n) ins(%{{.*}}[i0, -2*i1 + 2*n - 1]) outs(f32[2, n][i0, i1])
  strata.func @moved(%x: f32[n, 6]) -> (f32[2, n]) inputs ["x"] outputs ["r"] {
    %v = graph.reshape %x {shape = [2*n, 3]} : f32[2*n, 3]
    %t = graph.transpose %v {perm = [1, 0]} : f32[3, 2*n]
    %r = graph.slice %t {starts = [0, 2*n - 1], sizes = [2, n], steps = [1, -2]} : f32[2, n]
    strata.return %r
  }
  // CHECK: strata.func @reflected
  // CHECK-NEXT: strata.assume 2 <= n
  // CHECK-NEXT: strata.assume 3 <= n
  // CHECK-NEXT: loop.nest (i0: n + 3) ins(%x[-max(-max(-i0 + 1, i0 - 1) + n - 1, max(-i0 + 1, i0 - 1) - n + 1) + n - 1]) outs(f32[n + 3][i0])
  strata.func @reflected(%x: f32[n]) -> (f32[n + 3]) inputs ["x"] outputs ["r"] {
    %r = graph.pad %x {low = [1], high = [2], mode = "reflect"} : f32[n + 3]
    strata.return %r
  }
  // Indices are wrapped and clamped by a nest of their own, then read as an input.
  // CHECK: strata.func @gather
  // CHECK-NEXT: %{{.*}} = loop.nest (i0: n, i1: 4) ins(%i[i0, i1]) outs(i64[n, 4][i0, i1])
  // CHECK: arith.minsi
  // CHECK: arith.maxsi
  // CHECK: loop.nest (i0: n, i1: 4, i2: 8) ins(%{{.*}}[i0, i1], %x[in0, i2]) outs(f32[n, 4, 8][i0, i1, i2])
  strata.func @gather(%x: f32[30, 8], %i: i64[n, 4]) -> (f32[n, 4, 8]) inputs ["x", "i"] outputs ["r"] {
    %r = graph.gather %x, %i {axis = 0} : f32[n, 4, 8]
    strata.return %r
  }
  // CHECK: strata.func @upsampled
  // CHECK-NEXT: loop.nest (i0: n, i1: 2*h) ins(%x[i0, (i1 floordiv 2)]) outs(f32[n, 2*h][i0, i1])
  strata.func @upsampled(%x: f32[n, h]) -> (f32[n, 2*h]) inputs ["x"] outputs ["r"] {
    %r = graph.resize %x {shape = [n, 2*h], scales = literal[1.0, 2.0], mode = "nearest", coordinates = "asymmetric", nearest = "floor"} : f32[n, 2*h]
    strata.return %r
  }
  // The index farthest from its lower bound is compared at the end, once for equal requirements.
  // CHECK: strata.func @required
  // CHECK-NEXT: %{{.*}} = loop.nest (reduce i0: n) ins(%i[i0]) outs(max i64[][]) {
  // CHECK: arith.subi
  // CHECK: arith.xori
  // CHECK: loop.nest (i0: n, i1: 8)
  // CHECK: strata.require -m <= farthest %{{.*}} < m of "ids"
  // CHECK-NEXT: strata.return
  strata.func @required(%x: f32[m, 8], %i: i32[n]) -> (f32[n, 8]) inputs ["x", "i"] outputs ["r"] {
    strata.require -m <= %i < m of "ids"
    strata.require -m <= %i < m
    %r = graph.gather %x, %i {axis = 0} : f32[n, 8]
    strata.return %r
  }
  // One i64 is compared as it is, before a size is read.
  // CHECK: strata.func @one
  // CHECK-NOT: reduce
  // CHECK: strata.require 0 <= %i < 5
  // CHECK-NEXT: strata.size k = %i
  // CHECK: strata.require 0 <= farthest
  // CHECK-NEXT: strata.return
  strata.func @one(%x: f32[8], %i: i64[1], %j: i64[3]) -> (f32[k], f32[3]) inputs ["x", "i", "j"] outputs ["r", "s"] {
    strata.require 0 <= %i < 5
    %s = graph.gather %x, %j {axis = 0} : f32[3]
    strata.size k = %i
    strata.require 0 <= %j < 8
    %r = graph.slice %x {starts = [0], sizes = [k], steps = [1]} : f32[k]
    strata.return %r, %s
  }
}
