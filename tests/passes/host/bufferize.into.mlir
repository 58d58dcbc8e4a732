// PASSES: host-bufferize
// Kernels that keep the rest of a tensor: in its own buffer if that dies, else in a copy.
builtin.module {
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
  loop.kernel @double(%x: f32[n]) -> (f32[n]) sizes(n) {
    %y = loop.nest (i0: n) ins(%x[i0]) outs(f32[n][i0]) {
    ^bb0(%p: f32):
      %r = arith.addf %p, %p : f32
      loop.yield %r
    }
    loop.yield %y
  }
  // Reads %d beside keeping it: the argument is split, and so the tensor is copied.
  // CHECK: loop.kernel @shift(%d: f32[2*n], %d_1: f32[2*n]) -> (f32[2*n]) sizes(n) {
  // CHECK-NEXT: ins(%d[i0]) outs(f32[2*n][i0 + n]) into(%d_1)
  loop.kernel @shift(%d: f32[2*n]) -> (f32[2*n]) sizes(n) {
    %y = loop.nest (i0: n) ins(%d[i0]) outs(f32[2*n][n + i0]) into(%d) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    loop.yield %y
  }
  // %a is needed again, and an input is not ours to write.
  // CHECK: host.func @main
  // CHECK-NEXT: %a = host.alloc : f32[2*n]
  // CHECK-NEXT: host.launch @double(%x, %a) sizes(2*n)
  // CHECK-NEXT: host.copy %a, %b
  // CHECK-NEXT: host.launch @low(%b, %y, %b) sizes(n)
  // CHECK-NEXT: host.copy %x, %d
  // CHECK-NEXT: host.launch @low(%d, %y, %d) sizes(n)
  // CHECK-NEXT: host.copy %a, %g
  // CHECK-NEXT: host.launch @shift(%a, %g, %g) sizes(n)
  // CHECK-NEXT: host.launch @high(%g, %y, %g) sizes(n)
  // CHECK-NEXT: host.return
  strata.func @main(%x: f32[2*n], %y: f32[n]) -> (f32[2*n], f32[2*n], f32[2*n]) inputs ["x", "y"] outputs ["b", "d", "f"] {
    %a = loop.call @double(%x) sizes(2*n) : f32[2*n]
    %b = loop.call @low(%a, %y) sizes(n) : f32[2*n]
    %d = loop.call @low(%x, %y) sizes(n) : f32[2*n]
    %f = loop.call @shift(%a) sizes(n) : f32[2*n]
    %g = loop.call @high(%f, %y) sizes(n) : f32[2*n]
    strata.return %b, %d, %g
  }
}
