// PASSES: graph-decompose,graph-to-loop,loop-fuse{across=false},loop-outline{across=false}
// TOLERANCE: 1e-6
// Softmax is one kernel, and the product before it and the sign after it have kernels of their own.
builtin.module {
  // CHECK: strata.func @main
  // CHECK-NEXT: %a = loop.call @contract_0(%x, %w) sizes(n) : f32[n, 16]
  // CHECK-NEXT: %b = loop.call @reduce_1(%a) sizes(n) : f32[n, 16]
  // CHECK-NEXT: %c = loop.call @map_2(%b) sizes(n) : f32[n, 16]
  // CHECK-NEXT: strata.return
  strata.func @main(%x: f32[n, 8], %w: f32[8, 16]) -> (f32[n, 16]) inputs ["x", "w"]
      outputs ["y"] {
    %a = graph.matmul %x, %w : f32[n, 16]
    %b = graph.softmax %a {axis = 1} : f32[n, 16]
    %c = graph.neg %b : f32[n, 16]
    strata.return %c
  }
}
