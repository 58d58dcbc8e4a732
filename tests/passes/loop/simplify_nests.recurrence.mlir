// PASSES: loop-simplify-nests,loop-fuse
// TOLERANCE: 1e-5
// Equal reads of a recurrence are merged, but not with its state, which is what the first input
// reads only before the first point. Its producer is not inlined there. A single step just computes.
builtin.module {
  // CHECK: %p = loop.nest
  // CHECK: %y = loop.nest (i0: 6, reduce i1: n) ins(%p[i0], %w[i0]) outs(next f32[6][i0])
  // CHECK: %z = loop.nest (i0: 6) ins(%w[i0], %x[0, i0]) outs(f32[6][i0])
  strata.func @main(%w: f32[6], %x: f32[n, 6]) -> (f32[6], f32[6]) inputs ["w", "x"] outputs ["y", "z"] {
    %p = loop.nest (i0: 6) ins(%w[i0]) outs(f32[6][i0]) {
    ^bb0(%a: f32):
      %b = arith.negf %a : f32
      loop.yield %b
    }
    %y = loop.nest (i0: 6, reduce i1: n) ins(%p[i0], %w[i0], %w[i0]) outs(next f32[6][i0]) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %d = arith.mulf %b, %c : f32
      %e = arith.subf %a, %d : f32
      loop.yield %e
    }
    %z = loop.nest (i0: 6, reduce i1: 1) ins(%w[i0], %x[i1, i0]) outs(next f32[6][i0]) {
    ^bb0(%a: f32, %b: f32):
      %c = arith.subf %a, %b : f32
      loop.yield %c
    }
    strata.return %y, %z
  }
}
