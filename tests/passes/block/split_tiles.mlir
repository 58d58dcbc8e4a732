// PASSES: host-bufferize,loop-to-block,block-split-tiles
// TARGET: cuda sm_90
// TOLERANCE: 1e-5
// Tiles of 96 and 20 become tiles of 64 and 32, and of 16 and 4; sums of parts are added.
builtin.module {
  // CHECK: block.kernel @sums
  // CHECK: block.load %x[{{.*}}, t1] check [1] pad 0 : tile<4x64xf32>
  // CHECK-NEXT: block.load %x[{{.*}}, t1 + 64] check [1] pad 0 : tile<4x32xf32>
  // CHECK: block.reduce add {{.*}} dim 1 : tile<4xf32>
  // CHECK-NEXT: block.reduce add {{.*}} dim 1 : tile<4xf32>
  // CHECK-NEXT: block.map
  // CHECK: block.store {{.*}}, %y[{{.*}}, t1]
  // CHECK-NEXT: block.store {{.*}}, %y[{{.*}}, t1 + 64]
  // CHECK: block.kernel @dot
  // CHECK: block.for
  // CHECK-SAME: ({{.*}} = {{.*}}, {{.*}} = {{.*}})
  // CHECK: block.dot {{.*}} : tile<16x16xf32>
  // CHECK-NEXT: block.dot {{.*}} : tile<16x4xf32>
  // CHECK-NOT: x20xf32>
  strata.func @main(%x: f32[40, 90], %a: f32[32, 70], %b: f32[70, 20]) -> (f32[40, 90], f32[32, 20]) inputs ["x", "a", "b"] outputs ["y", "z"] {
    %y = loop.call @sums(%x) sizes() : f32[40, 90]
    %z = loop.call @dot(%a, %b) sizes() : f32[32, 20]
    strata.return %y, %z
  }
  loop.kernel @sums(%x: f32[40, 90]) -> (f32[40, 90]) sizes() schedule<grid i0 tile 4, whole i1 tile 96 | tails = mask> {
    %s = loop.nest (i0: 40, reduce i1: 90) ins(%x[i0, i1]) outs(add f32[40][i0]) {
    ^bb0(%a: f32):
      loop.yield %a
    }
    %y = loop.nest (i0: 40, i1: 90) ins(%x[i0, i1], %s[i0]) outs(f32[40, 90][i0, i1]) {
    ^bb0(%a: f32, %b: f32):
      %k = loop.index i1 : index
      %l = arith.index_cast %k : index to i64
      %m = arith.sitofp %l : i64 to f32
      %c = arith.divf %a, %b : f32
      %d = arith.addf %c, %m : f32
      loop.yield %d
    }
    loop.yield %y
  }
  loop.kernel @dot(%a: f32[32, 70], %b: f32[70, 20]) -> (f32[32, 20]) sizes() schedule<grid i0 tile 16, whole i1 tile 20, loop i2 tile 32 | tails = mask, dot = 1> {
    %z = loop.nest (i0: 32, i1: 20, reduce i2: 70) ins(%a[i0, i2], %b[i2, i1]) outs(add f32[32, 20][i0, i1]) {
    ^bb0(%p: f32, %q: f32):
      %r = arith.mulf %p, %q : f32
      loop.yield %r
    }
    loop.yield %z
  }
}
