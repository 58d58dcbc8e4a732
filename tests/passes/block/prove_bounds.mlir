// PASSES: host-bufferize,loop-to-block,block-prove-bounds
// What only sizes keep inside becomes an assumption, what data may lead outside a check; the rest
// is proven, and says nothing.
builtin.module {
  // CHECK: host.func @main
  // CHECK-NEXT: host.alloc
  // CHECK-NEXT: host.launch @clamp
  // CHECK-NEXT: strata.assume min(1, m) <= n
  // CHECK-NEXT: strata.assume 3*min(1, m) <= n
  // CHECK-NEXT: host.launch @pick
  // CHECK: block.kernel @clamp
  // CHECK-NOT: assumed
  // CHECK-NOT: check
  // CHECK: block.kernel @pick
  // CHECK: block.load %places[%i0] : tile<i64>
  // CHECK: block.load %x[{{%[0-9]+}}, t0] assumed [0] : tile<[8]xf32>
  // CHECK: block.store {{[%a-z0-9_]+}}, %y[%i0, t0]
  // CHECK: block.load %ids[%i0] : tile<i64>
  // CHECK: block.load %x[{{%[0-9]+}}, 0] check [0] pad 0 : tile<f32>
  // CHECK: block.load %x[2, 7] assumed [0] : tile<f32>
  // CHECK: block.store {{[%a-z0-9_]+}}, %z[%i0]
  strata.func @main(%x: f32[n, 8], %ids: i64[m]) -> (f32[m, 8], f32[m]) inputs ["x", "ids"] outputs ["y", "z"] {
    %places = loop.call @clamp(%ids) sizes(n, m) : i64[m]
    %y, %z = loop.call @pick(%x, %ids, %places) sizes(n, m) : f32[m, 8], f32[m]
    strata.return %y, %z
  }
  loop.kernel @clamp(%ids: i64[m]) -> (i64[m]) sizes(n, m) schedule<grid i0 tile 1> {
    %places = loop.nest (i0: m) ins(%ids[i0]) outs(i64[m][i0]) {
    ^bb0(%a: i64):
      %size = loop.index n : index
      %one = arith.constant 1 : i64
      %zero = arith.constant 0 : i64
      %b = arith.index_cast %size : index to i64
      %last = arith.subi %b, %one : i64
      %low = arith.minsi %a, %last : i64
      %at = arith.maxsi %low, %zero : i64
      loop.yield %at
    }
    loop.yield %places
  }
  loop.kernel @pick(%x: f32[n, 8], %ids: i64[m], %places: i64[m]) -> (f32[m, 8], f32[m]) sizes(n, m) schedule<grid i0 tile 1, whole i1 tile 8 lanes> {
    %y = loop.nest (i0: m, i1: 8) ins(%places[i0], %x[in0, i1]) outs(f32[m, 8][i0, i1]) {
    ^bb0(%i: i64, %a: f32):
      loop.yield %a
    }
    %z = loop.nest (i0: m) ins(%ids[i0], %x[in0, 0], %x[2, 7]) outs(f32[m][i0]) {
    ^bb0(%i: i64, %a: f32, %b: f32):
      %r = arith.addf %a, %b : f32
      loop.yield %r
    }
    loop.yield %y, %z
  }
}
