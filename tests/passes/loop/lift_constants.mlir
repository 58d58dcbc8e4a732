// PASSES: loop-lift-constants
builtin.module {
  // CHECK: strata.func @main
  // CHECK-NEXT: %0 = graph.constant {value = literal[2.0]} : f32[]
  // CHECK-NEXT: %a = loop.call @double(%x, %0) sizes(n) : f32[n]
  // CHECK-NEXT: %1 = graph.constant {value = literal[3.0]} : f32[]
  // CHECK-NEXT: %b = loop.call @triple(%a, %1) sizes(n) : f32[n]
  // CHECK-NEXT: %c = loop.call @half(%b) sizes(n) : f32[n]
  // CHECK-NEXT: %d = loop.call @third(%c) sizes(n) : f32[n]
  strata.func @main(%x: f32[n]) -> (f32[n]) inputs ["x"] outputs ["d"] {
    %a = loop.call @double(%x) sizes(n) : f32[n]
    %b = loop.call @triple(%a) sizes(n) : f32[n]
    %c = loop.call @half(%b) sizes(n) : f32[n]
    %d = loop.call @third(%c) sizes(n) : f32[n]
    strata.return %d
  }
  // Both add 1.0, which stays.
  // CHECK: loop.kernel @double(%x: f32[p], %0: f32[]) -> (f32[p]) sizes(p)
  // CHECK: ins(%x[i0], %0[])
  // CHECK-NEXT: ^bb0(%v: f32, %k: f32):
  // CHECK-NEXT: %r = arith.mulf %v, %k : f32
  // CHECK-NEXT: %one = arith.constant 1.000000e+00 : f32
  loop.kernel @double(%x: f32[p]) -> (f32[p]) sizes(p) {
    %y = loop.nest (i0: p) ins(%x[i0]) outs(f32[p][i0]) {
    ^bb0(%v: f32):
      %k = arith.constant 2.0 : f32
      %r = arith.mulf %v, %k : f32
      %one = arith.constant 1.0 : f32
      %s = arith.addf %r, %one : f32
      loop.yield %s
    }
    loop.yield %y
  }
  // CHECK: loop.kernel @triple(%z: f32[q], %0: f32[]) -> (f32[q]) sizes(q)
  loop.kernel @triple(%z: f32[q]) -> (f32[q]) sizes(q) {
    %y = loop.nest (i0: q) ins(%z[i0]) outs(f32[q][i0]) {
    ^bb0(%v: f32):
      %k = arith.constant 3.0 : f32
      %r = arith.mulf %v, %k : f32
      %one = arith.constant 1.0 : f32
      %s = arith.addf %r, %one : f32
      loop.yield %s
    }
    loop.yield %y
  }
  // Divisors are better known.
  // CHECK: loop.kernel @half(%x: f32[p]) -> (f32[p]) sizes(p)
  loop.kernel @half(%x: f32[p]) -> (f32[p]) sizes(p) {
    %y = loop.nest (i0: p) ins(%x[i0]) outs(f32[p][i0]) {
    ^bb0(%v: f32):
      %k = arith.constant 2.0 : f32
      %r = arith.divf %v, %k : f32
      loop.yield %r
    }
    loop.yield %y
  }
  loop.kernel @third(%x: f32[p]) -> (f32[p]) sizes(p) {
    %y = loop.nest (i0: p) ins(%x[i0]) outs(f32[p][i0]) {
    ^bb0(%v: f32):
      %k = arith.constant 3.0 : f32
      %r = arith.divf %v, %k : f32
      loop.yield %r
    }
    loop.yield %y
  }
}
