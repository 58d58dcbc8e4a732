// PASSES: graph-simplify
builtin.module {
  // CHECK: strata.func @identity
  // CHECK-NEXT: strata.return %x, %x, %x, %x, %x, %x
  strata.func @identity(%x: f32[n, 3]) -> (f32[n, 3], f32[n, 3], f32[n, 3], f32[n, 3], f32[n, 3], f32[n, 3]) inputs ["x"] outputs ["a", "b", "c", "d", "e", "f"] {
    %a = graph.reshape %x {shape = [n, 3]} : f32[n, 3]
    %b = graph.transpose %x {perm = [0, 1]} : f32[n, 3]
    %c = graph.slice %x {starts = [0, 0], sizes = [n, 3], steps = [1, 1]} : f32[n, 3]
    %d = graph.broadcast %x {shape = [n, 3]} : f32[n, 3]
    %e = graph.pad %x {low = [0, 0], high = [0, 0], mode = "constant", value = 0.0} : f32[n, 3]
    %f = graph.concat %x {axis = 0} : f32[n, 3]
    strata.return %a, %b, %c, %d, %e, %f
  }
  // CHECK: strata.func @pairs
  // CHECK-NEXT: graph.reshape %x {shape = [24*n]} : f32[24*n]
  // CHECK-NEXT: graph.transpose %x {perm = [2, 0, 1]} : f32[6, n, 4]
  // CHECK-NEXT: strata.return {{.*}}, %x, {{.*}}
  strata.func @pairs(%x: f32[n, 4, 6]) -> (f32[24*n], f32[n, 4, 6], f32[6, n, 4]) inputs ["x"] outputs ["a", "b", "c"] {
    %r = graph.reshape %x {shape = [4*n, 6]} : f32[4*n, 6]
    %a = graph.reshape %r {shape = [24*n]} : f32[24*n]
    %t = graph.transpose %x {perm = [0, 2, 1]} : f32[n, 6, 4]
    %b = graph.transpose %t {perm = [0, 2, 1]} : f32[n, 4, 6]
    %u = graph.transpose %x {perm = [1, 0, 2]} : f32[4, n, 6]
    %c = graph.transpose %u {perm = [2, 1, 0]} : f32[6, n, 4]
    strata.return %a, %b, %c
  }
  // Only a dim of size 1 moves: the elements stay in order.
  // CHECK: strata.func @unit_dims
  // CHECK-NEXT: graph.reshape %x {shape = [1, n, 3]} : f32[1, n, 3]
  // CHECK-NEXT: strata.return
  strata.func @unit_dims(%x: f32[n, 1, 3]) -> (f32[1, n, 3]) inputs ["x"] outputs ["a"] {
    %a = graph.transpose %x {perm = [1, 0, 2]} : f32[1, n, 3]
    strata.return %a
  }
  // CHECK: strata.func @slices
  // CHECK-NEXT: graph.slice %x {starts = [7, 1], sizes = [2, 1], steps = [-4, 1]} : f32[2, 1]
  // CHECK-NEXT: graph.concat %x, %y, %x {axis = 0} : f32[26, 2]
  // CHECK-NEXT: graph.slice %y {starts = [2, 0], sizes = [4, 2], steps = [1, 1]} : f32[4, 2]
  // CHECK-NEXT: graph.slice {{.*}} {starts = [8, 0], sizes = [3, 2], steps = [1, 1]} : f32[3, 2]
  // CHECK-NEXT: strata.return {{.*}}, %y, {{.*}}
  strata.func @slices(%x: f32[10, 2], %y: f32[6, 2]) -> (f32[2, 1], f32[4, 2], f32[6, 2], f32[3, 2]) inputs ["x", "y"] outputs ["a", "b", "c", "d"] {
    %s = graph.slice %x {starts = [9, 0], sizes = [5, 2], steps = [-2, 1]} : f32[5, 2]
    %a = graph.slice %s {starts = [1, 1], sizes = [2, 1], steps = [2, 1]} : f32[2, 1]
    %p = graph.concat %x, %y {axis = 0} : f32[16, 2]
    %q = graph.concat %p, %x {axis = 0} : f32[26, 2]
    %b = graph.slice %q {starts = [12, 0], sizes = [4, 2], steps = [1, 1]} : f32[4, 2]
    %c = graph.slice %q {starts = [10, 0], sizes = [6, 2], steps = [1, 1]} : f32[6, 2]
    %d = graph.slice %q {starts = [8, 0], sizes = [3, 2], steps = [1, 1]} : f32[3, 2]
    strata.return %a, %b, %c, %d
  }
  // A part of symbolic size, and one of no elements.
  // CHECK: strata.func @concats
  // CHECK-NEXT: strata.return %y, %x
  strata.func @concats(%x: f32[n], %y: f32[m], %z: f32[0]) -> (f32[m], f32[n]) inputs ["x", "y", "z"] outputs ["a", "b"] {
    %c = graph.concat %x, %y {axis = 0} : f32[m + n]
    %a = graph.slice %c {starts = [n], sizes = [m], steps = [1]} : f32[m]
    %b = graph.concat %z, %x {axis = 0} : f32[n]
    strata.return %a, %b
  }
  // CHECK: strata.func @gathers
  // CHECK-NOT: graph.gather
  // CHECK: graph.slice %x {starts = [0, 0, 0], sizes = [n, 1, 8], steps = [1, 1, 1]} : f32[n, 1, 8]
  // CHECK-NEXT: graph.reshape {{.*}} {shape = [n, 8]} : f32[n, 8]
  // CHECK: graph.slice %x {starts = [0, 4, 0], sizes = [n, 1, 8], steps = [1, 1, 1]} : f32[n, 1, 8]
  // CHECK: graph.gather %x, %last {axis = 0} : f32[5, 8]
  strata.func @gathers(%x: f32[n, 5, 8]) -> (f32[n, 8], f32[n, 1, 8], f32[5, 8]) inputs ["x"] outputs ["a", "b", "c"] {
    %first = graph.constant {value = literal[0]} : i64[]
    %last = graph.constant {value = literal[-1]} : i64[]
    %list = graph.constant {value = literal[-1]} : i64[1]
    %a = graph.gather %x, %first {axis = 1} : f32[n, 8]
    %b = graph.gather %x, %list {axis = 1} : f32[n, 1, 8]
    %c = graph.gather %x, %last {axis = 0} : f32[5, 8]
    strata.return %a, %b, %c
  }
  // CHECK: strata.func @reductions
  // CHECK-NEXT: graph.reshape %x {shape = [n, 3]} : f32[n, 3]
  // CHECK-NEXT: graph.reduce_max %x {axes = [1, 2], keepdims = true} : f32[n, 1, 1]
  // CHECK-NEXT: strata.return %x, {{.*}}
  strata.func @reductions(%x: f32[n, 1, 3]) -> (f32[n, 1, 3], f32[n, 3], f32[n, 1, 1]) inputs ["x"] outputs ["a", "b", "c"] {
    %a = graph.reduce_sum %x {axes = [1], keepdims = true} : f32[n, 1, 3]
    %b = graph.reduce_mean %x {axes = [1], keepdims = false} : f32[n, 3]
    %c = graph.reduce_max %x {axes = [1, 2], keepdims = true} : f32[n, 1, 1]
    strata.return %a, %b, %c
  }
}
