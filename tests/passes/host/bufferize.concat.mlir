// PASSES: host-bufferize
builtin.module {
  // The halves of a result are written into one empty tensor, which is the output.
  // CHECK: host.func @main(%x: f32[n], %y: f32[n], %b: f32[2*n])
  // CHECK-NEXT: host.launch @low(%b, %x, %b) sizes(n)
  // CHECK-NEXT: host.launch @high(%b, %y, %b) sizes(n)
  // CHECK-NEXT: host.return
  strata.func @main(%x: f32[n], %y: f32[n]) -> (f32[2*n]) inputs ["x", "y"] outputs ["z"] {
    %e = loop.empty : f32[2*n]
    %a = loop.call @low(%e, %x) sizes(n) : f32[2*n]
    %b = loop.call @high(%a, %y) sizes(n) : f32[2*n]
    strata.return %b
  }
  loop.kernel @low(%d: f32[2*n], %x: f32[n]) -> (f32[2*n]) sizes(n) {
    %y = loop.nest (i0: n) ins(%x[i0]) outs(f32[2*n][i0]) into(%d) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    loop.yield %y
  }
  loop.kernel @high(%d: f32[2*n], %x: f32[n]) -> (f32[2*n]) sizes(n) {
    %y = loop.nest (i0: n) ins(%x[i0]) outs(f32[2*n][n + i0]) into(%d) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    loop.yield %y
  }
}
