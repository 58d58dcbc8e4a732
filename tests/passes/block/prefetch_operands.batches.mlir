// PASSES: host-bufferize,loop-to-block,block-prefetch-operands
// TARGET: cpu avx2
// TOLERANCE: 1e-4
// Panels of a batch that lie side by side, in rows that end inside the last panel: all of them
// together, which is the matrix of the next batch. A sum of parts is one walk, whose last part is
// shorter. Neither the rows of one large matrix, nor panels of which little is dense, are asked for.
builtin.module {
  // CHECK: block.kernel @batches
  // CHECK: block.for %i3 = 0 to 200 step 128
  // CHECK: block.prefetch %b[%i0 + 1, 0, 1600*%i2 + 8*%i3_1 + 3200*(%i1 floordiv 3)]
  // CHECK-NEXT: block.load %b[%i0, %i3_1, 16*%i2 + t0] check [2]
  // CHECK-NOT: block.prefetch
  strata.func @main(%a: f32[4, 6, 200], %b: f32[4, 200, 27], %w: f32[200, 27], %s: f32[4, 200, 99]) -> (f32[4, 6, 27], f32[4, 6, 27], f32[4, 6, 27]) inputs ["a", "b", "w", "s"] outputs ["x", "y", "z"] {
    %x = loop.call @batches(%a, %b) sizes() : f32[4, 6, 27]
    %y = loop.call @shared(%a, %w) sizes() : f32[4, 6, 27]
    %z = loop.call @apart(%a, %s) sizes() : f32[4, 6, 27]
    strata.return %x, %y, %z
  }
  loop.kernel @batches(%a: f32[4, 6, 200], %b: f32[4, 200, 27]) -> (f32[4, 6, 27]) sizes() schedule<grid i0 tile 1, grid i2 tile 16 lanes, loop i1 tile 3, loop i3 tile 128 partial, loop i3 tile 1 unroll 4> {
    %y = loop.nest (i0: 4, i1: 6, i2: 27, reduce i3: 200) ins(%a[i0, i1, i3], %b[i0, i3, i2]) outs(add f32[4, 6, 27][i0, i1, i2]) {
    ^bb0(%p: f32, %q: f32):
      %product = arith.mulf %p, %q : f32
      loop.yield %product
    }
    loop.yield %y
  }
  loop.kernel @shared(%a: f32[4, 6, 200], %w: f32[200, 27]) -> (f32[4, 6, 27]) sizes() schedule<grid i0 tile 1, grid i2 tile 16 lanes, loop i1 tile 3, loop i3 tile 1 unroll 4> {
    %y = loop.nest (i0: 4, i1: 6, i2: 27, reduce i3: 200) ins(%a[i0, i1, i3], %w[i3, i2]) outs(add f32[4, 6, 27][i0, i1, i2]) {
    ^bb0(%p: f32, %q: f32):
      %product = arith.mulf %p, %q : f32
      loop.yield %product
    }
    loop.yield %y
  }
  loop.kernel @apart(%a: f32[4, 6, 200], %s: f32[4, 200, 99]) -> (f32[4, 6, 27]) sizes() schedule<grid i0 tile 1, grid i2 tile 16 lanes, loop i1 tile 3, loop i3 tile 1 unroll 4> {
    %y = loop.nest (i0: 4, i1: 6, i2: 27, reduce i3: 200) ins(%a[i0, i1, i3], %s[i0, i3, i2]) outs(add f32[4, 6, 27][i0, i1, i2]) {
    ^bb0(%p: f32, %q: f32):
      %product = arith.mulf %p, %q : f32
      loop.yield %product
    }
    loop.yield %y
  }
}
