// PASSES: graph-simplify
builtin.module {
  // CHECK: strata.func @neutral
  // CHECK-NEXT: strata.return %x, %x, %x, %x, %x, %x, %x, %x
  strata.func @neutral(%x: f32[n, 2]) -> (f32[n, 2], f32[n, 2], f32[n, 2], f32[n, 2], f32[n, 2], f32[n, 2], f32[n, 2], f32[n, 2]) inputs ["x"] outputs ["a", "b", "c", "d", "e", "f", "g", "h"] {
    %one = graph.constant {value = literal[1.0]} : f32[]
    %ones = graph.constant {value = literal[1.0, 1.0]} : f32[2]
    %zero = graph.constant {value = literal[0.0]} : f32[]
    %minus = graph.constant {value = literal[-0.0]} : f32[1]
    %low = graph.constant {value = literal[-inf]} : f32[]
    %high = graph.constant {value = literal[inf]} : f32[]
    %a = graph.mul %x, %one : f32[n, 2]
    %b = graph.mul %ones, %x : f32[n, 2]
    %c = graph.sub %x, %zero : f32[n, 2]
    %d = graph.add %minus, %x : f32[n, 2]
    %e = graph.div %x, %ones : f32[n, 2]
    %f = graph.pow %x, %one : f32[n, 2]
    %g = graph.max %x, %low : f32[n, 2]
    %h = graph.min %high, %x : f32[n, 2]
    strata.return %a, %b, %c, %d, %e, %f, %g, %h
  }
  // Dims of one element are no reason to compute.
  // CHECK: strata.func @new_dims
  // CHECK: graph.reshape %x {shape = [1, 3]} : i64[1, 3]
  // CHECK-NEXT: graph.reshape %y {shape = [1]} : i64[1]
  // CHECK-NEXT: graph.add %x, %{{.*}} : i64[2, 3]
  // CHECK-NEXT: strata.return
  strata.func @new_dims(%x: i64[3], %y: i64[]) -> (i64[1, 3], i64[1], i64[2, 3]) inputs ["x", "y"] outputs ["a", "b", "c"] {
    %zero = graph.constant {value = literal[0]} : i64[1, 1]
    %one = graph.constant {value = literal[0]} : i64[1]
    %two = graph.constant {value = literal[0, 0]} : i64[2, 1]
    %a = graph.add %x, %zero : i64[1, 3]
    %b = graph.add %one, %y : i64[1]
    %c = graph.add %x, %two : i64[2, 3]
    strata.return %a, %b, %c
  }
  // 0.0 is not neutral for floats: it turns -0.0 into 0.0. Nor is a neutral operand that broadcasts.
  // CHECK: strata.func @not_neutral
  // CHECK: graph.add %x, %zero
  // CHECK: graph.sub %x, %minus
  // CHECK: graph.mul %x, %ones
  // CHECK: graph.max %x, %zero
  // CHECK: graph.div %one, %x
  strata.func @not_neutral(%x: f32[2]) -> (f32[2], f32[2], f32[3, 2], f32[2], f32[2]) inputs ["x"] outputs ["a", "b", "c", "d", "e"] {
    %one = graph.constant {value = literal[1.0]} : f32[]
    %zero = graph.constant {value = literal[0.0]} : f32[]
    %minus = graph.constant {value = literal[-0.0]} : f32[]
    %ones = graph.constant {value = literal[1.0, 1.0, 1.0]} : f32[3, 1]
    %a = graph.add %x, %zero : f32[2]
    %b = graph.sub %x, %minus : f32[2]
    %c = graph.mul %x, %ones : f32[3, 2]
    %d = graph.max %x, %zero : f32[2]
    %e = graph.div %one, %x : f32[2]
    strata.return %a, %b, %c, %d, %e
  }
  // CHECK: strata.func @integers
  // CHECK-NEXT: strata.return %x, %x, %x, %x, %t, %t
  strata.func @integers(%x: i32[n], %t: i1[n]) -> (i32[n], i32[n], i32[n], i32[n], i1[n], i1[n]) inputs ["x", "t"] outputs ["a", "b", "c", "d", "e", "f"] {
    %one = graph.constant {value = literal[1]} : i32[]
    %zero = graph.constant {value = literal[0]} : i32[]
    %minus = graph.constant {value = literal[-1]} : i32[]
    %true = graph.constant {value = literal[true]} : i1[]
    %false = graph.constant {value = literal[false]} : i1[]
    %a = graph.add %x, %zero : i32[n]
    %b = graph.div %x, %one : i32[n]
    %c = graph.and %x, %minus : i32[n]
    %d = graph.max %x, %x : i32[n]
    %e = graph.and %t, %true : i1[n]
    %f = graph.or %t, %false : i1[n]
    strata.return %a, %b, %c, %d, %e, %f
  }
  // Division by powers of two is exact as a product; by 3 it is not. 2^-127 is no normal number.
  // CHECK: strata.func @division
  // CHECK: graph.constant {value = literal[0.5, -4.0]} : f32[2]
  // CHECK-NEXT: graph.mul %x, {{.*}} : f32[n, 2]
  // CHECK-NEXT: graph.div %x, %three
  // CHECK-NEXT: graph.div %x, %large
  // CHECK-NEXT: graph.div %x, %zero
  strata.func @division(%x: f32[n, 2]) -> (f32[n, 2], f32[n, 2], f32[n, 2], f32[n, 2]) inputs ["x"] outputs ["a", "b", "c", "d"] {
    %two = graph.constant {value = literal[2.0, -0.25]} : f32[2]
    %three = graph.constant {value = literal[3.0]} : f32[]
    %large = graph.constant {value = literal[1.7014118346046923e38]} : f32[]
    %zero = graph.constant {value = literal[0.0]} : f32[]
    %a = graph.div %x, %two : f32[n, 2]
    %b = graph.div %x, %three : f32[n, 2]
    %c = graph.div %x, %large : f32[n, 2]
    %d = graph.div %x, %zero : f32[n, 2]
    strata.return %a, %b, %c, %d
  }
  // Small whole powers are products; a product of integers wraps as their power does.
  // CHECK: strata.func @powers
  // CHECK: graph.mul %x, %x : i64[n]
  // CHECK-NEXT: graph.mul {{.*}}, %x : i64[n]
  // CHECK-NEXT: graph.pow %x, %{{.*}} : i64[n]
  // CHECK-NEXT: graph.reciprocal %y : f32[n]
  // CHECK-NEXT: graph.pow %y, %{{.*}} : f32[n]
  strata.func @powers(%x: i64[n], %y: f32[n]) -> (i64[n], i64[n], f32[n], f32[n]) inputs ["x", "y"] outputs ["a", "b", "c", "d"] {
    %three = graph.constant {value = literal[3]} : i64[]
    %four = graph.constant {value = literal[4]} : i64[]
    %minus = graph.constant {value = literal[-1.0]} : f32[]
    %half = graph.constant {value = literal[0.5]} : f32[]
    %a = graph.pow %x, %three : i64[n]
    %b = graph.pow %x, %four : i64[n]
    %c = graph.pow %y, %minus : f32[n]
    %d = graph.pow %y, %half : f32[n]
    strata.return %a, %b, %c, %d
  }
  // CHECK: strata.func @cancelled
  // CHECK-NEXT: graph.where %c, %y, %x : f32[n]
  // CHECK-NEXT: graph.broadcast %s {shape = [n]} : f32[n]
  // CHECK-NEXT: strata.return %x, %c, {{.*}}, %x, %y, {{.*}}
  strata.func @cancelled(%x: f32[n], %y: f32[n], %c: i1[n], %s: f32[]) -> (f32[n], i1[n], f32[n], f32[n], f32[n], f32[n]) inputs ["x", "y", "c", "s"] outputs ["a", "b", "d", "e", "f", "g"] {
    %m = graph.neg %x : f32[n]
    %a = graph.neg %m : f32[n]
    %n = graph.not %c : i1[n]
    %b = graph.not %n : i1[n]
    %d = graph.where %n, %x, %y : f32[n]
    %true = graph.constant {value = literal[true]} : i1[]
    %false = graph.constant {value = literal[false]} : i1[1]
    %e = graph.where %true, %x, %y : f32[n]
    %f = graph.where %false, %x, %y : f32[n]
    %g = graph.where %c, %s, %s : f32[n]
    strata.return %a, %b, %d, %e, %f, %g
  }
  // A cast and back is nothing if the type between holds every value: f64 does for i32, f32 not.
  // CHECK: strata.func @casts
  // CHECK-NEXT: graph.cast %i {to = i64} : i64[n]
  // CHECK-NEXT: graph.cast %x {to = f16} : f16[n]
  // CHECK-NEXT: graph.cast %i {to = f32} : f32[n]
  // CHECK-NEXT: graph.cast {{.*}} {to = i32} : i32[n]
  // CHECK-NEXT: strata.return %x, %x, %i, {{.*}}
  strata.func @casts(%x: f32[n], %i: i32[n], %b: f16[n]) -> (f32[n], f32[n], i32[n], i64[n], f16[n], i32[n]) inputs ["x", "i", "b"] outputs ["a", "c", "d", "e", "f", "g"] {
    %a = graph.cast %x {to = f32} : f32[n]
    %w = graph.cast %x {to = f64} : f64[n]
    %c = graph.cast %w {to = f32} : f32[n]
    %v = graph.cast %i {to = f64} : f64[n]
    %d = graph.cast %v {to = i32} : i32[n]
    %e = graph.cast %v {to = i64} : i64[n]
    %f = graph.cast %w {to = f16} : f16[n]
    %l = graph.cast %i {to = f32} : f32[n]
    %g = graph.cast %l {to = i32} : i32[n]
    strata.return %a, %c, %d, %e, %f, %g
  }
  // A broadcast goes where the other operand gives the result its shape.
  // CHECK: strata.func @broadcasts
  // CHECK-NEXT: %w = graph.broadcast
  // CHECK-NEXT: graph.add %y, %x : f32[n, 3]
  // CHECK-NEXT: graph.mul %y, %w : f32[n, 3]
  strata.func @broadcasts(%x: f32[n, 3], %y: f32[3]) -> (f32[n, 3], f32[n, 3]) inputs ["x", "y"] outputs ["a", "b"] {
    %w = graph.broadcast %y {shape = [n, 3]} : f32[n, 3]
    %a = graph.add %w, %x : f32[n, 3]
    %b = graph.mul %w, %w : f32[n, 3]
    strata.return %a, %b
  }
}
