// PASSES: host-bufferize,loop-to-block
// TOLERANCE: 1e-5
// A step that stays inside one part of an axis has one place among the parts: no lane divides.
// Of parts of an open size it may span several.
builtin.module {
  // CHECK: block.kernel @sum
  // CHECK: block.load %x[(%i0 floordiv 96), 32*((%i0 floordiv 32) mod 3) + t0]
  // CHECK: block.kernel @open
  // CHECK: floordiv n), (({{.*}} + t0) mod n)]
  strata.func @main(%x: f32[4, 96], %z: f32[4, n]) -> (f32[], f32[]) inputs ["x", "z"] outputs ["y", "o"] {
    %y = loop.call @sum(%x) sizes() : f32[]
    %o = loop.call @open(%z) sizes(n) : f32[]
    strata.return %y, %o
  }
  loop.kernel @sum(%x: f32[4, 96]) -> (f32[]) sizes() schedule<loop i0 tile 32 | tails = mask> {
    %s = loop.nest (reduce i0: 384) ins(%x[i0 floordiv 96, i0 mod 96]) outs(add f32[][]) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    loop.yield %s
  }
  loop.kernel @open(%x: f32[4, n]) -> (f32[]) sizes(n) schedule<loop i0 tile 32 | tails = mask> {
    %s = loop.nest (reduce i0: 4*n) ins(%x[i0 floordiv n, i0 mod n]) outs(add f32[][]) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    loop.yield %s
  }
}
