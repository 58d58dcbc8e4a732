// PASSES: graph-to-loop,loop-fuse,loop-outline,loop-pack-operands
// TARGET: cpu avx2
// TOLERANCE: 1e-5
// A filter's gradient is stored with its taps first, and copied.
builtin.module {
  // CHECK: strata.func @main
  // CHECK: loop.call @contract_0_result
  // CHECK: outs(add f32[3, 3, 32, 48]
  // CHECK: loop.kernel @contract_0_result(%{{.*}}: f32[9, 32, 48]) -> (f32[48, 32, 9])
  strata.func @main(%x: f32[2, 32, 9, 9], %y: f32[2, 48, 7, 7]) -> (f32[48, 32, 3, 3]) inputs ["x", "y"] outputs ["w"] {
    %w = graph.conv_filter_gradient %x, %y {kernel = [3, 3]} : f32[48, 32, 3, 3]
    strata.return %w
  }
}
