// PASSES: host-bufferize,loop-to-block
// TOLERANCE: 1e-5
// Rows of 38 begin between words of four: a tile for what is before the first whole word, whole tiles
// from there on, and one for the rest, once for the sums and once for the results.
builtin.module {
  // CHECK: block.kernel @softmax({{.*}}) grid(%i0: 5)
  // CHECK: block.load %x[%i0, t0] : tile<4xf32>
  // CHECK-NEXT: block.valid t0 < -38*%i0 + 4*((38*%i0 + 3) floordiv 4) : tile<4xi1>
  // CHECK: block.for %i1 = 0 to 32 step 16
  // CHECK-NEXT: block.load %x[%i0, -38*%i0 + %i1 + 4*((38*%i0 + 3) floordiv 4) + t0] : tile<16xf32>
  // CHECK: block.load %x[%i0, -38*%i0 + 4*((38*%i0 + 3) floordiv 4) + t0 + 32] check [1] {{.*}} : tile<8xf32>
  // CHECK: block.store {{.*}} check [1]
  // CHECK: block.for %i1_1 = 0 to 32 step 16 parallel
  // CHECK: block.store %{{.*}}, %y[%i0, -38*%i0 + %i1_1 + 4*((38*%i0 + 3) floordiv 4) + t0]
  // CHECK: block.store {{.*}} check [1]
  strata.func @main(%x: f32[5, 38]) -> (f32[5, 38]) inputs ["x"] outputs ["y"] {
    %y = loop.call @softmax(%x) sizes() : f32[5, 38]
    strata.return %y
  }
  loop.kernel @softmax(%x: f32[5, 38]) -> (f32[5, 38]) sizes() schedule<grid i0 tile 1, loop i1 tile 16 | tails = mask, online = 1, words = 4> {
    %m = loop.nest (i0: 5, reduce i1: 38) ins(%x[i0, i1]) outs(max f32[5][i0]) {
    ^bb0(%a: f32):
      loop.yield %a
    }
    %p = loop.nest (i0: 5, i1: 38) ins(%x[i0, i1], %m[i0]) outs(f32[5, 38][i0, i1]) {
    ^bb0(%a: f32, %b: f32):
      %c = arith.subf %a, %b : f32
      %r = math.exp %c : f32
      loop.yield %r
    }
    %l = loop.nest (i0: 5, reduce i1: 38) ins(%p[i0, i1]) outs(add f32[5][i0]) {
    ^bb0(%a: f32):
      loop.yield %a
    }
    %y = loop.nest (i0: 5, i1: 38) ins(%p[i0, i1], %l[i0]) outs(f32[5, 38][i0, i1]) {
    ^bb0(%a: f32, %b: f32):
      %c = arith.divf %a, %b : f32
      loop.yield %c
    }
    loop.yield %y
  }
}
