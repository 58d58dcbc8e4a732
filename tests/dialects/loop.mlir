// Every operation of the loop level, in every form of its text.
builtin.module {
  strata.func @main(%x: f32[batch, 4, 6], %ids: i64[9]) -> (f32[24*batch], f32[batch, 8]) inputs ["x", "ids"] outputs ["y", "z"] {
    %v = loop.view %x : f32[24*batch]
    %e = loop.empty : f32[batch, 8]
    %low = loop.nest (i0: batch, i1: 4) ins(%x[i0, -i1 + 3, i1 + 1] pad -inf) outs(f32[batch, 8][i0, 2*i1]) into(%e) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    %z = loop.nest (i0: batch, i1: 4) ins(%ids[i1], %x[i0, 0, in0]) outs(f32[batch, 8][i0, 2*i1 + 1]) into(%low) {
    ^bb0(%i: i64, %p: f32):
      %at = loop.index i0 - 2*i1 + in0 : index
      %wide = arith.index_cast %at : index to i64
      %f = arith.sitofp %wide : i64 to f32
      %r = arith.addf %p, %f : f32
      loop.yield %r
    }
    %y = loop.call @scale(%v) sizes(24*batch) : f32[24*batch]
    strata.return %y, %z
  }
  loop.kernel @scale(%x: f32[n]) -> (f32[n]) sizes(n) schedule<grid i0 tile 64 lanes | tails = peel> {
    %y = loop.nest (i0: n) ins(%x[i0]) outs(f32[n][i0]) {
    ^bb0(%p: f32):
      %c = arith.constant 2.000000e+00 : f32
      %r = arith.mulf %p, %c : f32
      loop.yield %r
    }
    loop.yield %y
  }
  loop.kernel @descent(%s: i64[trees], %f: i64[nodes]) -> (i64[trees]) sizes(nodes, trees) {
    %y = loop.nest (i0: trees, reduce i1: 8) ins(%s[i0], %f[in0]) outs(next i64[trees][i0]) {
    ^bb0(%p: i64, %q: i64):
      loop.yield %q
    }
    loop.yield %y
  }
  loop.kernel @rows(%x: bf16[rows, 300], %m: i1[rows, 300]) -> (f32[rows], i1[rows], f32[rows]) sizes(rows) {
    %top, %all = loop.nest (i0: rows, reduce i1: 300) ins(%x[i0, i1], %m[i0, i1]) outs(max f32[rows][i0], and i1[rows][i0]) {
    ^bb0(%p: bf16, %q: i1):
      %w = arith.extf %p : bf16 to f32
      loop.yield %w, %q
    }
    %one = loop.nest (i0: rows) ins() outs(f32[rows][i0]) {
      %c = arith.constant 1.000000e+00 : f32
      loop.yield %c
    }
    loop.yield %top, %all, %one
  }
  loop.kernel @taps(%x: f32[rows + 4], %f: f32[3]) -> (f32[rows]) sizes(rows) {
    %y = loop.nest (i0: rows, reduce i1: 3) ins(%x[i0 + 2*i1], %f[i1]) outs(add f32[rows][i0]) parts 2 inside([i0 + 2*i1 - 2, rows]) {
    ^bb0(%p: f32, %q: f32):
      %r = arith.mulf %p, %q : f32
      loop.yield %r
    }
    loop.yield %y
  }
}
