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
  // So does the program of a row: it walks a short row once more, but not a long one.
  // CHECK: strata.func @short_rows
  // CHECK-NEXT: %y = loop.call @reduce_3(%m, %x) sizes() : f32[64, 100]
  // CHECK: strata.func @long_rows
  // CHECK-NEXT: %s = loop.call @reduce_4(%m) sizes() : f32[64, 1]
  // CHECK-NEXT: %y = loop.call @map_5(%x, %s) sizes() : f32[64, 16385]
  strata.func @short_rows(%m: f32[64, 16], %x: f32[64, 100]) -> (f32[64, 100]) inputs ["m", "x"] outputs ["y"] {
    %s = graph.reduce_max %m {axes = [1], keepdims = true} : f32[64, 1]
    %y = graph.sub %x, %s : f32[64, 100]
    strata.return %y
  }
  strata.func @long_rows(%m: f32[64, 16], %x: f32[64, 16385]) -> (f32[64, 16385]) inputs ["m", "x"] outputs ["y"] {
    %s = graph.reduce_max %m {axes = [1], keepdims = true} : f32[64, 1]
    %y = graph.sub %x, %s : f32[64, 16385]
    strata.return %y
  }
}
