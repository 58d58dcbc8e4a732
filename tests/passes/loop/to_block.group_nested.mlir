// PASSES: host-bufferize,loop-to-block
// Groups inside tiles of the summed axis, which start at multiples of the group: the packed factor is
// read in whole registers, also where the last tile is cut off.
// TOLERANCE: 1e-4
builtin.module {
  // CHECK: block.kernel @even({{.*}}) grid(%i1: 3) sizes(m)
  // CHECK: block.for %i2 = 0 to 1024 step 512
  // CHECK: block.for %i2_1 = %i2 to %i2 + 512 step 2 unroll 4
  // CHECK: block.load %b[%i1, (%i2_1 floordiv 2), t1, t0] : tile<{2}x[16]xbf16>
  // CHECK: block.kernel @uneven({{.*}}) grid(%i1: 3) sizes(m)
  // CHECK: block.load %b[%i1, (%i2_1 floordiv 2), t1, t0] : tile<{2}x[16]xbf16>
  // CHECK-NOT: floordiv 2), t1, ((
  strata.func @main(%a: bf16[m, 1024], %b: bf16[3, 512, 16, 2], %c: bf16[m, 70], %d: bf16[3, 35, 16, 2]) -> (f32[m, 48], f32[m, 48]) inputs ["a", "b", "c", "d"] outputs ["y", "z"] {
    %y = loop.call @even(%a, %b) sizes(m) : f32[m, 48]
    %z = loop.call @uneven(%c, %d) sizes(m) : f32[m, 48]
    strata.return %y, %z
  }
  loop.kernel @even(%a: bf16[m, 1024], %b: bf16[3, 512, 16, 2]) -> (f32[m, 48]) sizes(m) schedule<grid i1 tile 16 lanes, loop i0 tile 2, loop i2 tile 512 partial, loop i2 tile 2 unroll 4 group> {
    %y = loop.nest (i0: m, i1: 48, reduce i2: 1024) ins(%a[i0, i2], %b[(i1 floordiv 16), (i2 floordiv 2), (i1 mod 16), (i2 mod 2)]) outs(add f32[m, 48][i0, i1]) {
    ^bb0(%p: bf16, %q: bf16):
      %u = arith.extf %p : bf16 to f32
      %v = arith.extf %q : bf16 to f32
      %w = arith.mulf %u, %v : f32
      loop.yield %w
    }
    loop.yield %y
  }
  loop.kernel @uneven(%a: bf16[m, 70], %b: bf16[3, 35, 16, 2]) -> (f32[m, 48]) sizes(m) schedule<grid i1 tile 16 lanes, loop i0 tile 2, loop i2 tile 32 partial, loop i2 tile 2 unroll 4 group> {
    %y = loop.nest (i0: m, i1: 48, reduce i2: 70) ins(%a[i0, i2], %b[(i1 floordiv 16), (i2 floordiv 2), (i1 mod 16), (i2 mod 2)]) outs(add f32[m, 48][i0, i1]) {
    ^bb0(%p: bf16, %q: bf16):
      %u = arith.extf %p : bf16 to f32
      %v = arith.extf %q : bf16 to f32
      %w = arith.mulf %u, %v : f32
      loop.yield %w
    }
    loop.yield %y
  }
}
