// PASSES: loop-unroll-loops
// TARGET: cuda sm_90
// Three iterations launch the kernel with their numbers; its constant is one for all of them. The
// inner loop goes first. Sizes of arguments become the caller's. A condition keeps its loop.
builtin.module {
  // CHECK: strata.func @main(%x: f32[2*n, 4], %c: i1[])
  // CHECK-NEXT: %c_1 = graph.constant {value = literal[2.0]} : f32[]
  // CHECK-NEXT: %y = loop.call @scale(%x, %c_1) sizes(2*n, 0) : f32[2*n, 4]
  // CHECK-NEXT: %y_1 = loop.call @scale(%y, %c_1) sizes(2*n, 1) : f32[2*n, 4]
  // CHECK-NEXT: %y_2 = loop.call @scale(%y_1, %c_1) sizes(2*n, 0) : f32[2*n, 4]
  // CHECK-NEXT: %y_3 = loop.call @scale(%y_2, %c_1) sizes(2*n, 1) : f32[2*n, 4]
  // CHECK-NEXT: %y_4 = loop.call @scale(%y_3, %c_1) sizes(2*n, 0) : f32[2*n, 4]
  // CHECK-NEXT: %y_5 = loop.call @scale(%y_4, %c_1) sizes(2*n, 1) : f32[2*n, 4]
  // CHECK-NEXT: %z = strata.loop @until at k trip 3 while %c carried(%x)
  // CHECK-NOT: strata.func @outer
  // CHECK-NOT: strata.func @inner
  strata.func @main(%x: f32[2*n, 4], %c: i1[]) -> (f32[2*n, 4], f32[2*n, 4]) inputs ["x", "c"] outputs ["y", "z"] {
    %y = strata.loop @outer at j trip 3 carried(%x) with() : f32[2*n, 4]
    %z = strata.loop @until at k trip 3 while %c carried(%x) with() : f32[2*n, 4]
    strata.return %y, %z
  }
  strata.func @outer(%h: f32[rows, 4]) -> (f32[rows, 4]) sizes(j) inputs ["h"] outputs ["h"] {
    strata.assume j + 1 <= 3
    %y = strata.loop @inner at k trip 2 carried(%h) with() : f32[rows, 4]
    strata.return %y
  }
  strata.func @inner(%h: f32[r, 4]) -> (f32[r, 4]) sizes(k) inputs ["h"] outputs ["h"] {
    %c = graph.constant {value = literal[2.0]} : f32[]
    %y = loop.call @scale(%h, %c) sizes(r, k) : f32[r, 4]
    strata.return %y
  }
  strata.func @until(%h: f32[q, 4]) -> (i1[], f32[q, 4]) sizes(k) inputs ["h"] outputs ["c", "h"] {
    %on = graph.constant {value = literal[true]} : i1[]
    %c = graph.constant {value = literal[2.0]} : f32[]
    %y = loop.call @scale(%h, %c) sizes(q, k) : f32[q, 4]
    strata.return %on, %y
  }
  loop.kernel @scale(%x: f32[p, 4], %c: f32[]) -> (f32[p, 4]) sizes(p, s) {
    %y = loop.nest (i0: p, i1: 4) ins(%x[i0, i1], %c[]) outs(f32[p, 4][i0, i1]) {
    ^bb0(%v: f32, %k: f32):
      %r = arith.mulf %v, %k : f32
      %i = loop.index s : index
      %j = arith.index_cast %i : index to i64
      %n = arith.sitofp %j : i64 to f32
      %t = arith.addf %r, %n : f32
      loop.yield %t
    }
    loop.yield %y
  }
}
