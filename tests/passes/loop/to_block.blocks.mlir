// PASSES: host-bufferize,loop-to-block
// TOLERANCE: 1e-5
// An axis cut twice: chunks, then tiles in a chunk. A tile that does not divide its chunk is masked
// at the chunk's end, for what is behind belongs to the next one.
builtin.module {
  // CHECK: block.kernel @even({{.*}}) grid(%i0: ((n + 127) floordiv 128)) sizes(n)
  // CHECK: block.for {{.*}} = 128*%i0 to {{.*}}min(
  // CHECK: block.kernel @odd
  // CHECK: block.for %i1 = 0 to 40 step 12
  // CHECK: block.for
  // CHECK: block.valid
  strata.func @main(%x: f32[n], %z: f32[n, 40]) -> (f32[n], f32[n]) inputs ["x", "z"] outputs ["y", "s"] {
    %y = loop.call @even(%x) sizes(n) : f32[n]
    %s = loop.call @odd(%z) sizes(n) : f32[n]
    strata.return %y, %s
  }
  loop.kernel @even(%x: f32[n]) -> (f32[n]) sizes(n) schedule<grid i0 tile 128, loop i0 tile 64 lanes> {
    %y = loop.nest (i0: n) ins(%x[i0]) outs(f32[n][i0]) {
    ^bb0(%p: f32):
      %v = arith.addf %p, %p : f32
      loop.yield %v
    }
    loop.yield %y
  }
  loop.kernel @odd(%z: f32[n, 40]) -> (f32[n]) sizes(n) schedule<grid i0 tile 1, loop i1 tile 12, loop i1 tile 8 lanes | tails = mask> {
    %s = loop.nest (i0: n, reduce i1: 40) ins(%z[i0, i1]) outs(add f32[n][i0]) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    loop.yield %s
  }
}
