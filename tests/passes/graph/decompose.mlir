// PASSES: graph-decompose
// TOLERANCE: 1e-5
builtin.module {
  // A composite whose definition uses another one (the mean).
  // CHECK: strata.func @main
  // CHECK-NOT: graph.layer_norm
  // CHECK-NOT: graph.reduce_mean
  // CHECK: graph.reduce_sum %x {axes = [1], keepdims = true}
  // CHECK: graph.sub %x,
  // CHECK: graph.sqrt
  // CHECK: graph.reciprocal
  // CHECK: %y = graph.add {{.*}}, %b : f32[n, 4]
  // CHECK-NEXT: strata.return %y
  strata.func @main(%x: f32[n, 4], %s: f32[4], %b: f32[4]) -> (f32[n, 4]) inputs ["x", "s", "b"] outputs ["y"] {
    %y = graph.layer_norm %x, %s, %b {axis = 1, epsilon = 1.0e-05} : f32[n, 4]
    strata.return %y
  }
}
