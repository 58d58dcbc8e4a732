// PASSES: graph-partition{mesh="tp=2"}
// TOLERANCE: 1e-6
// Columns of the first weight are divided, so rows of the second are, and ranks add their products.
builtin.module {
  strata.func @main(%x: f32[n, 2]) -> (f32[n, 2]) inputs ["x"] outputs ["y"] {
    %w0 = graph.constant {value = literal[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]} : f32[2, 4]
    %w = graph.shard_as %w0 {axes = "_,tp"} : f32[2, 4]
    // CHECK: graph.shard %{{.*}} {group = #strata.group<"tp", [[0, 1]]>} : f32[2, 2]
    // CHECK: %h = graph.matmul %x, %{{.*}} : f32[n, 2]
    %h = graph.matmul %x, %w : f32[n, 4]
    // CHECK-NEXT: %r = graph.relu %h : f32[n, 2]
    %r = graph.relu %h : f32[n, 4]
    %v = graph.constant {value = literal[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]} : f32[4, 2]
    // CHECK: %{{[0-9]+}} = graph.shard %v {group = #strata.group<"tp", [[0, 1]]>} : f32[2, 2]
    // CHECK-NEXT: %y = graph.matmul %r, %{{[0-9]+}} : f32[n, 2]
    // CHECK-NEXT: %{{[0-9]+}} = graph.all_reduce %y {group = #strata.group<"tp", [[0, 1]]>, reduce = "sum"} : f32[n, 2]
    // CHECK-NEXT: strata.return %{{[0-9]+}}
    %y = graph.matmul %r, %v : f32[n, 2]
    strata.return %y
  }
}
