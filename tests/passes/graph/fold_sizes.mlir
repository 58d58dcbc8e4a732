// PASSES: graph-fold-sizes
// Shape computations vanish; the pass leaves tensors that depend on data alone.
builtin.module {
  // CHECK: strata.func @chain
  // CHECK-NEXT: %t = graph.sizes {values = [6*h], shape = [], to = i64} : i64[]
  // CHECK-NEXT: strata.return %t
  strata.func @chain(%x: f32[batch, 3, 2*h]) -> (i64[]) inputs ["x"] outputs ["t"] {
    %s = graph.sizes {values = [batch, 3, 2*h], shape = [3], to = i64} : i64[3]
    %i = graph.constant {value = literal[1]} : i64[]
    %j = graph.constant {value = literal[-1]} : i64[]
    %a = graph.gather %s, %i {axis = 0} : i64[]
    %b = graph.gather %s, %j {axis = 0} : i64[]
    %t = graph.mul %a, %b : i64[]
    strata.return %t
  }
  // All numbers are plain: a constant.
  // CHECK: strata.func @plain
  // CHECK-NEXT: %r = graph.constant {value = literal[3, 8]} : i64[2]
  // CHECK-NEXT: strata.return %r
  strata.func @plain(%x: f32[n, 3, 4]) -> (i64[2]) inputs ["x"] outputs ["r"] {
    %a = graph.sizes {values = [3], shape = [1], to = i64} : i64[1]
    %b = graph.sizes {values = [4], shape = [1], to = i64} : i64[1]
    %two = graph.constant {value = literal[2]} : i64[1]
    %c = graph.mul %b, %two : i64[1]
    %r = graph.concat %a, %c {axis = 0} : i64[2]
    strata.return %r
  }
  // A comparison that comes out the same for all sizes is decided, and so is the choice.
  // CHECK: strata.func @choice
  // CHECK-NEXT: %r = graph.sizes {values = [n, 2*n], shape = [2], to = i64} : i64[2]
  // CHECK-NEXT: strata.return %r
  strata.func @choice(%x: f32[n]) -> (i64[2]) inputs ["x"] outputs ["r"] {
    %wanted = graph.constant {value = literal[-1, 7]} : i64[2]
    %minus = graph.constant {value = literal[-1]} : i64[]
    %other = graph.sizes {values = [n, 2*n], shape = [2], to = i64} : i64[2]
    %seven = graph.constant {value = literal[7, 7]} : i64[2]
    %is = graph.equal %wanted, %minus : i1[2]
    %same = graph.equal %wanted, %seven : i1[2]
    %either = graph.where %is, %other, %wanted : i64[2]
    %r = graph.where %same, %other, %either : i64[2]
    strata.return %r
  }
  // Several dims: the sizes are reshaped.
  // CHECK: strata.func @matrix
  // CHECK-NEXT: graph.sizes {values = [n, 4, 2*n, 8], shape = [4], to = i32} : i32[4]
  // CHECK-NEXT: graph.reshape {{.*}} {shape = [2, 2]} : i32[2, 2]
  // CHECK-NEXT: strata.return
  strata.func @matrix(%x: f32[n]) -> (i32[2, 2]) inputs ["x"] outputs ["r"] {
    %s = graph.sizes {values = [n, 4], shape = [2], to = i32} : i32[2]
    %m = graph.reshape %s {shape = [1, 2]} : i32[1, 2]
    %two = graph.constant {value = literal[2]} : i32[]
    %d = graph.mul %m, %two : i32[1, 2]
    %r = graph.concat %m, %d {axis = 0} : i32[2, 2]
    strata.return %r
  }
  // Unknown data, an undecided comparison, an overflow, floats: nothing to do.
  // CHECK: strata.func @unknown
  // CHECK: graph.add %x, %s : i64[1]
  // CHECK-NEXT: graph.less %s, %c : i1[1]
  // CHECK-NEXT: graph.mul %big, %big : i32[]
  // CHECK-NEXT: graph.cast %s {to = f32} : f32[1]
  strata.func @unknown(%x: i64[1], %y: f32[n]) -> (i64[1], i1[1], i32[], f32[1]) inputs ["x", "y"] outputs ["a", "b", "c", "d"] {
    %s = graph.sizes {values = [n], shape = [1], to = i64} : i64[1]
    %c = graph.constant {value = literal[5]} : i64[1]
    %big = graph.constant {value = literal[65536]} : i32[]
    %a = graph.add %x, %s : i64[1]
    %b = graph.less %s, %c : i1[1]
    %p = graph.mul %big, %big : i32[]
    %f = graph.cast %s {to = f32} : f32[1]
    strata.return %a, %b, %p, %f
  }
  // What is required of sizes is assumed of them; what is certain needs nothing.
  // CHECK: strata.func @required
  // CHECK-NOT: strata.require
  // CHECK: strata.assume m <= n - 1
  // CHECK-NEXT: strata.return
  strata.func @required(%y: f32[m], %x: f32[n + 1]) -> () inputs ["y", "x"] outputs [] {
    %a = graph.sizes {values = [n - 1, m], shape = [2], to = i64} : i64[2]
    strata.require -n <= %a < n
    strata.return
  }
}
