// PASSES: host-bufferize,loop-to-block,block-peel-tails
// TARGET: cuda sm_90
// An odd end is compared with in the last program; an even one, and rows of several dims, as before.
builtin.module {
  // CHECK: block.kernel @odd
  // CHECK-NEXT: block.for %{{.*}} = max(%{{.*}}, 0) to min(%{{.*}} + 1, 2) step 1
  // CHECK-NEXT: block.load %x[16*%{{.*}} + t0] : tile<16xf32>
  // CHECK: block.for %{{.*}} = max(%{{.*}}, 2) to min(%{{.*}} + 1, 3) step 1
  // CHECK-NEXT: block.load %x[16*%{{.*}} + t0] check [0] pad 0 : tile<16xf32>
  // CHECK: block.kernel @even
  // CHECK-NOT: block.for
  // CHECK: block.kernel @rows
  // CHECK-NOT: block.for
  strata.func @main(%x: f32[41], %y: f32[40], %z: f32[40, 3]) -> (f32[41], f32[40], f32[40, 3]) inputs ["x", "y", "z"] outputs ["a", "b", "c"] {
    %a = loop.call @odd(%x) sizes() : f32[41]
    %b = loop.call @even(%y) sizes() : f32[40]
    %c = loop.call @rows(%z) sizes() : f32[40, 3]
    strata.return %a, %b, %c
  }
  loop.kernel @odd(%x: f32[41]) -> (f32[41]) sizes() schedule<grid i0 tile 16 | tails = mask, warps = 4> {
    %0 = loop.nest (i0: 41) ins(%x[i0]) outs(f32[41][i0]) {
    ^bb0(%p: f32):
      %q = arith.mulf %p, %p : f32
      loop.yield %q
    }
    loop.yield %0
  }
  loop.kernel @even(%y: f32[40]) -> (f32[40]) sizes() schedule<grid i0 tile 16 | tails = mask, warps = 4> {
    %0 = loop.nest (i0: 40) ins(%y[i0]) outs(f32[40][i0]) {
    ^bb0(%p: f32):
      %q = arith.addf %p, %p : f32
      loop.yield %q
    }
    loop.yield %0
  }
  loop.kernel @rows(%z: f32[40, 3]) -> (f32[40, 3]) sizes() schedule<grid i0 tile 16, grid i1 tile 4 | tails = mask, warps = 4> {
    %0 = loop.nest (i0: 40, i1: 3) ins(%z[i0, i1]) outs(f32[40, 3][i0, i1]) {
    ^bb0(%p: f32):
      %q = arith.addf %p, %p : f32
      loop.yield %q
    }
    loop.yield %0
  }
}
