// PASSES: graph-to-loop,loop-fuse,loop-outline
// TOLERANCE: 1e-6
// Sums of two groups of channels are stored along one dim: what follows walks it as they do.
builtin.module {
  // CHECK: loop.call @contract_0(%x, %w, %z) sizes(n) : f32[n, 6, 4]
  // CHECK-NEXT: strata.return
  // CHECK: loop.kernel @contract_0(
  // CHECK-NEXT: loop.nest (i0: n, i1: 2, i2: 3, i3: 4, reduce i4: 5) ins({{.*}}) outs(add f32[n, 6, 4][i0, 3*i1 + i2, i3])
  // CHECK: loop.nest (i0: n, i1: 2, i2: 3, i3: 4) ins(%{{.*}}[i0, 3*i1 + i2, i3], %z[3*i1 + i2, 0]) outs(f32[n, 6, 4][i0, 3*i1 + i2, i3])
  // CHECK-NOT: loop.nest
  strata.func @main(%x: f32[n, 10, 4], %w: f32[6, 5, 1], %z: f32[6, 1]) -> (f32[n, 6, 4]) inputs ["x", "w", "z"] outputs ["y"] {
    %c = graph.conv %x, %w {strides = [1], dilations = [1], pads = [0, 0], group = 2} : f32[n, 6, 4]
    %y = graph.add %c, %z : f32[n, 6, 4]
    strata.return %y
  }
}
