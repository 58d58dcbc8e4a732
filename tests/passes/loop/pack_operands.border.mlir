// PASSES: graph-to-loop,loop-fuse,loop-outline,loop-pack-operands
// TARGET: cpu avx2
// TOLERANCE: 1e-5
// The border that a padded read reaches is written out, at the ends where there is one: sums are long.
builtin.module {
  // CHECK: strata.func @main
  // CHECK: loop.call @contract_0_pack{{[0-9]+}}(%x) sizes(h, n) : f32[n, 30, h + 2, 8]
  // CHECK: loop.call @contract_0(
  // CHECK: loop.kernel @contract_0_pack
  // CHECK-NEXT: loop.nest (i0: n, i1: 30, i2: h + 2, i3: 8) ins(%{{.*}}[i0, i1, i2 - 1, i3] pad 0)
  // CHECK: loop.kernel @contract_0(
  // CHECK-NOT: pad
  strata.func @main(%x: f32[n, 30, h, 7], %w: f32[5, 30, 3, 1]) -> (f32[n, 5, h, 8]) inputs ["x", "w"] outputs ["y"] {
    %y = graph.conv %x, %w {pads = [1, 0, 1, 1]} : f32[n, 5, h, 8]
    strata.return %y
  }
}
