// PASSES: loop-inline-layers
// Each call becomes a call of the kernel, with the name of its own node.
builtin.module {
  // CHECK: strata.func @main(%x: f32[n]) -> (f32[n]) inputs ["x"] outputs ["y"] {
  // CHECK-NEXT: %c = graph.constant {value = literal[2.0]} : f32[]
  // CHECK-NEXT: %y = loop.call @scale(%x, %c) sizes(n) : f32[n]
  // CHECK-NEXT: %y_1 = loop.call @scale(%y, %c) sizes(n) : f32[n]
  // CHECK-NEXT: strata.return %y_1
  // CHECK-NOT: strata.func @layer
  strata.func @main(%x: f32[n]) -> (f32[n]) inputs ["x"] outputs ["y"] {
    %a = strata.call @layer number 0 of ["first"] (%x) : f32[n]
    %y = strata.call @layer number 1 of ["second"] (%a) : f32[n]
    strata.return %y
  }
  strata.func @layer(%x: f32[n]) -> (f32[n]) sizes(n) inputs ["x"] outputs ["0"] {
    %c = graph.constant {value = literal[2.0]} : f32[]
    %y = loop.call @scale(%x, %c) sizes(n) : f32[n]
    strata.return %y
  }
  loop.kernel @scale(%x: f32[p], %c: f32[]) -> (f32[p]) sizes(p) {
    %y = loop.nest (i0: p) ins(%x[i0], %c[]) outs(f32[p][i0]) {
    ^bb0(%v: f32, %k: f32):
      %r = arith.mulf %v, %k : f32
      loop.yield %r
    }
    loop.yield %y
  }
}
