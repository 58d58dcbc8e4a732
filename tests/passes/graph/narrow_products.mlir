// PASSES: graph-narrow-products
// TOLERANCE: 2e-2
// Without a target that multiplies bf16, or without --precision, everything stays.
builtin.module {
  // CHECK: strata.func @main
  // CHECK-NEXT: graph.matmul %a, %b : f32[n, 5]
  strata.func @main(%a: f32[n, 7], %b: f32[7, 5]) -> (f32[n, 5]) inputs ["a", "b"] outputs ["y"] {
    %y = graph.matmul %a, %b : f32[n, 5]
    strata.return %y
  }
}
