// PASSES: graph-decompose,graph-to-loop,loop-fuse,loop-outline
// TOLERANCE: 1e-6
// A contraction and what is computed on its elements: one kernel.
builtin.module {
  // CHECK: loop.call @contract_0(%a, %w, %b) sizes(m) : f32[m, 64]
  // CHECK-NEXT: strata.return
  // CHECK: loop.kernel @contract_0(
  // CHECK-NEXT: loop.nest (i0: m, i1: 64, reduce i2: 32) ins(%a[i0, i2], %w[i2, i1]) outs(add f32[m, 64][i0, i1])
  // CHECK: loop.nest (i0: m, i1: 64)
  // CHECK: math.erf
  // CHECK-NOT: loop.nest
  strata.func @main(%a: f32[m, 32], %w: f32[32, 64], %b: f32[64]) -> (f32[m, 64]) inputs ["a", "w", "b"] outputs ["y"] {
    %p = graph.matmul %a, %w : f32[m, 64]
    %s = graph.add %p, %b : f32[m, 64]
    %y = graph.gelu %s {approximate = "none"} : f32[m, 64]
    strata.return %y
  }
}
