// PASSES: graph-inline-layers
// A function that several functions call, as only texts have it, takes the place of all calls.
builtin.module {
  // CHECK-NOT: strata.call
  // CHECK: graph.reduce_sum
  // CHECK: strata.func @yes
  // CHECK: graph.reduce_sum
  // CHECK-NOT: strata.func @total
strata.func @main(%x: f32[2, 3], %c: i1[]) -> (f32[2, 3], f32[]) inputs ["x", "c"] outputs ["y", "m"] {
  %s = strata.call @total number 0 of [] (%x) : f32[]
  %y, %m = strata.if %c then @yes else @no (%x, %s) : f32[2, 3], f32[]
  strata.return %y, %m
}
strata.func @total(%x: f32[2, 3]) -> (f32[]) inputs ["x"] outputs ["s"] {
  %s = graph.reduce_sum %x {axes = [0, 1], keepdims = false} : f32[]
  strata.return %s
}
strata.func @yes(%x: f32[2, 3], %s: f32[]) -> (f32[2, 3], f32[]) inputs ["x", "s"] outputs ["y", "m"] {
  %y = graph.add %x, %s : f32[2, 3]
  %m = strata.call @total number 0 of [] (%y) : f32[]
  strata.return %y, %m
}
strata.func @no(%x: f32[2, 3], %s: f32[]) -> (f32[2, 3], f32[]) inputs ["x", "s"] outputs ["y", "m"] {
  %y = graph.sub %x, %s : f32[2, 3]
  %m = strata.call @total number 0 of [] (%y) : f32[]
  %n = strata.call @total number 0 of [] (%x) : f32[]
  %k = graph.add %m, %n : f32[]
  strata.return %y, %k
}
}
