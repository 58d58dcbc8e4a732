// PASSES: graph-decompose,graph-to-loop,loop-fuse,loop-outline
// TOLERANCE: 1e-6
// One program reduces everything; it may compute few elements more, but not a large tensor.
builtin.module {
  // CHECK: strata.func @small
  // CHECK-NEXT: %y = loop.call @reduce_0(%x) sizes() : f32[100]
  // CHECK-NEXT: strata.return
  strata.func @small(%x: f32[100]) -> (f32[100]) inputs ["x"] outputs ["y"] {
    %m = graph.reduce_max %x {axes = [0], keepdims = true} : f32[1]
    %y = graph.sub %x, %m : f32[100]
    strata.return %y
  }
  // CHECK: strata.func @large
  // CHECK-NEXT: %m = loop.call @reduce_1(%x) sizes(n) : f32[1]
  // CHECK-NEXT: %y = loop.call @map_2(%x, %m) sizes(n) : f32[n]
  // CHECK-NEXT: strata.return
  strata.func @large(%x: f32[n]) -> (f32[n]) inputs ["x"] outputs ["y"] {
    %m = graph.reduce_max %x {axes = [0], keepdims = true} : f32[1]
    %y = graph.sub %x, %m : f32[n]
    strata.return %y
  }
}
