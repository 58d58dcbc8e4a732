// PASSES: graph-decompose,graph-to-loop,loop-fuse,loop-outline
// TOLERANCE: 1e-6
// Elementwise nests over one domain share a kernel of several results. What reads a kernel's result
// again, through another kernel, cannot be in it: no group waits for itself.
builtin.module {
  // CHECK: strata.func @main
  // CHECK: %{{.*}}, %{{.*}} = loop.call @map_{{[0-9]}}(%x) sizes(n) : f32[n, 8], f32[n, 8]
  // CHECK-NEXT: loop.call @contract_{{[0-9]}}(%x, %w) sizes(n) : f32[n, 16]
  // CHECK-NEXT: loop.call @reduce_{{[0-9]}}
  // CHECK-NEXT: loop.call @reduce_3(%r, %v, %m)
  // CHECK: strata.return
  strata.func @main(%x: f32[n, 8], %w: f32[8, 16], %v: f32[3, 16]) -> (f32[n, 8], f32[n, 8], f32[n, 16]) inputs ["x", "w", "v"] outputs ["e", "s", "y"] {
    %e = graph.exp %x : f32[n, 8]
    %s = graph.sin %e : f32[n, 8]
    %m = graph.matmul %x, %w : f32[n, 16]
    %t = graph.transpose %m {perm = [1, 0]} : f32[16, n]
    %r = graph.reduce_max %t {axes = [0], keepdims = false} : f32[n]
    %q = graph.reshape %r {shape = [n, 1]} : f32[n, 1]
    %c = graph.broadcast %q {shape = [n, 3]} : f32[n, 3]
    %d = graph.matmul %c, %v : f32[n, 16]
    %y = graph.sub %m, %d : f32[n, 16]
    strata.return %e, %s, %y
  }
}
