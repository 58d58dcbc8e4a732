// PASSES: graph-tile-groups,graph-fold-constants,graph-cse
// TARGET: cuda sm_90
// TOLERANCE: 1e-5
builtin.module {
  // Two products of the same groups share their three tables; 4 tiles of 32 hold any 3 groups.
  // CHECK: strata.func @shared
  // CHECK: graph.reduce_sum
  // CHECK: graph.reduce_sum
  // CHECK: graph.matmul %{{.*}}, %{{.*}} : f32[4, 32, 5]
  // CHECK: graph.reduce_sum
  // CHECK-NOT: graph.reduce_sum
  // CHECK: graph.matmul %{{.*}}, %{{.*}} : f32[4, 32, 16]
  strata.func @shared(%a: f32[40, 16], %b: f32[3, 16, 5], %c: f32[3, 5, 16], %d: i32[3])
      -> (f32[40, 5], f32[40, 16]) inputs ["a", "b", "c", "d"] outputs ["x", "y"] {
    %ends = graph.cumulative_sum %d {axis = 0, exclusive = false, reverse = false} : i32[3]
    %x = graph.grouped_matmul %a, %b, %ends : f32[40, 5]
    %y = graph.grouped_matmul %x, %c, %ends : f32[40, 16]
    strata.return %x, %y
  }
  // Tables of open sizes; fewer rows than groups need no more tiles than rows.
  // CHECK: strata.func @open
  // CHECK: graph.matmul %{{.*}}, %{{.*}} : f32[{{.*}}, 128, 5]
  // CHECK: strata.func @few
  // CHECK: graph.matmul %{{.*}}, %{{.*}} : f32[3, 16, 5]
  strata.func @open(%a: f32[n, 16], %b: f32[e, 16, 5], %ends: i32[e]) -> (f32[n, 5])
      inputs ["a", "b", "ends"] outputs ["y"] {
    %sorted = graph.cumulative_sum %ends {axis = 0, exclusive = false, reverse = false} : i32[e]
    %y = graph.grouped_matmul %a, %b, %sorted : f32[n, 5]
    strata.return %y
  }
  strata.func @few(%a: f32[3, 16], %b: f32[8, 16, 5]) -> (f32[3, 5]) inputs ["a", "b"] outputs ["y"] {
    %ends = graph.constant {value = literal[1, 1, 1, 2, 2, 2, 2, 3]} : i32[8]
    %y = graph.grouped_matmul %a, %b, %ends : f32[3, 5]
    strata.return %y
  }
}
