// PASSES: graph-decompose,graph-to-loop,loop-fuse,loop-outline,loop-join-online,loop-split-online
// TARGET: cuda sm_90
// TOLERANCE: 1e-3
// One row of two heads: its keys in parts, each with its maximum and its sums, which another kernel
// adds; a part in which nothing is seen counts nothing. Short rows, and rows of many heads, are
// walked in one go, and so is what has a maximum and a sum, but no products.
builtin.module {
  // CHECK: strata.func @main
  // CHECK-NEXT: loop.call @online_2(%q, %k, %m, %v) sizes() : f32[64, 2, 1, 1], f32[64, 2, 1, 1], f32[64, 2, 1, 16]
  // CHECK-NEXT: %y = loop.call @parts_2(
  // CHECK-NEXT: strata.return %y
  // CHECK: strata.func @short
  // CHECK-NOT: loop.call @parts
  // CHECK: strata.func @without_products
  // CHECK-NOT: loop.call @parts
  // CHECK: loop.kernel @online_2(
  // CHECK-NEXT: loop.nest (i0: 2, i2: 64, i2_part: 64, reduce i3: 16) ins(%q[i0, 0, i3], %k[i0, 64*i2 + i2_part, i3])
  // CHECK: loop.nest (i0: 2, i2: 64, reduce i2_part: 64) {{.*}} outs(max f32[64, 2, 1, 1][i2, i0, 0, 0])
  // CHECK: loop.nest (i0: 2, i1: 16, i2: 64, reduce i2_part: 64) {{.*}} outs(add f32[64, 2, 1, 16]
  // CHECK: loop.kernel @parts_2(
  // CHECK-NEXT: loop.nest (i0: 2, reduce i2: 64) ins({{.*}}[i2, i0, 0, 0]) outs(max
  // CHECK: math.exp2
  // CHECK: arith.cmpf oeq
  // CHECK: arith.divf
  strata.func @main(%q: f16[2, 1, 16], %k: f16[2, 4096, 16], %v: f16[2, 4096, 16], %m: i1[4096]) -> (f16[2, 1, 16]) inputs ["q", "k", "v", "m"] outputs ["y"] {
    %n = graph.constant {value = literal[-inf]} : f16[]
    %t = graph.transpose %k {perm = [0, 2, 1]} : f16[2, 16, 4096]
    %x = graph.matmul %q, %t : f16[2, 1, 4096]
    %s = graph.where %m, %x, %n : f16[2, 1, 4096]
    %p = graph.softmax %s {axis = 2} : f16[2, 1, 4096]
    %y = graph.matmul %p, %v : f16[2, 1, 16]
    strata.return %y
  }
  strata.func @short(%q: f16[2, 1, 16], %k: f16[2, 100, 16], %v: f16[2, 100, 16]) -> (f16[2, 1, 16]) inputs ["q", "k", "v"] outputs ["y"] {
    %t = graph.transpose %k {perm = [0, 2, 1]} : f16[2, 16, 100]
    %x = graph.matmul %q, %t : f16[2, 1, 100]
    %p = graph.softmax %x {axis = 2} : f16[2, 1, 100]
    %y = graph.matmul %p, %v : f16[2, 1, 16]
    strata.return %y
  }
  strata.func @without_products(%x: f32[8, 1000]) -> (f32[8, 1]) inputs ["x"] outputs ["y"] {
    %m = graph.reduce_max %x {axes = [1], keepdims = true} : f32[8, 1]
    %d = graph.sub %x, %m : f32[8, 1000]
    %e = graph.exp %d : f32[8, 1000]
    %s = graph.reduce_sum %e {axes = [1], keepdims = true} : f32[8, 1]
    %l = graph.log %s : f32[8, 1]
    %y = graph.add %l, %m : f32[8, 1]
    strata.return %y
  }
}
