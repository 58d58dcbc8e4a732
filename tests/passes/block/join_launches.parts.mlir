// PASSES: host-bufferize,host-plan-buffers,loop-to-block,block-join-launches
// TARGET: cuda sm_90
// Parts of a concatenation write one buffer at other places, so they share a launch; a part that
// writes again what another one has written comes later, and so does what reads the buffer.
builtin.module {
  // CHECK: host.launch @join_0
  // CHECK-NEXT: host.launch @low
  // CHECK-NEXT: host.launch @sum
  // CHECK-NEXT: host.return
  strata.func @main(%x: f32[4], %y: f32[8]) -> (f32[8]) inputs ["x", "y"] outputs ["a"] {
    %z = loop.call @sum(%y, %y) sizes() : f32[8]
    %a = loop.call @low(%x, %z) sizes() : f32[8]
    %b = loop.call @high(%x, %a) sizes() : f32[8]
    %c = loop.call @low(%x, %b) sizes() : f32[8]
    %d = loop.call @sum(%c, %c) sizes() : f32[8]
    strata.return %d
  }
  loop.kernel @low(%x: f32[4], %y: f32[8]) -> (f32[8]) sizes() schedule<grid i0 tile 4 | tails = mask, warps = 4> {
    %0 = loop.nest (i0: 4) ins(%x[i0]) outs(f32[8][i0]) into(%y) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    loop.yield %0
  }
  loop.kernel @high(%x: f32[4], %y: f32[8]) -> (f32[8]) sizes() schedule<grid i0 tile 4 | tails = mask, warps = 4> {
    %0 = loop.nest (i0: 4) ins(%x[3 - i0]) outs(f32[8][i0 + 4]) into(%y) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    loop.yield %0
  }
  loop.kernel @sum(%x: f32[8], %y: f32[8]) -> (f32[8]) sizes() schedule<grid i0 tile 8 | tails = mask, warps = 4> {
    %0 = loop.nest (i0: 8) ins(%x[i0], %y[7 - i0]) outs(f32[8][i0]) {
    ^bb0(%p: f32, %q: f32):
      %r = arith.addf %p, %q : f32
      loop.yield %r
    }
    loop.yield %0
  }
}
