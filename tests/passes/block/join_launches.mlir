// PASSES: host-bufferize,host-plan-buffers,loop-to-block,block-join-launches
// TARGET: cuda sm_90
// Launches that depend on each other stay in order; a grid of two axes, a sum of rows and constants
// are parts like all others.
builtin.module {
  // CHECK: host.func @main
  // CHECK: host.launch @join_0
  // CHECK: host.launch @join_1
  // CHECK: host.return
  // CHECK-NOT: block.kernel @map
  // CHECK: block.kernel @join_0({{.*}}) grid(%{{.*}}: 11)
  // CHECK-NEXT: block.for %{{.*}} = max(%{{.*}}, 0) to min(%{{.*}} + 1, 3) step 1
  // CHECK: block.for %{{.*}} = max(%{{.*}} - 3, 0) to min(%{{.*}} - 2, 6) step 1
  // CHECK-NEXT: block.for %{{.*}} = (%{{.*}} mod 2) to (%{{.*}} mod 2) + 1 step 1
  // CHECK-NEXT: block.for %{{.*}} = (%{{.*}} floordiv 2) to (%{{.*}} floordiv 2) + 1 step 1
  // CHECK: block.for %{{.*}} = max(%{{.*}} - 9, 0) to min(%{{.*}} - 8, 2) step 1
  // CHECK: block.reduce add
  // CHECK: block.kernel @join_1
  strata.func @main(%x: f32[40], %y: f32[40, 20], %z: f32[7, 5]) -> (f32[40], f32[40, 20], f32[7], f32[40], f32[7]) inputs ["x", "y", "z"] outputs ["a", "b", "c", "d", "e"] {
    %a = loop.call @map_0(%x) sizes() : f32[40]
    %b = loop.call @map_1(%y, %x) sizes() : f32[40, 20]
    %c = loop.call @sum(%z) sizes() : f32[7]
    %d = loop.call @map_0(%a) sizes() : f32[40]
    %e = loop.call @map_2(%c) sizes() : f32[7]
    strata.return %a, %b, %c, %d, %e
  }
  loop.kernel @map_0(%x: f32[40]) -> (f32[40]) sizes() schedule<grid i0 tile 16 | tails = mask, warps = 4> {
    %0 = loop.nest (i0: 40) ins(%x[i0]) outs(f32[40][i0]) {
    ^bb0(%p: f32):
      %q = arith.mulf %p, %p : f32
      loop.yield %q
    }
    loop.yield %0
  }
  loop.kernel @map_1(%y: f32[40, 20], %x: f32[40]) -> (f32[40, 20]) sizes() schedule<grid i0 tile 16, grid i1 tile 16 | tails = mask, warps = 4> {
    %0 = loop.nest (i0: 40, i1: 20) ins(%y[i0, i1], %x[i0]) outs(f32[40, 20][i0, i1]) {
    ^bb0(%p: f32, %q: f32):
      %r = arith.addf %p, %q : f32
      loop.yield %r
    }
    loop.yield %0
  }
  loop.kernel @map_2(%x: f32[7]) -> (f32[7]) sizes() schedule<grid i0 tile 8 | tails = mask, warps = 4> {
    %0 = loop.nest (i0: 7) ins(%x[i0]) outs(f32[7][i0]) {
    ^bb0(%p: f32):
      %q = arith.addf %p, %p : f32
      loop.yield %q
    }
    loop.yield %0
  }
  loop.kernel @sum(%z: f32[7, 5]) -> (f32[7]) sizes() schedule<grid i0 tile 4, whole i1 tile 8 | tails = mask, warps = 4> {
    %0 = loop.nest (i0: 7, reduce i1: 5) ins(%z[i0, i1]) outs(add f32[7][i0]) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    loop.yield %0
  }
}
