// PASSES: graph-decompose,graph-cse,graph-to-loop,loop-fuse,loop-outline,loop-join-online
// TARGET: cuda sm_90
// TOLERANCE: 1e-3
// The logarithm of each row's sum, from which a backward pass computes weights again, is a result
// of the same kernel: it is computed last, and from the maximum of powers of two.
builtin.module {
  // CHECK: strata.func @main
  // CHECK-NEXT: %y, %u = loop.call @online_4(%k, %q, %v) sizes(s) : f16[3, s, 16], f32[3, s, 1]
  // CHECK-NEXT: %l = loop.view %u
  // CHECK-NEXT: strata.return %y, %l
  // CHECK: loop.kernel @online_4(
  // CHECK: math.exp2
  // CHECK: arith.divf
  // CHECK: %u = loop.nest (i0: 3, i1: s) {{.*}} outs(f32
  // CHECK: arith.constant 0.693147182 : f32
  // CHECK: math.log
  // CHECK: loop.yield %y, %u
  strata.func @main(%q: f16[3, s, 16], %k: f16[3, s, 16], %v: f16[3, s, 16]) -> (f16[3, s, 16], f32[3, s]) inputs ["q", "k", "v"] outputs ["y", "l"] {
    %c = graph.constant {value = literal[0.25]} : f32[1]
    %t = graph.transpose %k {perm = [0, 2, 1]} : f16[3, 16, s]
    %f = graph.cast %q {to = f32} : f32[3, s, 16]
    %g = graph.cast %t {to = f32} : f32[3, 16, s]
    %x = graph.matmul %f, %g : f32[3, s, s]
    %a = graph.mul %x, %c : f32[3, s, s]
    %m = graph.reduce_max %a {axes = [2], keepdims = true} : f32[3, s, 1]
    %d = graph.sub %a, %m : f32[3, s, s]
    %e = graph.exp %d : f32[3, s, s]
    %n = graph.reduce_sum %e {axes = [2], keepdims = true} : f32[3, s, 1]
    %p = graph.div %e, %n : f32[3, s, s]
    %w = graph.cast %p {to = f16} : f16[3, s, s]
    %y = graph.matmul %w, %v : f16[3, s, 16]
    %o = graph.log %n : f32[3, s, 1]
    %u = graph.add %m, %o : f32[3, s, 1]
    %l = graph.reshape %u {shape = [3, s]} : f32[3, s]
    strata.return %y, %l
  }
}
