// PASSES: graph-to-loop,loop-assume-bounds
builtin.module {
  strata.func @main(%x: f32[n, 4], %k: i64[]) -> (f32[min(2, n), 4], f32[_k, 4], f32[_k, 2])
      inputs ["x", "k"] outputs ["first", "last", "columns"] {
    // What holds for all sizes is not stated.
    // CHECK-NOT: assume
    %first = graph.slice %x {starts = [0, 0], sizes = [min(2, n), 4], steps = [1, 1]} : f32[min(2, n), 4]
    // CHECK: strata.size _k = %k
    strata.size _k = %k
    // CHECK-NEXT: strata.assume max(0, n - 2)*min(1, 4*_k) + min(1, 4*_k) <= n
    %last = graph.slice %x {starts = [max(0, n - 2), 0], sizes = [_k, 4], steps = [-1, 1]} : f32[_k, 4]
    // CHECK: strata.assume _k <= n
    %columns = graph.slice %x {starts = [0, 1], sizes = [_k, 2], steps = [1, 2]} : f32[_k, 2]
    strata.return %first, %last, %columns
  }
}
