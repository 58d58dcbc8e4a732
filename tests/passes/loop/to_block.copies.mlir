// PASSES: host-bufferize,loop-to-block
// TOLERANCE: 1e-5
// Two rows are computed one by one. Of the four rows that their windows reach, each is loaded once.
builtin.module {
  // CHECK: block.kernel @window({{.*}}) grid(%i0: 2, %i1: 1) {{.*}}grid i0 tile 2 unroll 2
  // CHECK: block.for %i3 = 0 to 3 step 1 unroll 3
  // CHECK: block.load %x[2*%i0 - 1, {{.*}}] check [0, 1]
  // CHECK: block.load %x[2*%i0, {{.*}}] check [1]
  // CHECK: block.load %x[2*%i0 + 1, {{.*}}] check [1]
  // CHECK: block.load %x[2*%i0 + 2, {{.*}}] check [0, 1]
  // CHECK-NOT: block.load %x
  // CHECK: block.store %{{.*}}, %y[2*%i0, 8*%i1 + t0]
  // CHECK: block.store %{{.*}}, %y[2*%i0 + 1, 8*%i1 + t0]
  strata.func @main(%x: f32[4, 8], %w: f32[3, 3]) -> (f32[4, 8]) inputs ["x", "w"] outputs ["y"] {
    %y = loop.call @window(%x, %w) sizes() : f32[4, 8]
    strata.return %y
  }
  loop.kernel @window(%x: f32[4, 8], %w: f32[3, 3]) -> (f32[4, 8]) sizes() schedule<grid i0 tile 2 unroll 2, grid i1 tile 8, loop i3 tile 1 unroll 3, loop i2 tile 1 unroll 3 | tails = mask> {
    %s = loop.nest (i0: 4, i1: 8, reduce i2: 3, reduce i3: 3) ins(%x[i0 + i2 - 1, i1 + i3 - 1] pad 0.0, %w[i2, i3]) outs(add f32[4, 8][i0, i1]) {
    ^bb0(%p: f32, %q: f32):
      %r = arith.mulf %p, %q : f32
      loop.yield %r
    }
    %y = loop.nest (i0: 4, i1: 8) ins(%s[i0, i1]) outs(f32[4, 8][i0, i1]) {
    ^bb0(%p: f32):
      %r = arith.addf %p, %p : f32
      loop.yield %r
    }
    loop.yield %y
  }
}
