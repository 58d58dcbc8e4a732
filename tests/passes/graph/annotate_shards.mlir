// PASSES: graph-annotate-shards{mesh="dp=2,tp=2"}
// Rows of the input are divided, and columns of the first weight; those of the second are not, as
// its rows follow from the columns of the first.
builtin.module {
  strata.func @main(%x: f32[2, 2]) -> (f32[2, 2]) inputs ["x"] outputs ["y"] {
    // CHECK: %x_1 = graph.shard_as %x {axes = "dp,_"} : f32[2, 2]
    %w = graph.constant {value = literal[1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8]} : f32[2, 8]
    // CHECK: graph.shard_as %w {axes = "_,tp"} : f32[2, 8]
    // CHECK-NEXT: %h = graph.matmul %x_1,
    %h = graph.matmul %x, %w : f32[2, 8]
    %r = graph.relu %h : f32[2, 8]
    %v = graph.constant {value = literal[1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8]} : f32[8, 2]
    // CHECK: %y = graph.matmul %r, %v : f32[2, 2]
    %y = graph.matmul %r, %v : f32[2, 2]
    strata.return %y
  }
}
