// PASSES: host-bufferize,loop-to-block,block-prefetch-operands
// TARGET: cpu avx2
// TOLERANCE: 1e-4
// A panel that a few tiles of rows read: the tiles before the last one ask for the next panel,
// also where only a run knows how many there are. Rows of an operand that is larger than the cache:
// the next ones. What is read as it comes, gathered or small is not asked for.
builtin.module {
  // CHECK: block.kernel @panel
  // CHECK: block.prefetch %w[%i1 + 1, 0, 8*%i2 + 128*(%i0 floordiv 6)]
  // CHECK-NEXT: block.load %w[%i1, %i2, t0]
  // CHECK-NOT: block.prefetch
  // CHECK: block.kernel @open
  // CHECK: block.prefetch %w[%i1 + 1, 0, %i2 + 16*((%i0 floordiv 6) mod 16)]
  // CHECK-NOT: block.prefetch
  // CHECK: block.kernel @rows
  // CHECK: block.prefetch %x[%i0 + 4, 4*%i2]
  // CHECK-NOT: block.prefetch
  strata.func @main(%x: f32[20, 16], %w: f32[3, 16, 16], %o: f32[m, 16], %l: f32[4096, 1024], %v: f32[1024, 16]) -> (f32[20, 48], f32[m, 48], f32[4096, 16]) inputs ["x", "w", "o", "l", "v"] outputs ["y", "z", "r"] {
    %y = loop.call @panel(%x, %w) sizes() : f32[20, 48]
    %z = loop.call @open(%o, %w) sizes(m) : f32[m, 48]
    %r = loop.call @rows(%l, %v) sizes() : f32[4096, 16]
    strata.return %y, %z, %r
  }
  loop.kernel @panel(%x: f32[20, 16], %w: f32[3, 16, 16]) -> (f32[20, 48]) sizes() schedule<grid i1 tile 16 lanes, loop i0 tile 6, loop i2 tile 1 unroll 4> {
    %y = loop.nest (i0: 20, i1: 48, reduce i2: 16) ins(%x[i0, i2], %w[i1 floordiv 16, i2, (i1 mod 16)]) outs(add f32[20, 48][i0, i1]) {
    ^bb0(%p: f32, %q: f32):
      %product = arith.mulf %p, %q : f32
      loop.yield %product
    }
    loop.yield %y
  }
  loop.kernel @open(%x: f32[m, 16], %w: f32[3, 16, 16]) -> (f32[m, 48]) sizes(m) schedule<grid i1 tile 16 lanes, loop i0 tile 6, loop i2 tile 1 unroll 4> {
    %y = loop.nest (i0: m, i1: 48, reduce i2: 16) ins(%x[i0, i2], %w[i1 floordiv 16, i2, (i1 mod 16)]) outs(add f32[m, 48][i0, i1]) {
    ^bb0(%p: f32, %q: f32):
      %product = arith.mulf %p, %q : f32
      loop.yield %product
    }
    loop.yield %y
  }
  loop.kernel @rows(%x: f32[4096, 1024], %w: f32[1024, 16]) -> (f32[4096, 16]) sizes() schedule<grid i1 tile 16 lanes, loop i0 tile 4, loop i2 tile 1 unroll 4> {
    %y = loop.nest (i0: 4096, i1: 16, reduce i2: 1024) ins(%x[i0, i2], %w[i2, i1]) outs(add f32[4096, 16][i0, i1]) {
    ^bb0(%p: f32, %q: f32):
      %product = arith.mulf %p, %q : f32
      loop.yield %product
    }
    loop.yield %y
  }
}
