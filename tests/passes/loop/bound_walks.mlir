// PASSES: loop-bound-walks
// TARGET: cuda sm_90
// TOLERANCE: 1e-6
// A kernel finds which keys have an entry in the range of a block's entries. Both calls share it, since
// they read the same tables. It does not ask what places alone tell.
builtin.module {
  // CHECK: %first, %last = loop.call @visible_0(%ids, %more) sizes(n) : i32[((n + 15) floordiv 16)], i32[((n + 15) floordiv 16)]
  // CHECK: %y = loop.call @online_0(%q, %k, %ids, %more, %first, %last) sizes(n) : f32[n, 8]
  // CHECK: %z = loop.call @online_0(%y, %k, %ids, %more, %first, %last) sizes(n) : f32[n, 8]
  // CHECK: loop.kernel @visible_0(%ids: i32[n], %more: i32[50]) -> (i32[((n + 15) floordiv 16)], i32[((n + 15) floordiv 16)]) sizes(n)
  // CHECK: loop.nest (i0: ((n + 15) floordiv 16), reduce i0_row: 16) ins(%ids[min(16*i0 + i0_row, n - 1)]) outs(min i64[((n + 15) floordiv 16)][i0])
  // CHECK: loop.nest (i0: ((n + 15) floordiv 16), reduce i0_row: 16) ins(%ids[min(16*i0 + i0_row, n - 1)]) outs(max i64[((n + 15) floordiv 16)][i0])
  // CHECK: %first = loop.nest (i0: ((n + 15) floordiv 16), reduce i1: 50) ins(%more[i1], {{.*}}[i0], {{.*}}[i0]) outs(min i32[((n + 15) floordiv 16)][i0])
  // CHECK: %last = loop.nest (i0: ((n + 15) floordiv 16), reduce i1: 50) ins(%more[i1], {{.*}}[i0], {{.*}}[i0]) outs(max i32[((n + 15) floordiv 16)][i0])
  // CHECK: loop.kernel @online_0(%q: f32[n, 8], %k: f32[50, 8], %ids: i32[n], %more: i32[50], %first: i32[((n + 15) floordiv 16)], %last: i32[((n + 15) floordiv 16)])
  // CHECK: loop.visible i1 from %first to %last [(i0 floordiv 16)]
  strata.func @main(%q: f32[n, 8], %k: f32[50, 8], %ids: i32[n], %more: i32[50]) -> (f32[n, 8]) inputs ["q", "k", "ids", "more"] outputs ["y"] {
    %y = loop.call @online_0(%q, %k, %ids, %more) sizes(n) : f32[n, 8]
    %z = loop.call @online_0(%y, %k, %ids, %more) sizes(n) : f32[n, 8]
    strata.return %z
  }
  loop.kernel @online_0(%q: f32[n, 8], %k: f32[50, 8], %ids: i32[n], %more: i32[50]) -> (f32[n, 8]) sizes(n) schedule<grid i0 tile 16, whole i2 tile 8, whole i4 tile 8, loop i1 tile 16 | online = 1, dot = 1, tails = mask> {
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
