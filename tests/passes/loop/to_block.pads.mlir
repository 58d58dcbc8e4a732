// PASSES: host-bufferize,loop-to-block
// TOLERANCE: 1e-6
// A maximum and a sum of the same masked tile: each reads what leaves it as it is, beyond the end.
builtin.module {
  // CHECK: block.kernel @both
  // CHECK-NEXT: block.load %x[%i0, t0] check [1] pad -inf : tile<64xf32>
  // CHECK: block.reduce max
  // CHECK: block.load %x[%i0, t0] check [1] pad 0 : tile<64xf32>
  // CHECK: block.reduce add
  strata.func @main(%x: f32[n, 40]) -> (f32[n], f32[n]) inputs ["x"] outputs ["m", "s"] {
    %m, %s = loop.call @both(%x) sizes(n) : f32[n], f32[n]
    strata.return %m, %s
  }
  loop.kernel @both(%x: f32[n, 40]) -> (f32[n], f32[n]) sizes(n) schedule<grid i0 tile 1, whole i1 tile 64 | tails = mask> {
    %m = loop.nest (i0: n, reduce i1: 40) ins(%x[i0, i1]) outs(max f32[n][i0]) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    %s = loop.nest (i0: n, reduce i1: 40) ins(%x[i0, i1]) outs(add f32[n][i0]) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    loop.yield %m, %s
  }
}
