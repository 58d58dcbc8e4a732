// PASSES: host-bufferize,loop-to-block
// TOLERANCE: 1e-5
// Tiles of rows by columns, the summed axis in masked steps on `dot`; the bias is an epilogue.
builtin.module {
  // CHECK: block.kernel @product({{.*}}) grid(%i0: ((m + 15) floordiv 16), %i1: 2) sizes(m)
  // CHECK-NEXT: block.full 0.0 : tile<16x32xf32>
  // CHECK-NEXT: block.for %i2 = 0 to 40 step 16 ({{.*}}) {
  // CHECK-NEXT: block.load %a[16*%i0 + t0, %i2 + t1] check [0, 1] pad 0 : tile<16x16xf32>
  // CHECK-NEXT: block.load %b[%i2 + t0, 32*%i1 + t1] check [0, 1] pad 0 : tile<16x32xf32>
  // CHECK-NEXT: block.dot
  // CHECK: block.load %c[32*%i1 + t0] check [0] pad 0 : tile<32xf32>
  // CHECK: arith.addf
  // CHECK: block.store %{{.*}}, %y[16*%i0 + t0, 32*%i1 + t1] check [0, 1]
  strata.func @main(%a: f32[m, 40], %b: f32[40, 50], %c: f32[50]) -> (f32[m, 50]) inputs ["a", "b", "c"] outputs ["y"] {
    %y = loop.call @product(%a, %b, %c) sizes(m) : f32[m, 50]
    strata.return %y
  }
  loop.kernel @product(%a: f32[m, 40], %b: f32[40, 50], %c: f32[50]) -> (f32[m, 50]) sizes(m) schedule<grid i0 tile 16, grid i1 tile 32, loop i2 tile 16 | dot = 1, tails = mask> {
    %m = loop.nest (i0: m, i1: 50, reduce i2: 40) ins(%a[i0, i2], %b[i2, i1]) outs(add f32[m, 50][i0, i1]) {
    ^bb0(%p: f32, %q: f32):
      %v = arith.mulf %p, %q : f32
      loop.yield %v
    }
    %y = loop.nest (i0: m, i1: 50) ins(%m[i0, i1], %c[i1]) outs(f32[m, 50][i0, i1]) {
    ^bb0(%p: f32, %q: f32):
      %v = arith.addf %p, %q : f32
      loop.yield %v
    }
    loop.yield %y
  }
}
