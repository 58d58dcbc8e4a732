// PASSES: graph-decompose,graph-to-loop,loop-fuse,loop-outline
// TARGET: cuda sm_90
// TOLERANCE: 1e-5
// One row that a program walks faster than another kernel starts is normalized by one kernel; of a
// longer one, several programs write what two have summed up.
builtin.module {
  // CHECK: strata.func @short
  // CHECK-NEXT: %y = loop.call @reduce_0(%x
  // CHECK-NEXT: strata.return %y
  // CHECK: strata.func @long
  // CHECK-NEXT: loop.call @reduce_1(%x)
  // CHECK-NEXT: loop.call @map_2
  // CHECK-NEXT: loop.call @reduce_3
  // CHECK-NEXT: loop.call @map_4
  strata.func @short(%x: f32[1, 768], %w: f32[768], %b: f32[768]) -> (f32[1, 768]) inputs ["x", "w", "b"] outputs ["y"] {
    %y = graph.layer_norm %x, %w, %b {axis = 1, epsilon = 1.0e-5} : f32[1, 768]
    strata.return %y
  }
  strata.func @long(%x: f32[1, 32768], %w: f32[32768], %b: f32[32768]) -> (f32[1, 32768]) inputs ["x", "w", "b"] outputs ["y"] {
    %y = graph.layer_norm %x, %w, %b {axis = 1, epsilon = 1.0e-5} : f32[1, 32768]
    strata.return %y
  }
}
