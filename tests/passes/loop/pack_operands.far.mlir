// PASSES: graph-to-loop,loop-fuse,loop-outline,loop-pack-operands
// TARGET: cpu avx2
// TOLERANCE: 1e-4
// Rows that lie a power of two apart drive each other out of the caches: where they are used often
// enough a copy kernel makes panels. Others are read as they lie.
builtin.module {
  // CHECK: loop.call @contract_0_pack1(%b)
  // CHECK-NEXT: loop.call @contract_0
  // CHECK-NEXT: loop.call @contract_1(%c, %b)
  // CHECK-NEXT: loop.call @contract_2(%a, %d)
  strata.func @main(%a: f32[32, 2048], %b: f32[2048, 1024], %c: f32[8, 2048], %d: f32[2048, 1000]) -> (f32[32, 1024], f32[8, 1024], f32[32, 1000]) inputs ["a", "b", "c", "d"] outputs ["x", "y", "z"] {
    %x = graph.matmul %a, %b : f32[32, 1024]
    %y = graph.matmul %c, %b : f32[8, 1024]
    %z = graph.matmul %a, %d : f32[32, 1000]
    strata.return %x, %y, %z
  }
}
