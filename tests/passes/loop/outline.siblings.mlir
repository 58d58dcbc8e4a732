// PASSES: graph-decompose,graph-to-loop,loop-fuse,loop-outline
// TOLERANCE: 1e-5
// Reductions that read a tensor alike are one kernel, with what follows them. One along another axis
// is a kernel of its own, and so is one that waits for a product of what the first kernel makes.
builtin.module {
  // CHECK: %s, %q = loop.call @reduce_0(%x) sizes(n) : f32[n], f32[n]
  // CHECK: %c = loop.call @reduce_1(%x) sizes(n) : f32[8]
  // CHECK: loop.call @contract_2(%q
  // CHECK: loop.call @reduce_{{[0-9]}}(%x, %
  strata.func @main(%x: f32[n, 8], %w: f32[1, 8]) -> (f32[n], f32[n], f32[8], f32[n]) inputs ["x", "w"] outputs ["s", "q", "c", "z"] {
    %s = graph.reduce_sum %x {axes = [1], keepdims = false} : f32[n]
    %p = graph.mul %x, %x : f32[n, 8]
    %q = graph.reduce_sum %p {axes = [1], keepdims = false} : f32[n]
    %c = graph.reduce_sum %x {axes = [0], keepdims = false} : f32[8]
    %k = graph.reshape %q {shape = [1, n]} : f32[1, n]
    %m = graph.matmul %k, %x : f32[1, 8]
    %d = graph.sub %x, %m : f32[n, 8]
    %z = graph.reduce_max %d {axes = [1], keepdims = false} : f32[n]
    strata.return %s, %q, %c, %z
  }
}
