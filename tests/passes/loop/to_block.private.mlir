// PASSES: host-bufferize,loop-to-block
// TOLERANCE: 1e-6
// Rows are squared, and read again along another axis: so each program keeps its 16 rows, lanes last,
// with room for a last tile that reaches beyond the 10 columns. What is made of them place by place,
// and read last there, takes over their memory. A sum beside lanes is combined tile by tile.
builtin.module {
  // CHECK: block.kernel @again(%x: f32[n, 10], %y: f32[n, 10]) grid(%i0: ((n + 15) floordiv 16)) sizes(n)
  // CHECK-NEXT: %s = block.scratch : f32[12, 16]
  // CHECK: block.for %i1 = 0 to 8 step 4 (%{{.*}} = %{{.*}}) {
  // CHECK: block.load %x[16*%i0 + t1, %i1 + t0] check [0] pad 0 : tile<4x[16]xf32>
  // CHECK: block.store %{{.*}}, %s[%i1 + t0, t1]
  // CHECK: block.reduce add %{{.*}} dim 0 : tile<[16]xf32>
  // CHECK: block.load %x[16*%i0 + t1, t0 + 8] check [0] pad 0 : tile<2x[16]xf32>
  // CHECK: block.store %{{.*}}, %s[t0 + 8, t1]
  // CHECK: block.load %s[%i2 + t0, t1] : tile<3x[16]xf32>
  // CHECK: block.store %{{.*}}, %s[%i2 + t0, t1]
  // CHECK: block.load %s[-%i3 + 9, t0] : tile<[16]xf32>
  // CHECK: block.store %{{.*}}, %y[16*%i0 + t0, %i3] check [0]
  strata.func @main(%x: f32[n, 10]) -> (f32[n, 10]) inputs ["x"] outputs ["y"] {
    %y = loop.call @again(%x) sizes(n) : f32[n, 10]
    strata.return %y
  }
  loop.kernel @again(%x: f32[n, 10]) -> (f32[n, 10]) sizes(n) schedule<grid i0 tile 16 lanes, loop i1 tile 4, loop i2 tile 3, loop i3 tile 1> {
    %s = loop.nest (i0: n, i1: 10) ins(%x[i0, i1]) outs(f32[n, 10][i0, i1]) {
    ^bb0(%p: f32):
      %q = arith.mulf %p, %p : f32
      loop.yield %q
    }
    %t = loop.nest (i0: n, reduce i1: 10) ins(%s[i0, i1]) outs(add f32[n][i0]) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    %u = loop.nest (i0: n, i2: 10) ins(%s[i0, i2], %t[i0]) outs(f32[n, 10][i0, i2]) {
    ^bb0(%p: f32, %q: f32):
      %r = arith.subf %p, %q : f32
      loop.yield %r
    }
    %y = loop.nest (i0: n, i3: 10) ins(%u[i0, 9 - i3]) outs(f32[n, 10][i0, i3]) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    loop.yield %y
  }
}
