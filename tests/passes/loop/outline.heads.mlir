// PASSES: graph-decompose,graph-to-loop,loop-fuse,loop-outline
// TOLERANCE: 1e-2
// What rounds sums of products stays with them, though a reader cuts their columns into heads.
builtin.module {
  // CHECK: loop.call @contract_0(%a, %w, %b) sizes(m) : f16[m, 6]
  // CHECK: loop.call @contract_1
  // CHECK-NEXT: strata.return
  // CHECK: loop.kernel @contract_0(
  // CHECK: reduce i2: 4
  // CHECK: arith.truncf
  // CHECK: loop.kernel @contract_1(
  // CHECK-NOT: loop.nest (i0: 2, i1: m, i2: 3)
  strata.func @main(%a: f16[m, 4], %w: f16[4, 6], %b: f16[6], %k: f16[2, 3, 5]) -> (f16[2, m, 5]) inputs ["a", "w", "b", "k"] outputs ["y"] {
    %p = graph.matmul %a, %w : f16[m, 6]
    %s = graph.add %p, %b : f16[m, 6]
    %v = graph.reshape %s {shape = [m, 2, 3]} : f16[m, 2, 3]
    %t = graph.transpose %v {perm = [1, 0, 2]} : f16[2, m, 3]
    %y = graph.matmul %t, %k : f16[2, m, 5]
    strata.return %y
  }
}
