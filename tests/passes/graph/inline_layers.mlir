// PASSES: graph-inline-layers
// Calls of the first function stay. Those of the second begin and end with transpositions, which
// cancel each other; the borders of the third are inside of what one kernel computes.
builtin.module {
  strata.func @main(%x: f32[n, 2]) -> (f32[n, 2], f32[2, n], f32[n, 2]) inputs ["x"] outputs ["y", "z", "u"] {
    // CHECK: %a0 = strata.call @layer_0 number 0 of ["m"] (%x) : f32[n, 2]
    // CHECK-NEXT: %a1 = strata.call @layer_0 number 1 of ["n"] (%a0) : f32[n, 2]
    %a0 = strata.call @layer_0 number 0 of ["m"] (%x) : f32[n, 2]
    %a1 = strata.call @layer_0 number 1 of ["n"] (%a0) : f32[n, 2]
    %a2 = strata.call @layer_0 number 2 of ["o"] (%a1) : f32[n, 2]
    // CHECK-NOT: strata.call @turned
    %t = graph.transpose %x {perm = [1, 0]} : f32[2, n]
    %t0 = strata.call @turned number 0 of ["p"] (%t) : f32[2, n]
    %t1 = strata.call @turned number 1 of ["q"] (%t0) : f32[2, n]
    // CHECK-NOT: strata.call @halves
    %h0 = strata.call @halves number 0 of ["r"] (%x) : f32[n, 2]
    %h1 = strata.call @halves number 1 of ["s"] (%h0) : f32[n, 2]
    strata.return %a2, %t1, %h1
  }
  strata.func @layer_0(%x: f32[n, 2]) -> (f32[n, 2]) sizes(n) inputs ["x"] outputs ["0"] {
    %w = graph.constant {value = literal[1.0, 2.0, 3.0, 4.0]} : f32[2, 2]
    %m = graph.matmul %x, %w : f32[n, 2] loc("m")
    %e = graph.tanh %m : f32[n, 2]
    strata.return %e
  }
  strata.func @turned(%x: f32[2, n]) -> (f32[2, n]) sizes(n) inputs ["x"] outputs ["0"] {
    %w = graph.constant {value = literal[1.0, 2.0, 3.0, 5.0]} : f32[2, 2]
    %t = graph.transpose %x {perm = [1, 0]} : f32[n, 2]
    %m = graph.matmul %t, %w : f32[n, 2] loc("p")
    %e = graph.tanh %m : f32[n, 2]
    %y = graph.transpose %e {perm = [1, 0]} : f32[2, n]
    strata.return %y
  }
  strata.func @halves(%x: f32[n, 2]) -> (f32[n, 2]) sizes(n) inputs ["x"] outputs ["0"] {
    %w = graph.constant {value = literal[1.0, 2.0, 3.0, 6.0]} : f32[2, 2]
    %e = graph.tanh %x : f32[n, 2]
    %m = graph.matmul %e, %w : f32[n, 2] loc("r")
    strata.return %m
  }
}
