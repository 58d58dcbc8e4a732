// PASSES: graph-fold-constants,graph-to-loop,loop-fuse,loop-assign-layouts,loop-outline,loop-prepare-kernels,loop-pack-operands
// TARGET: cuda sm_90
// TOLERANCE: 1e-2
// Three channels that lie apart become four side by side, with the border around them; the filter
// runs along the window, then the channels, then those of the result, and ends in whole tiles.
builtin.module {
  // CHECK: graph.constant {value = #strata.weight<"{{.*}}.packed", "{{.*}}">} : f32[1, 36, 32]
  // CHECK: loop.kernel @contract_0_pack0
  // CHECK-NEXT: ins(%0[i0, i3, i1 - 1, i2 - 1] pad 0) outs(f32[2, 11, 11, 4]
  // CHECK: loop.kernel @contract_0(%x: f32[2, 11, 11, 4], %w: f32[1, 36, 32]
  // CHECK: reduce i5: 36) ins(%x[{{.*}}, (i5 mod 4)], %w[(i1 floordiv 32), i5, (i1 mod 32)])
  strata.func @main(%x: f32[2, 3, 9, 9]) -> (f32[2, 20, 9, 9]) inputs ["x"] outputs ["y"] {
    %r = graph.range {start = -10, step = 1, count = 540, to = i32} : i32[540]
    %f = graph.cast %r {to = f32} : f32[540]
    %w = graph.reshape %f {shape = [20, 3, 3, 3]} : f32[20, 3, 3, 3]
    %y = graph.conv %x, %w {pads = [1, 1, 1, 1]} : f32[2, 20, 9, 9]
    strata.return %y
  }
}
