// PASSES: graph-decompose,graph-to-loop,loop-fuse,loop-outline
// TOLERANCE: 1e-5
// The reductions of last states join the recurrence that computes these; one with too many results
// for a row does not, and neither does one over the rows.
builtin.module {
  // CHECK: = loop.call @reduce_{{[0-9]}}(
  // CHECK: loop.call @reduce_
  // CHECK: loop.call @reduce_
  // CHECK: loop.kernel @reduce_{{[0-9]}}(
  // CHECK: outs(next i64[n, 3][i0, i1])
  // CHECK: outs(add f32[n][i0])
  // CHECK: outs(max f32[n, 5][
  strata.func @main(%x: f32[n, 4], %w: f32[7], %v: f32[7, 5], %u: f32[7, 100]) -> (f32[n], f32[n, 5], f32[n, 100], f32[3]) inputs ["x", "w", "v", "u"] outputs ["a", "b", "c", "d"] {
    %k = graph.cast %x {to = i32} : i32[n, 4]
    %n = graph.constant {value = literal[0, 9, -2, 14, 1, 16, -9, 12, -9, 16, -9, 20, -9, 24]} : i32[7, 2]
    %r = graph.constant {value = literal[0, 1, 2]} : i64[3]
    %l = graph.descend %k, %n, %r {steps = 3} : i64[n, 3]
    %p = graph.gather %w, %l {axis = 0} : f32[n, 3]
    %a = graph.reduce_sum %p {axes = [1], keepdims = false} : f32[n]
    %q = graph.gather %v, %l {axis = 0} : f32[n, 3, 5]
    %b = graph.reduce_max %q {axes = [1], keepdims = false} : f32[n, 5]
    %s = graph.gather %u, %l {axis = 0} : f32[n, 3, 100]
    %c = graph.reduce_sum %s {axes = [1], keepdims = false} : f32[n, 100]
    %d = graph.reduce_sum %p {axes = [0], keepdims = false} : f32[3]
    strata.return %a, %b, %c, %d
  }
}
