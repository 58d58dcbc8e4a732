// PASSES: graph-to-loop,loop-fuse,loop-outline,loop-pack-operands
// TARGET: cpu avx2
// TOLERANCE: 1e-5
// An operand that only comes at run time, and whose lanes do not run along memory: a copy kernel
// packs it before the call.
builtin.module {
  // CHECK: strata.func @main
  // CHECK-NEXT: loop.call @contract_0_pack{{[0-9]+}}(%w) sizes() : f32[{{[0-9]+}}, 3, {{[0-9]+}}]
  // CHECK-NEXT: loop.call @contract_0(%a, %{{.*}}) sizes(m) : f32[m, 50]
  // CHECK: loop.kernel @contract_0_pack{{[0-9]+}}(%{{.*}}: f32[50, 3])
  // CHECK-NEXT: loop.nest (i0: {{[0-9]+}}, i1: 3, i2: {{[0-9]+}}) ins(%{{.*}}[{{.*}}, i1] pad 0)
  strata.func @main(%a: f32[m, 3], %w: f32[50, 3]) -> (f32[m, 50]) inputs ["a", "w"] outputs ["y"] {
    %t = graph.transpose %w {perm = [1, 0]} : f32[3, 50]
    %y = graph.matmul %a, %t : f32[m, 50]
    strata.return %y
  }
}
