// PASSES: graph-fold-constants,graph-to-loop,loop-fuse,loop-outline,loop-pack-operands
// TARGET: cpu avx2
// TOLERANCE: 1e-5
// A constant operand that lies in lanes is packed into panels of the tile's width, now.
builtin.module {
  // CHECK: strata.func @main
  // CHECK: graph.constant {value = #strata.weight<"{{.*}}.packed", "{{.*}}">} : f32[4, 3, 16]
  // CHECK-NEXT: loop.call @contract_0
  // CHECK: ins(%a[i0, i2], %{{.*}}[(i1 floordiv 16), i2, (i1 mod 16)]) outs(add f32[m, 50][i0, i1])
  strata.func @main(%a: f32[m, 3]) -> (f32[m, 50]) inputs ["a"] outputs ["y"] {
    %w = graph.range {start = 0, step = 1, count = 150, to = f32} : f32[150]
    %v = graph.reshape %w {shape = [3, 50]} : f32[3, 50]
    %y = graph.matmul %a, %v : f32[m, 50]
    strata.return %y
  }
}
