// PASSES: loop-fuse
// A conversion to a wider type is repeated in every reader: what is read is shorter.
builtin.module {
  // CHECK: strata.func @scaled
  // CHECK-NEXT: %y = loop.nest (i0: n, i1: 8) ins(%x[i0, i1], %s[i1]) outs(f32[n, 8][i0, i1]) {
  // CHECK: arith.extf
  // CHECK-NOT: loop.nest
  // In sums, too; but not in a matrix product, which reads an element again for every product.
  // CHECK: strata.func @summed
  // CHECK-NEXT: %y = loop.nest (i0: 4, reduce i1: 8) ins(%s[i0, i1]) outs(add f32[4][i0]) {
  // CHECK: %z = loop.nest (i0: 4, reduce i1: 8) ins(%s[i0, i1]) outs(max f32[4][i0]) {
  // CHECK: strata.func @contracted
  // CHECK-NEXT: %w = loop.nest (i0: 8, i1: 3) ins(%s[i0, i1]) outs(f32[8, 3][i0, i1]) {
  // Through a view, too: a loss reads logits as rows.
  // CHECK: strata.func @viewed
  // CHECK-NEXT: loop.view %s : bf16[6, 8]
  // CHECK-NEXT: loop.nest (i0: 6, reduce i1: 8) ins({{.*}}) outs(add f32[6][i0]) {
  // CHECK: loop.nest (i0: 6, reduce i1: 8) ins({{.*}}) outs(max f32[6][i0]) {
  // CHECK-NOT: loop.nest
  strata.func @scaled(%x: f32[n, 8], %s: bf16[8]) -> (f32[n, 8]) inputs ["x", "s"] outputs ["y"] {
    %w = loop.nest (i0: 8) ins(%s[i0]) outs(f32[8][i0]) {
    ^bb0(%p: bf16):
      %v = arith.extf %p : bf16 to f32
      loop.yield %v
    }
    %y = loop.nest (i0: n, i1: 8) ins(%x[i0, i1], %w[i1]) outs(f32[n, 8][i0, i1]) {
    ^bb0(%p: f32, %q: f32):
      %v = arith.mulf %p, %q : f32
      loop.yield %v
    }
    strata.return %y
  }
  strata.func @summed(%s: bf16[4, 8]) -> (f32[4], f32[4]) inputs ["s"] outputs ["y", "z"] {
    %w = loop.nest (i0: 4, i1: 8) ins(%s[i0, i1]) outs(f32[4, 8][i0, i1]) {
    ^bb0(%p: bf16):
      %v = arith.extf %p : bf16 to f32
      loop.yield %v
    }
    %y = loop.nest (i0: 4, reduce i1: 8) ins(%w[i0, i1]) outs(add f32[4][i0]) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    %z = loop.nest (i0: 4, reduce i1: 8) ins(%w[i0, i1]) outs(max f32[4][i0]) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    strata.return %y, %z
  }
  strata.func @contracted(%x: f32[4, 8], %s: bf16[8, 3]) -> (f32[4, 3]) inputs ["x", "s"] outputs ["y"] {
    %w = loop.nest (i0: 8, i1: 3) ins(%s[i0, i1]) outs(f32[8, 3][i0, i1]) {
    ^bb0(%p: bf16):
      %v = arith.extf %p : bf16 to f32
      loop.yield %v
    }
    %y = loop.nest (i0: 4, i1: 3, reduce i2: 8) ins(%x[i0, i2], %w[i2, i1]) outs(add f32[4, 3][i0, i1]) {
    ^bb0(%p: f32, %q: f32):
      %v = arith.mulf %p, %q : f32
      loop.yield %v
    }
    strata.return %y
  }
  strata.func @viewed(%s: bf16[2, 3, 8]) -> (f32[6], f32[6]) inputs ["s"] outputs ["y", "z"] {
    %w = loop.nest (i0: 2, i1: 3, i2: 8) ins(%s[i0, i1, i2]) outs(f32[2, 3, 8][i0, i1, i2]) {
    ^bb0(%p: bf16):
      %v = arith.extf %p : bf16 to f32
      loop.yield %v
    }
    %r = loop.view %w : f32[6, 8]
    %y = loop.nest (i0: 6, reduce i1: 8) ins(%r[i0, i1]) outs(add f32[6][i0]) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    %z = loop.nest (i0: 6, reduce i1: 8) ins(%r[i0, i1]) outs(max f32[6][i0]) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    strata.return %y, %z
  }
}
