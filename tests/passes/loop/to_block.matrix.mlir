// PASSES: host-bufferize,loop-to-block
// TOLERANCE: 0.01
// Sums in matrix registers: whole rows, and those that are left over; a summed axis whose rest is
// 0 in both factors. What is made of the sums walks fewer rows at once; without that they are copied.
builtin.module {
  // CHECK: block.kernel @product{{.*}} grid(%i1: 3)
  // CHECK-NEXT: block.full 0.0 : tile<(32x32)xf32>
  // CHECK-NEXT: block.for %i2 = 0 to 64 step 32 ({{.*}}) {
  // CHECK-NEXT: block.load %a[t0, %i2 + t1] : tile<(32x32)xbf16>
  // CHECK-NEXT: block.load %b[%i1, 16*(%i2 floordiv 32) + (t0 floordiv 2), t1, (t0 mod 2)] : tile<(32x32)xbf16>
  // CHECK-NEXT: block.dot {{.*}} : tile<(32x32)xf32>
  // CHECK: block.load %a[t0, t1 + 64] check [1] pad 0 : tile<(32x32)xbf16>
  // CHECK: block.scratch : f32[32, 32]
  // CHECK-NEXT: block.store {{.*}}[t0, t1]
  // CHECK-NEXT: block.for %i0 = 0 to 32 step 4 parallel {
  // CHECK-NEXT: block.load {{.*}}[%i0 + t0, t1] : tile<4x[32]xf32>
  // CHECK-NEXT: block.store {{.*}}, %y[%i0 + t0, 32*%i1 + t1] check [1]
  // CHECK: block.full 0.0 : tile<(16x32)xf32>
  // CHECK: block.kernel @halves{{.*}} grid(%i0: 2, %i1: 3)
  // CHECK: block.load %a[{{.*}}] check [0] pad 0 : tile<(16x32)xbf16>
  strata.func @main(%a: bf16[48, 72], %b: bf16[3, 36, 32, 2]) -> (f32[48, 70], bf16[48, 70]) inputs ["a", "b"] outputs ["y", "z"] {
    %y = loop.call @product(%a, %b) sizes() : f32[48, 70]
    %z = loop.call @halves(%a, %b) sizes() : bf16[48, 70]
    strata.return %y, %z
  }
  loop.kernel @product(%a: bf16[48, 72], %b: bf16[3, 36, 32, 2]) -> (f32[48, 70]) sizes() schedule<grid i1 tile 32 lanes, loop i0 tile 32 matrix, loop i2 tile 32 matrix, loop i0 tile 4> {
    %y = loop.nest (i0: 48, i1: 70, reduce i2: 72) ins(%a[i0, i2], %b[(i1 floordiv 32), (i2 floordiv 2), (i1 mod 32), (i2 mod 2)]) outs(add f32[48, 70][i0, i1]) {
    ^bb0(%p: bf16, %q: bf16):
      %u = arith.extf %p : bf16 to f32
      %v = arith.extf %q : bf16 to f32
      %w = arith.mulf %u, %v : f32
      loop.yield %w
    }
    loop.yield %y
  }
  loop.kernel @halves(%a: bf16[48, 72], %b: bf16[3, 36, 32, 2]) -> (bf16[48, 70]) sizes() schedule<grid i0 tile 32, grid i1 tile 32 lanes, loop i0 tile 32 matrix, loop i2 tile 32 matrix, loop i0 tile 4> {
    %y = loop.nest (i0: 48, i1: 70, reduce i2: 72) ins(%a[i0, i2], %b[(i1 floordiv 32), (i2 floordiv 2), (i1 mod 32), (i2 mod 2)]) outs(add f32[48, 70][i0, i1]) {
    ^bb0(%p: bf16, %q: bf16):
      %u = arith.extf %p : bf16 to f32
      %v = arith.extf %q : bf16 to f32
      %w = arith.mulf %u, %v : f32
      loop.yield %w
    }
    %z = loop.nest (i0: 48, i1: 70) ins(%y[i0, i1]) outs(bf16[48, 70][i0, i1]) {
    ^bb0(%p: f32):
      %u = arith.truncf %p : f32 to bf16
      loop.yield %u
    }
    loop.yield %z
  }
}
