// PASSES: graph-to-loop,loop-assume-bounds,loop-fuse,loop-outline
// What says where one slice goes is computed with it: no two updates meet.
builtin.module {
  // CHECK: strata.func @main
  // CHECK-NEXT: loop.call @scatter_0(%i, %u, %x) sizes() : f32[5, 7, 4]
  // CHECK-NEXT: strata.return
  // CHECK: loop.kernel @scatter_0(%i: i64[1], %u: f32[5, 1, 4], %x: f32[5, 7, 4])
  // CHECK-NEXT: loop.nest (i0: 5, i1: 4) ins(%i[0]) outs(i64[5, 1, 4][i0, 0, i1]) {
  // CHECK: loop.nest (i0: 5, i1: 4) ins(%0[i0, 0, i1], %u[i0, 0, i1]) outs(f32[5, 7, 4][i0, in0, i1]) into(%x) {
  strata.func @main(%x: f32[5, 7, 4], %i: i64[1], %u: f32[5, 1, 4]) -> (f32[5, 7, 4]) inputs ["x", "i", "u"] outputs ["y"] {
    %j = graph.reshape %i {shape = [1, 1, 1]} : i64[1, 1, 1]
    %k = graph.broadcast %j {shape = [5, 1, 4]} : i64[5, 1, 4]
    %y = graph.scatter_elements %x, %k, %u {axis = 1, combiner = "none"} : f32[5, 7, 4]
    strata.return %y
  }
}
