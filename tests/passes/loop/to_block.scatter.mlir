// PASSES: host-bufferize,loop-to-block
// Updates follow one another in a serial loop; the elements that are there are loaded before. What
// inputs alone place is masked, where a tile reaches beyond its axis, by an index outside.
builtin.module {
  // CHECK: host.copy %x, %s
  // CHECK-NEXT: host.launch @merge(%i, %u, %s, %s) sizes(k, m)
  // CHECK: block.kernel @merge
  // CHECK: block.for %{{.*}} = 0 to k step 1 {
  // CHECK-NEXT: %{{.*}} = block.load %i[%{{.*}}] : tile<i64>
  // CHECK-NEXT: %{{.*}} = block.load %u[%{{.*}}, t0] : tile<[16]xf32>
  // CHECK-NEXT: %{{.*}} = block.load %s[%{{.*}}, t0] : tile<[16]xf32>
  // CHECK-NEXT: %{{.*}} = block.map (%{{.*}}[], %{{.*}}[0], %{{.*}}[0])
  // CHECK: arith.addf
  // CHECK: block.store %{{.*}}, %s[%{{.*}}, t0]
  // CHECK: block.kernel @put
  // CHECK: block.store %{{.*}}, %y[16*m*min(1, max(0, 16*%{{.*}} - m + t0 + 1)) + %0] with %0[0] check [0]
  strata.func @main(%i: i64[k], %u: f32[k, 16], %x: f32[m, 16], %p: i64[m]) -> (f32[m, 16], f32[16*m]) inputs ["i", "u", "x", "p"] outputs ["s", "y"] {
    %s = loop.call @merge(%i, %u, %x) sizes(k, m) : f32[m, 16]
    %e = loop.view %x : f32[16*m]
    %y = loop.call @put(%p, %e) sizes(m) : f32[16*m]
    strata.return %s, %y
  }
  loop.kernel @merge(%i: i64[k], %u: f32[k, 16], %x: f32[m, 16]) -> (f32[m, 16]) sizes(k, m) schedule<loop i0 tile 1, whole i1 tile 16 lanes> {
    %s = loop.nest (reduce i0: k, i1: 16) ins(%i[i0], %u[i0, i1]) outs(add f32[m, 16][in0, i1]) into(%x) {
    ^bb0(%a: i64, %b: f32):
      loop.yield %b
    }
    loop.yield %s
  }
  loop.kernel @put(%p: i64[m], %e: f32[16*m]) -> (f32[16*m]) sizes(m) schedule<grid i0 tile 16 lanes | tails = mask> {
    %y = loop.nest (i0: m) ins(%p[i0]) outs(f32[16*m][in0]) into(%e) {
    ^bb0(%a: i64):
      %b = arith.constant 2.5 : f32
      loop.yield %b
    }
    loop.yield %y
  }
}
