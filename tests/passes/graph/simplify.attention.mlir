// PASSES: graph-simplify
builtin.module {
  // Rows that see nothing weigh nothing: each place is asked by itself.
  // CHECK: strata.func @main
  // CHECK-NOT: graph.reduce_max
  // CHECK: %w = graph.softmax %t {axis = 2} : f32[n, 3, 5]
  // CHECK: %1 = graph.equal %b, %0 : i1[3, 5]
  // CHECK-NEXT: %k = graph.where %1, %zero, %w : f32[n, 3, 5]
  // CHECK-NEXT: %y = graph.matmul %k, %v : f32[n, 3, 4]
  strata.func @main(%s: f32[n, 3, 5], %b: f32[3, 5], %v: f32[n, 5, 4]) -> (f32[n, 3, 4]) inputs ["s", "b", "v"] outputs ["y"] {
    %t = graph.add %s, %b : f32[n, 3, 5]
    %w = graph.softmax %t {axis = 2} : f32[n, 3, 5]
    %m = graph.reduce_max %b {axes = [1], keepdims = true} : f32[3, 1]
    %least = graph.constant {value = literal[-inf]} : f32[1]
    %none = graph.equal %m, %least : i1[3, 1]
    %zero = graph.constant {value = literal[0.0]} : f32[]
    %k = graph.where %none, %zero, %w : f32[n, 3, 5]
    %y = graph.matmul %k, %v : f32[n, 3, 4]
    strata.return %y
  }
  // Another bias, another number, a softmax along another dim, and weights that are a result: where
  // a row has NaN, those that the mask hides are NaN, too.
  // CHECK: strata.func @others
  // CHECK: graph.reduce_max
  // CHECK: %e = graph.matmul
  strata.func @others(%s: f32[n, 3, 3], %b: f32[3, 3], %c: f32[3, 3]) -> (f32[n, 3, 3], f32[n, 3, 3], f32[n, 3, 3], f32[n, 3, 3], f32[n, 3, 3]) inputs ["s", "b", "c"] outputs ["x", "y", "z", "d", "e"] {
    %t = graph.add %s, %b : f32[n, 3, 3]
    %w = graph.softmax %t {axis = 2} : f32[n, 3, 3]
    %v = graph.softmax %t {axis = 1} : f32[n, 3, 3]
    %m = graph.reduce_max %b {axes = [1], keepdims = true} : f32[3, 1]
    %o = graph.reduce_max %c {axes = [1], keepdims = true} : f32[3, 1]
    %least = graph.constant {value = literal[-inf]} : f32[1]
    %one = graph.constant {value = literal[1.0]} : f32[1]
    %none = graph.equal %m, %least : i1[3, 1]
    %other = graph.equal %o, %least : i1[3, 1]
    %number = graph.equal %m, %one : i1[3, 1]
    %zero = graph.constant {value = literal[0.0]} : f32[]
    %x = graph.where %other, %zero, %w : f32[n, 3, 3]
    %y = graph.where %number, %zero, %w : f32[n, 3, 3]
    %z = graph.where %none, %zero, %v : f32[n, 3, 3]
    %d = graph.where %none, %zero, %w : f32[n, 3, 3]
    %e = graph.matmul %d, %s : f32[n, 3, 3]
    strata.return %x, %y, %z, %d, %e
  }
}
