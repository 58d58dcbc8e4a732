// PASSES: graph-simplify
builtin.module {
  // Positions that are the same for each sequence are compared once. Equal numbers are equal.
  // CHECK: strata.func @positions
  // CHECK: graph.constant {value = literal[0, 1, 2]} : i64[1, 3]
  // CHECK-NEXT: graph.less_equal %{{.*}}, %q : i1[1, 3]
  // CHECK-NOT: graph.and
  // CHECK: graph.broadcast %{{.*}} {shape = [2, 3]} : i1[2, 3]
  strata.func @positions(%q: i64[1, 1]) -> (i1[2, 3]) inputs ["q"] outputs ["m"] {
    %r = graph.constant {value = literal[0, 1, 2, 0, 1, 2]} : i64[2, 3]
    %s = graph.constant {value = literal[7, 7]} : i64[2, 1]
    %t = graph.constant {value = literal[7, 7, 7, 7, 7, 7]} : i64[2, 3]
    %c = graph.less_equal %r, %q : i1[2, 3]
    %d = graph.equal %s, %t : i1[2, 3]
    %m = graph.and %c, %d : i1[2, 3]
    strata.return %m
  }
  // A mask is broadcast by the choice that reads it, if its operands have the result's shape.
  // CHECK: strata.func @choice
  // CHECK: graph.where %c, %x, %y : f32[2, 3]
  strata.func @choice(%c: i1[1, 3], %x: f32[2, 3], %y: f32[]) -> (f32[2, 3]) inputs ["c", "x", "y"] outputs ["z"] {
    %w = graph.broadcast %c {shape = [2, 3]} : i1[2, 3]
    %z = graph.where %w, %x, %y : f32[2, 3]
    strata.return %z
  }
  // Without operands of the result's shape the broadcast stays.
  // CHECK: strata.func @kept
  // CHECK: graph.broadcast
  // CHECK: graph.where
  strata.func @kept(%c: i1[1, 3], %x: f32[3], %y: f32[]) -> (f32[2, 3]) inputs ["c", "x", "y"] outputs ["z"] {
    %w = graph.broadcast %c {shape = [2, 3]} : i1[2, 3]
    %z = graph.where %w, %x, %y : f32[2, 3]
    strata.return %z
  }
}
