// PASSES: loop-bound-walks,host-bufferize,loop-to-block
// TARGET: cuda sm_90
// TOLERANCE: 1e-6
// A program loads between which keys its block of rows may see anything, and its loop over keys walks
// whole tiles between them and between what places alone tell: i0 + 1 keys.
builtin.module {
  // CHECK: block.kernel @online_0(
  // CHECK-NEXT: %0 = block.load %first[%i0] : tile<i32>
  // CHECK-NEXT: %1 = block.load %last[%i0] : tile<i32>
  // CHECK: block.for %i1 = max((%2 floordiv 4), 0) to min(((%3 + 3) floordiv 4), {{.*}}) step 1
  // CHECK: block.load %more[4*%i1 + t0] : tile<4xi32>
  // CHECK: block.for %i1_1 = max((%2 floordiv 4), {{.*}}) to min(((%3 + 3) floordiv 4), {{.*}}) step 1
  // CHECK: block.load %more[4*%i1_1 + t0] check [0] pad 0 : tile<4xi32>
  strata.func @main(%q: f32[n, 8], %k: f32[50, 8], %ids: i32[n], %more: i32[50]) -> (f32[n, 8]) inputs ["q", "k", "ids", "more"] outputs ["y"] {
    %y = loop.call @online_0(%q, %k, %ids, %more) sizes(n) : f32[n, 8]
    strata.return %y
  }
  loop.kernel @online_0(%q: f32[n, 8], %k: f32[50, 8], %ids: i32[n], %more: i32[50]) -> (f32[n, 8]) sizes(n) schedule<grid i0 tile 2, whole i2 tile 8, whole i4 tile 8, loop i1 tile 4 | online = 1, dot = 1, tails = mask> {
    %s = loop.nest (i0: n, i1: 50, reduce i2: 8) ins(%q[i0, i2], %k[i1, i2]) outs(add f32[n, 50][i0, i1]) {
    ^bb0(%a: f32, %b: f32):
      %c = arith.mulf %a, %b : f32
      loop.yield %c
    }
    %x = loop.nest (i0: n, i1: 50) ins(%s[i0, i1], %ids[i0], %more[i1]) outs(f32[n, 50][i0, i1]) {
    ^bb0(%a: f32, %b: i32, %c: i32):
      %i = loop.index i0 : index
      %j = loop.index i1 : index
      %o = arith.cmpi sle, %j, %i : index
      %d = arith.cmpi eq, %b, %c : i32
      %e = arith.constant 0xff800000 : f32
      %f = arith.select %d, %a, %e : f32
      %g = arith.select %o, %f, %e : f32
      loop.yield %g
    }
    %m = loop.nest (i0: n, reduce i1: 50) ins(%x[i0, i1]) outs(max f32[n][i0]) {
    ^bb0(%a: f32):
      loop.yield %a
    }
    %e = loop.nest (i0: n, i1: 50) ins(%x[i0, i1], %m[i0]) outs(f32[n, 50][i0, i1]) {
    ^bb0(%a: f32, %b: f32):
      %c = arith.subf %a, %b : f32
      %d = math.exp %c : f32
      loop.yield %d
    }
    %l = loop.nest (i0: n, reduce i1: 50) ins(%e[i0, i1]) outs(add f32[n][i0]) {
    ^bb0(%a: f32):
      loop.yield %a
    }
    %t = loop.nest (i0: n, i4: 8, reduce i1: 50) ins(%e[i0, i1], %k[i1, i4]) outs(add f32[n, 8][i0, i4]) {
    ^bb0(%a: f32, %b: f32):
      %c = arith.mulf %a, %b : f32
      loop.yield %c
    }
    %y = loop.nest (i0: n, i4: 8) ins(%t[i0, i4], %l[i0]) outs(f32[n, 8][i0, i4]) {
    ^bb0(%a: f32, %b: f32):
      %c = arith.divf %a, %b : f32
      loop.yield %c
    }
    loop.yield %y
  }
}
