// PASSES: host-bufferize,loop-to-block
// TOLERANCE: 1e-5
// A recurrence carries its state through a loop, from what its first input reads; a reduction of the
// last states accumulates around it. The body may use the state as an index value, too. Steps that
// only a run knows may be none.
builtin.module {
  // CHECK: block.kernel @walk
  // CHECK: block.for %i1 = 0 to 7 step 4 (
  // CHECK: %{{.*}} = block.load %s[%i1 + t0] check [0] pad 0 : tile<4xi64>
  // CHECK: block.for %i2 = 0 to 5 step 1 (
  // CHECK: block.load %f[%{{[0-9]+}}] with
  // CHECK: block.yield
  // CHECK: block.load %w[
  // CHECK: block.reduce add
  // CHECK: block.kernel @index
  // CHECK: block.for %i1 = 0 to n step 1 (
  // CHECK: block.index
  strata.func @main(%s: i64[7], %f: i64[9], %w: f32[9], %x: f32[n, 6]) -> (f32[3], f32[6], i64[6]) inputs ["s", "f", "w", "x"] outputs ["y", "z", "v"] {
    %p = graph.constant {value = literal[0, 3, 8, 1, 2, 7, 4]} : i64[7]
    %g = graph.constant {value = literal[3, 8, 1, 0, 5, 2, 7, 6, 4]} : i64[9]
    %o = graph.constant {value = literal[2]} : i64[1]
    %y = loop.call @walk(%p, %g, %w) sizes() : f32[3]
    %z = loop.call @decay(%x, %w) sizes(n) : f32[6]
    %v = loop.call @index(%o, %g) sizes(n) : i64[6]
    strata.return %y, %z, %v
  }
  loop.kernel @walk(%s: i64[7], %f: i64[9], %w: f32[9]) -> (f32[3]) sizes() schedule<grid i0 tile 1, loop i1 tile 4, loop i2 tile 1 | tails = mask> {
    %l = loop.nest (i0: 3, i1: 7, reduce i2: 5) ins(%s[i1], %f[in0]) outs(next i64[3, 7][i0, i1]) {
    ^bb0(%a: i64, %b: i64):
      %i = loop.index i0 : index
      %k = arith.index_cast %i : index to i64
      %c = arith.constant 8 : i64
      %d = arith.addi %b, %k : i64
      %e = arith.minsi %d, %c : i64
      loop.yield %e
    }
    %y = loop.nest (i0: 3, reduce i1: 7) ins(%l[i0, i1], %w[in0]) outs(add f32[3][i0]) {
    ^bb0(%a: i64, %b: f32):
      loop.yield %b
    }
    loop.yield %y
  }
  loop.kernel @decay(%x: f32[n, 6], %w: f32[9]) -> (f32[6]) sizes(n) schedule<grid i0 tile 6 lanes, loop i1 tile 1 unroll 2> {
    %y = loop.nest (i0: 6, reduce i1: n) ins(%w[i0], %x[i1, i0], %w[i0]) outs(next f32[6][i0]) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %d = arith.constant 0.5 : f32
      %e = arith.mulf %a, %d : f32
      %g = arith.addf %e, %b : f32
      %h = arith.subf %g, %c : f32
      loop.yield %h
    }
    loop.yield %y
  }
  loop.kernel @index(%o: i64[1], %f: i64[9]) -> (i64[6]) sizes(n) schedule<grid i0 tile 2, loop i1 tile 1> {
    %y = loop.nest (i0: 6, reduce i1: n) ins(%o[0], %f[(in0 + i0) mod 9]) outs(next i64[6][i0]) {
    ^bb0(%a: i64, %b: i64):
      %i = loop.index (in1 + 2*in0 + i0 + i1) mod 9 : index
      %k = arith.index_cast %i : index to i64
      loop.yield %k
    }
    loop.yield %y
  }
}
