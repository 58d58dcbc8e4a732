// PASSES: graph-decompose,graph-to-loop,loop-fuse{across=false}
// TOLERANCE: 1e-6
// The parts of an operator are one nest; another operator is another nest, and a view stays apart.
builtin.module {
  // CHECK: strata.func @main
  // CHECK-NEXT: %a = loop.nest (i0: n, i1: 8) ins(%x[i0, i1])
  // CHECK: arith.mulf
  // CHECK: %b = loop.view %a : f32[8*n]
  // CHECK-NEXT: %c = loop.nest (i0: 8*n) ins(%b[i0])
  // CHECK: arith.mulf
  // CHECK-NOT: loop.nest
  strata.func @main(%x: f32[n, 8]) -> (f32[8*n]) inputs ["x"] outputs ["y"] {
    %a = graph.silu %x : f32[n, 8]
    %b = graph.reshape %a {shape = [8*n]} : f32[8*n]
    %c = graph.silu %b : f32[8*n]
    strata.return %c
  }
}
