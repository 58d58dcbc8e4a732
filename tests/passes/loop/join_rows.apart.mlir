// PASSES: graph-decompose,graph-to-loop,loop-fuse,loop-outline,loop-join-rows
// TARGET: cpu avx2
// TOLERANCE: 1e-5
// Kernels stay apart where others read what is between (%p), where rows may be few and keys many (n
// and m), and where all of the weights would be read again for every block of rows.
builtin.module {
  // CHECK: strata.func @main
  // CHECK-NOT: @rows
  // CHECK: strata.return
  strata.func @main(%q: f32[32, 8], %k: f32[40, 8], %v: f32[40, 8], %r: f32[n, 8], %s: f32[m, 8], %x: f32[32, 64], %w: f32[64, 512], %u: f32[512, 512]) -> (f32[32, 40], f32[32, 8], f32[n, 8], f32[32, 512]) inputs ["q", "k", "v", "r", "s", "x", "w", "u"] outputs ["p", "y", "z", "f"] {
    %kt = graph.transpose %k {perm = [1, 0]} : f32[8, 40]
    %a = graph.matmul %q, %kt : f32[32, 40]
    %p = graph.softmax %a {axis = 1} : f32[32, 40]
    %y = graph.matmul %p, %v : f32[32, 8]
    %st = graph.transpose %s {perm = [1, 0]} : f32[8, m]
    %b = graph.matmul %r, %st : f32[n, m]
    %o = graph.softmax %b {axis = 1} : f32[n, m]
    %z = graph.matmul %o, %s : f32[n, 8]
    %h = graph.matmul %x, %w : f32[32, 512]
    %g = graph.softmax %h {axis = 1} : f32[32, 512]
    %f = graph.matmul %g, %u : f32[32, 512]
    strata.return %p, %y, %z, %f
  }
}
