// PASSES: host-bufferize
builtin.module {
  // An input, a constant, a view of an input, and a tensor returned twice are copied.
  // CHECK: host.func @main(%x: f32[n, 2], %a: f32[n, 2], %b: f32[2], %c: f32[2*n], %y: f32[n, 2], %e: f32[n, 2], %f: f32[2*n]) inputs ["x"] outputs ["a", "b", "c", "d", "e", "f"] sizes(n) {
  // CHECK-NEXT: %c_1 = host.constant literal[1.0, 2.0] : f32[2]
  // CHECK-NEXT: %v = host.view %x : f32[2*n]
  // CHECK-NEXT: host.launch @double(%x, %y) sizes(n)
  // CHECK-NEXT: %w = host.view %y : f32[2*n]
  // CHECK-NEXT: host.copy %x, %a
  // CHECK-NEXT: host.copy %c_1, %b
  // CHECK-NEXT: host.copy %v, %c
  // CHECK-NEXT: host.copy %y, %e
  // CHECK-NEXT: host.copy %w, %f
  // CHECK-NEXT: host.return
  strata.func @main(%x: f32[n, 2]) -> (f32[n, 2], f32[2], f32[2*n], f32[n, 2], f32[n, 2], f32[2*n]) inputs ["x"] outputs ["a", "b", "c", "d", "e", "f"] {
    %c = graph.constant {value = literal[1.0, 2.0]} : f32[2]
    %v = loop.view %x : f32[2*n]
    %y = loop.call @double(%x) sizes(n) : f32[n, 2]
    %w = loop.view %y : f32[2*n]
    strata.return %x, %c, %v, %y, %y, %w
  }
  loop.kernel @double(%x: f32[n, 2]) -> (f32[n, 2]) sizes(n) {
    %y = loop.nest (i0: n, i1: 2) ins(%x[i0, i1]) outs(f32[n, 2][i0, i1]) {
    ^bb0(%p: f32):
      %r = arith.addf %p, %p : f32
      loop.yield %r
    }
    loop.yield %y
  }
}
