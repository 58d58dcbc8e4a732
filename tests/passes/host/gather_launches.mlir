// PASSES: host-bufferize,host-gather-launches,host-plan-buffers,loop-to-block,block-join-launches
// TARGET: cuda sm_90
// Three products of the same rows, split along their sums, become one launch, and so do the sums of
// their parts; what reads one of them, or is read by one, keeps its place.
builtin.module {
  // CHECK: host.func @main
  // CHECK: host.launch @join_0({{.*}}, {{.*}}, %{{.*}}, {{.*}}, {{.*}}, %{{.*}}, {{.*}}, {{.*}}, %{{.*}})
  // CHECK-NOT: host.launch @product
  // CHECK: host.launch @join_1
  // CHECK-NOT: host.launch @total
  // CHECK: host.launch @next
  // CHECK-NOT: host.launch
  // CHECK: host.return
  // CHECK: block.kernel @join_0({{.*}}) grid(%{{.*}}: 24)
  // CHECK: block.dot
  // CHECK: block.dot
  // CHECK: block.dot
  strata.func @main(%x: f32[4, 64], %q: f32[2, 32, 32], %k: f32[2, 32, 32], %v: f32[2, 32, 32]) -> (f32[4, 32], f32[4, 32], f32[4, 32]) inputs ["x", "q", "k", "v"] outputs ["a", "b", "c"] {
    %p0 = loop.call @product(%x, %q) sizes() : f32[2, 4, 32]
    %a = loop.call @total(%p0) sizes() : f32[4, 32]
    %p1 = loop.call @product(%x, %k) sizes() : f32[2, 4, 32]
    %b = loop.call @total(%p1) sizes() : f32[4, 32]
    %p2 = loop.call @product(%x, %v) sizes() : f32[2, 4, 32]
    %c = loop.call @total(%p2) sizes() : f32[4, 32]
    %d = loop.call @next(%a) sizes() : f32[4, 32]
    strata.return %d, %b, %c
  }
  loop.kernel @product(%x: f32[4, 64], %w: f32[2, 32, 32]) -> (f32[2, 4, 32]) sizes() schedule<grid i2 tile 1, grid i0 tile 4, grid i1 tile 8, loop i3 tile 16 | dot = 1, tails = mask, warps = 4, stages = 2> {
    %0 = loop.nest (i2: 2, i0: 4, i1: 32, reduce i3: 32) ins(%x[i0, 32*i2 + i3], %w[i2, i1, i3]) outs(add f32[2, 4, 32][i2, i0, i1]) {
    ^bb0(%p: f32, %q: f32):
      %m = arith.mulf %p, %q : f32
      loop.yield %m
    }
    loop.yield %0
  }
  loop.kernel @total(%p: f32[2, 4, 32]) -> (f32[4, 32]) sizes() schedule<grid i0 tile 4, grid i1 tile 8, whole i2 tile 2 | tails = mask, warps = 1> {
    %0 = loop.nest (i0: 4, i1: 32, reduce i2: 2) ins(%p[i2, i0, i1]) outs(add f32[4, 32][i0, i1]) {
    ^bb0(%a: f32):
      loop.yield %a
    }
    loop.yield %0
  }
  loop.kernel @next(%a: f32[4, 32]) -> (f32[4, 32]) sizes() schedule<grid i0 tile 4, grid i1 tile 8 | tails = mask, warps = 4> {
    %0 = loop.nest (i0: 4, i1: 32) ins(%a[i0, i1]) outs(f32[4, 32][i0, i1]) {
    ^bb0(%p: f32):
      %r = arith.addf %p, %p : f32
      loop.yield %r
    }
    loop.yield %0
  }
}
