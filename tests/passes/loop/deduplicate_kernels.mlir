// PASSES: loop-deduplicate-kernels
builtin.module {
  // CHECK: strata.func @main
  // CHECK: %a = loop.call @scale(%x) sizes(n, m) : f32[n, m]
  // CHECK-NEXT: %b = loop.call @scale(%y) sizes(2*m, n) : f32[2*m, n]
  // Calls of the same kernel with the same operands are one.
  // CHECK-NEXT: %c = loop.call @other(%a) sizes(n, m) : f32[n, m]
  // CHECK-NEXT: strata.return %c, %b, %a
  strata.func @main(%x: f32[n, m], %y: f32[2*m, n]) -> (f32[n, m], f32[2*m, n], f32[n, m]) inputs ["x", "y"] outputs ["c", "b", "d"] {
    %a = loop.call @scale(%x) sizes(n, m) : f32[n, m]
    %d = loop.call @twin(%x) sizes(m, n) : f32[n, m]
    %b = loop.call @twin(%y) sizes(n, 2*m) : f32[2*m, n]
    %c = loop.call @other(%a) sizes(n, m) : f32[n, m]
    strata.return %c, %b, %d
  }
  // CHECK: loop.kernel @scale
  loop.kernel @scale(%x: f32[p, q]) -> (f32[p, q]) sizes(p, q) {
    %y = loop.nest (i0: p, i1: q) ins(%x[i0, i1]) outs(f32[p, q][i0, i1]) {
    ^bb0(%v: f32):
      %c = arith.constant 2.0 : f32
      %r = arith.mulf %v, %c : f32
      loop.yield %r
    }
    loop.yield %y
  }
  // CHECK-NOT: loop.kernel @twin
  loop.kernel @twin(%z: f32[rows, columns]) -> (f32[rows, columns]) sizes(columns, rows) {
    %w = loop.nest (i4: rows, i2: columns) ins(%z[i4, i2]) outs(f32[rows, columns][i4, i2]) {
    ^bb0(%v: f32):
      %d = arith.constant 2.0 : f32
      %e = arith.mulf %v, %d : f32
      loop.yield %e
    }
    loop.yield %w
  }
  // Another constant.
  // CHECK: loop.kernel @other
  loop.kernel @other(%x: f32[p, q]) -> (f32[p, q]) sizes(p, q) {
    %y = loop.nest (i0: p, i1: q) ins(%x[i0, i1]) outs(f32[p, q][i0, i1]) {
    ^bb0(%v: f32):
      %c = arith.constant 3.0 : f32
      %r = arith.mulf %v, %c : f32
      loop.yield %r
    }
    loop.yield %y
  }
}
