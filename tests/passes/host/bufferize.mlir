// PASSES: host-bufferize
builtin.module {
  // A chain: the last result is computed in the output; a view shares memory; constants stay.
  // CHECK: host.func @main(%x: f32[n, 4], %r: f32[2*n, 2]) inputs ["x"] outputs ["y"] sizes(n) {
  // CHECK-NEXT: %c = host.constant literal[1.0, 2.0, 3.0, 4.0] : f32[4]
  // CHECK-NEXT: %a = host.alloc : f32[n, 4]
  // CHECK-NEXT: host.launch @add(%x, %c, %a) sizes(n)
  // CHECK-NEXT: %v = host.view %a : f32[4*n]
  // CHECK-NEXT: %b = host.view %r : f32[4*n]
  // CHECK-NEXT: host.launch @double(%v, %b) sizes(4*n)
  // CHECK-NEXT: host.return
  strata.func @main(%x: f32[n, 4]) -> (f32[2*n, 2]) inputs ["x"] outputs ["y"] {
    %c = graph.constant {value = literal[1.0, 2.0, 3.0, 4.0]} : f32[4]
    %a = loop.call @add(%x, %c) sizes(n) : f32[n, 4]
    %v = loop.view %a : f32[4*n]
    %b = loop.call @double(%v) sizes(4*n) : f32[4*n]
    %r = loop.view %b : f32[2*n, 2]
    strata.return %r
  }
  loop.kernel @add(%x: f32[n, 4], %c: f32[4]) -> (f32[n, 4]) sizes(n) {
    %y = loop.nest (i0: n, i1: 4) ins(%x[i0, i1], %c[i1]) outs(f32[n, 4][i0, i1]) {
    ^bb0(%p: f32, %q: f32):
      %r = arith.addf %p, %q : f32
      loop.yield %r
    }
    loop.yield %y
  }
  loop.kernel @double(%x: f32[m]) -> (f32[m]) sizes(m) {
    %y = loop.nest (i0: m) ins(%x[i0]) outs(f32[m][i0]) {
    ^bb0(%p: f32):
      %r = arith.addf %p, %p : f32
      loop.yield %r
    }
    loop.yield %y
  }
}
