// PASSES: host-bufferize,loop-to-block
// TOLERANCE: 1e-5
// A tile that reaches beyond a window reads elements of other windows: these are masked. A tile that
// reaches beyond a part of the result would write into the next part: its index leaves the tensor.
builtin.module {
  // CHECK: block.kernel @window
  // CHECK: block.valid t0 < 3 : tile<4xi1>
  // CHECK: arith.select
  // CHECK: block.reduce add
  // CHECK: block.store %{{.*}}, %y[%i0, {{.*}}min(1, max({{.*}}] check [1]
  strata.func @main(%x: f32[2, n]) -> (f32[2, n]) inputs ["x"] outputs ["y"] {
    %d = loop.call @copy(%x) sizes(n) : f32[2, n]
    %y = loop.call @window(%x, %d) sizes(n) : f32[2, n]
    strata.return %y
  }
  loop.kernel @copy(%x: f32[2, n]) -> (f32[2, n]) sizes(n) schedule<grid i0 tile 1, loop i1 tile 4 lanes> {
    %y = loop.nest (i0: 2, i1: n) ins(%x[i0, i1]) outs(f32[2, n][i0, i1]) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    loop.yield %y
  }
  loop.kernel @window(%x: f32[2, n], %d: f32[2, n]) -> (f32[2, n]) sizes(n) schedule<grid i0 tile 1, grid i1 tile 4, whole i2 tile 4 | tails = mask> {
    %s = loop.nest (i0: 2, i1: n - 2, reduce i2: 3) ins(%x[i0, i1 + i2]) outs(add f32[2, n - 2][i0, i1]) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    %y = loop.nest (i0: 2, i1: n - 2) ins(%s[i0, i1]) outs(f32[2, n][i0, i1]) into(%d) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    loop.yield %y
  }
}
