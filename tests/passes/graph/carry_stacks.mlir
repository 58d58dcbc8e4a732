// PASSES: graph-carry-stacks
// TARGET: cuda sm_90
// A stack of three entries is carried, and each iteration writes its own. A loop that a condition may
// end, and one of an open trip count, stay.
builtin.module {
  // CHECK: strata.func @main(%h: f32[8], %c: i1[], %ys: f32[n, 8])
  // CHECK: %1 = graph.broadcast %0 {shape = [3, 8]} : f32[3, 8]
  // CHECK: strata.loop @step at k trip 3 carried(%h, %1) with() : f32[8], f32[3, 8]
  // CHECK: strata.loop @other at k trip 3 while %c carried(%h) with()
  // CHECK: strata.loop @open at k trip n carried(%h) with()
  strata.func @main(%h: f32[8], %c: i1[], %ys: f32[n, 8])
      -> (f32[8], f32[3, 8], f32[8], f32[m, 8], f32[8], f32[n, 8])
      inputs ["h", "c", "ys"] outputs ["a", "b", "c", "d", "e", "f"] {
    %0, %1 = strata.loop @step at k trip 3 carried(%h) with() : f32[8], f32[3, 8]
    %2, %3 = strata.loop @other at k trip 3 while %c carried(%h) with() defines(m) : f32[8], f32[m, 8]
    %4, %5 = strata.loop @open at k trip n carried(%h) with() : f32[8], f32[n, 8]
    strata.return %0, %1, %2, %3, %4, %5
  }
  // CHECK: strata.func @step(%0: f32[8], %1: f32[3, 8]) -> (f32[8], f32[3, 8]) sizes(k)
  // CHECK: %4 = graph.sizes {values = [k], shape = [1], to = i64} : i64[1]
  // CHECK: graph.scatter_nd %1, %5, %6 {combiner = "none"} : f32[3, 8]
  strata.func @step(%0: f32[8]) -> (f32[8], f32[8]) sizes(k) inputs ["h"] outputs ["h", "y"] {
    %1 = graph.tanh %0 : f32[8]
    %2 = graph.exp %1 : f32[8]
    strata.return %1, %2
  }
  strata.func @other(%0: f32[8]) -> (i1[], f32[8], f32[8]) sizes(k) inputs ["h"] outputs ["c", "h", "y"] {
    %1 = graph.tanh %0 : f32[8]
    %2 = graph.constant {value = literal[true]} : i1[]
    strata.return %2, %1, %1
  }
  strata.func @open(%0: f32[8]) -> (f32[8], f32[8]) sizes(k) inputs ["h"] outputs ["h", "y"] {
    %1 = graph.tanh %0 : f32[8]
    strata.return %1, %1
  }
}
