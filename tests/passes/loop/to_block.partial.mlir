// PASSES: host-bufferize,loop-to-block
// TOLERANCE: 1e-5
// Each tile of a partial level sums from zero, and is added to what there is so far; a last tile that
// is smaller, too. A maximum over the same axis has no parts.
builtin.module {
  // CHECK: block.kernel @sums
  // CHECK-NEXT: block.full 0.0
  // CHECK-NEXT: %y_1 = block.for %i1 = 0 to 40 step 16 (
  // CHECK-NEXT: block.full 0.0
  // CHECK-NEXT: block.for %i1_1 = %i1 to min(%i1 + 16, 40) step 1
  // CHECK: arith.addf
  // CHECK: arith.addf
  // CHECK: block.store
  // CHECK: block.kernel @most
  // CHECK: block.full -inf
  // CHECK-NOT: block.full
  // CHECK: block.store
  strata.func @main(%x: f32[8, 40]) -> (f32[8], f32[8]) inputs ["x"] outputs ["y", "z"] {
    %y = loop.call @sums(%x) sizes() : f32[8]
    %z = loop.call @most(%x) sizes() : f32[8]
    strata.return %y, %z
  }
  loop.kernel @sums(%x: f32[8, 40]) -> (f32[8]) sizes() schedule<grid i0 tile 8, loop i1 tile 16 partial, loop i1 tile 1> {
    %y = loop.nest (i0: 8, reduce i1: 40) ins(%x[i0, i1]) outs(add f32[8][i0]) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    loop.yield %y
  }
  loop.kernel @most(%x: f32[8, 40]) -> (f32[8]) sizes() schedule<grid i0 tile 8, loop i1 tile 16 partial, loop i1 tile 1> {
    %y = loop.nest (i0: 8, reduce i1: 40) ins(%x[i0, i1]) outs(max f32[8][i0]) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    loop.yield %y
  }
}
