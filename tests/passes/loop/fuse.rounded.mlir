// PASSES: loop-fuse
// What rounds sums of products stays with them where its reader belongs to another kernel: a sum of
// two such, or a reduction. Unrounded sums would cross memory otherwise.
builtin.module {
  // CHECK: strata.func @two
  // CHECK: arith.truncf
  // CHECK: arith.truncf
  // CHECK: arith.addf
  // CHECK: strata.return
  strata.func @two(%x: f16[8, 4], %w: f16[4, 6], %v: f16[4, 6]) -> (f16[8, 6]) inputs ["x", "w", "v"] outputs ["y"] {
    %a = loop.nest (i0: 8, i1: 6, reduce i2: 4) ins(%x[i0, i2], %w[i2, i1]) outs(add f32[8, 6][i0, i1]) {
    ^bb0(%p: f16, %q: f16):
      %e = arith.extf %p : f16 to f32
      %f = arith.extf %q : f16 to f32
      %m = arith.mulf %e, %f : f32
      loop.yield %m
    }
    %b = loop.nest (i0: 8, i1: 6, reduce i2: 4) ins(%x[i0, i2], %v[i2, i1]) outs(add f32[8, 6][i0, i1]) {
    ^bb0(%p: f16, %q: f16):
      %e = arith.extf %p : f16 to f32
      %f = arith.extf %q : f16 to f32
      %m = arith.mulf %e, %f : f32
      loop.yield %m
    }
    %c = loop.nest (i0: 8, i1: 6) ins(%a[i0, i1]) outs(f16[8, 6][i0, i1]) {
    ^bb0(%p: f32):
      %r = arith.truncf %p : f32 to f16
      loop.yield %r
    }
    %d = loop.nest (i0: 8, i1: 6) ins(%b[i0, i1]) outs(f16[8, 6][i0, i1]) {
    ^bb0(%p: f32):
      %r = arith.truncf %p : f32 to f16
      loop.yield %r
    }
    %y = loop.nest (i0: 8, i1: 6) ins(%c[i0, i1], %d[i0, i1]) outs(f16[8, 6][i0, i1]) {
    ^bb0(%p: f16, %q: f16):
      %s = arith.addf %p, %q : f16
      loop.yield %s
    }
    strata.return %y
  }
  // One: its reader can be computed with it.
  // CHECK: strata.func @one
  // CHECK: arith.truncf
  // CHECK-NEXT: arith.addf
  // CHECK-NOT: loop.nest
  strata.func @one(%x: f16[8, 4], %w: f16[4, 6], %z: f16[8, 6]) -> (f16[8, 6]) inputs ["x", "w", "z"] outputs ["y"] {
    %a = loop.nest (i0: 8, i1: 6, reduce i2: 4) ins(%x[i0, i2], %w[i2, i1]) outs(add f32[8, 6][i0, i1]) {
    ^bb0(%p: f16, %q: f16):
      %e = arith.extf %p : f16 to f32
      %f = arith.extf %q : f16 to f32
      %m = arith.mulf %e, %f : f32
      loop.yield %m
    }
    %c = loop.nest (i0: 8, i1: 6) ins(%a[i0, i1]) outs(f16[8, 6][i0, i1]) {
    ^bb0(%p: f32):
      %r = arith.truncf %p : f32 to f16
      loop.yield %r
    }
    %y = loop.nest (i0: 8, i1: 6) ins(%c[i0, i1], %z[i0, i1]) outs(f16[8, 6][i0, i1]) {
    ^bb0(%p: f16, %q: f16):
      %s = arith.addf %p, %q : f16
      loop.yield %s
    }
    strata.return %y
  }
  // What only widens them is for its readers to do: halves cross memory.
  // CHECK: strata.func @widened
  // CHECK: %c = loop.nest (i0: 8, i1: 6) ins(%a[i0, i1]) outs(f16[8, 6][i0, i1])
  // CHECK: loop.nest (i0: 8, reduce i1: 6) ins(%c[i0, i1]) outs(add
  // CHECK-NEXT: bb0(%{{.*}}: f16
  // CHECK: loop.nest (i0: 8, i1: 6) ins(%c[i0, i1], %
  // CHECK-NEXT: bb0(%{{.*}}: f16
  strata.func @widened(%x: f16[8, 4], %w: f16[4, 6]) -> (f32[8, 6]) inputs ["x", "w"] outputs ["y"] {
    %a = loop.nest (i0: 8, i1: 6, reduce i2: 4) ins(%x[i0, i2], %w[i2, i1]) outs(add f32[8, 6][i0, i1]) {
    ^bb0(%p: f16, %q: f16):
      %e = arith.extf %p : f16 to f32
      %f = arith.extf %q : f16 to f32
      %m = arith.mulf %e, %f : f32
      loop.yield %m
    }
    %c = loop.nest (i0: 8, i1: 6) ins(%a[i0, i1]) outs(f16[8, 6][i0, i1]) {
    ^bb0(%p: f32):
      %r = arith.truncf %p : f32 to f16
      loop.yield %r
    }
    %d = loop.nest (i0: 8, i1: 6) ins(%c[i0, i1]) outs(f32[8, 6][i0, i1]) {
    ^bb0(%p: f16):
      %r = arith.extf %p : f16 to f32
      loop.yield %r
    }
    %s = loop.nest (i0: 8, reduce i1: 6) ins(%d[i0, i1]) outs(add f32[8][i0]) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    %y = loop.nest (i0: 8, i1: 6) ins(%d[i0, i1], %s[i0]) outs(f32[8, 6][i0, i1]) {
    ^bb0(%p: f32, %q: f32):
      %r = arith.subf %p, %q : f32
      loop.yield %r
    }
    strata.return %y
  }
  // Or a part of the sums, which is copied: columns were added so that rows are aligned.
  // CHECK: strata.func @part
  // CHECK: outs(f16[8, 6][i0, i1])
  // CHECK: arith.truncf
  // CHECK: outs(f16[8, 5][i0, i1])
  // CHECK-NOT: arith.truncf
  strata.func @part(%x: f16[8, 4], %w: f16[4, 6]) -> (f16[8, 5]) inputs ["x", "w"] outputs ["y"] {
    %a = loop.nest (i0: 8, i1: 6, reduce i2: 4) ins(%x[i0, i2], %w[i2, i1]) outs(add f32[8, 6][i0, i1]) {
    ^bb0(%p: f16, %q: f16):
      %e = arith.extf %p : f16 to f32
      %f = arith.extf %q : f16 to f32
      %m = arith.mulf %e, %f : f32
      loop.yield %m
    }
    %b = loop.nest (i0: 8, i1: 6) ins(%a[i0, i1]) outs(f16[8, 6][i0, i1]) {
    ^bb0(%p: f32):
      %r = arith.truncf %p : f32 to f16
      loop.yield %r
    }
    %y = loop.nest (i0: 8, i1: 5) ins(%b[i0, i1]) outs(f16[8, 5][i0, i1]) {
    ^bb0(%p: f16):
      loop.yield %p
    }
    strata.return %y
  }
  // Or the parts of a tensor, among which its reader may select: columns of two products, in turns.
  // CHECK: strata.func @parts
  // CHECK: outs(f16[8, 6][i0, i1])
  // CHECK: arith.truncf
  // CHECK: outs(f16[8, 6][i0, i1])
  // CHECK: arith.truncf
  // CHECK: outs(f16[8, 12][i0, 2*i1])
  // CHECK-NOT: arith.truncf
  strata.func @parts(%x: f16[8, 4], %w: f16[4, 6], %v: f16[4, 6]) -> (f16[8, 12]) inputs ["x", "w", "v"] outputs ["y"] {
    %a = loop.nest (i0: 8, i1: 6, reduce i2: 4) ins(%x[i0, i2], %w[i2, i1]) outs(add f32[8, 6][i0, i1]) {
    ^bb0(%p: f16, %q: f16):
      %e = arith.extf %p : f16 to f32
      %f = arith.extf %q : f16 to f32
      %m = arith.mulf %e, %f : f32
      loop.yield %m
    }
    %b = loop.nest (i0: 8, i1: 6, reduce i2: 4) ins(%x[i0, i2], %v[i2, i1]) outs(add f32[8, 6][i0, i1]) {
    ^bb0(%p: f16, %q: f16):
      %e = arith.extf %p : f16 to f32
      %f = arith.extf %q : f16 to f32
      %m = arith.mulf %e, %f : f32
      loop.yield %m
    }
    %c = loop.nest (i0: 8, i1: 6) ins(%a[i0, i1]) outs(f16[8, 6][i0, i1]) {
    ^bb0(%p: f32):
      %r = arith.truncf %p : f32 to f16
      loop.yield %r
    }
    %d = loop.nest (i0: 8, i1: 6) ins(%b[i0, i1]) outs(f16[8, 6][i0, i1]) {
    ^bb0(%p: f32):
      %r = arith.truncf %p : f32 to f16
      loop.yield %r
    }
    %z = loop.empty : f16[8, 12]
    %g = loop.nest (i0: 8, i1: 6) ins(%c[i0, i1]) outs(f16[8, 12][i0, 2*i1]) into(%z) {
    ^bb0(%p: f16):
      loop.yield %p
    }
    %y = loop.nest (i0: 8, i1: 6) ins(%d[i0, i1]) outs(f16[8, 12][i0, 2*i1 + 1]) into(%g) {
    ^bb0(%p: f16):
      loop.yield %p
    }
    strata.return %y
  }
}
