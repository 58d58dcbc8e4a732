// TARGET: cpu avx2
// PASSES: loop-schedule
// A panel of groups, made of what runs along its lanes: rows of a group alternate in registers.
// What runs along the groups is copied like anything else.
builtin.module {
  // CHECK: loop.kernel @alternate{{.*}} schedule<grid i0 tile 1, grid i1 tile 1, loop i3 tile 2 group, loop i2 tile 16 lanes>
  // CHECK: loop.kernel @along{{.*}} schedule<{{[^{]*}}loop i3 tile 2 lanes>
  strata.func @main(%x: bf16[63, 40], %z: bf16[40, 63]) -> (bf16[2, 32, 32, 2], bf16[2, 32, 32, 2]) inputs ["x", "z"] outputs ["y", "w"] {
    %y = loop.call @alternate(%x) sizes() : bf16[2, 32, 32, 2]
    %w = loop.call @along(%z) sizes() : bf16[2, 32, 32, 2]
    strata.return %y, %w
  }
  loop.kernel @alternate(%x: bf16[63, 40]) -> (bf16[2, 32, 32, 2]) sizes() {
    %y = loop.nest (i0: 2, i1: 32, i2: 32, i3: 2) ins(%x[2*i1 + i3, 32*i0 + i2] pad 0.0) outs(bf16[2, 32, 32, 2][i0, i1, i2, i3]) {
    ^bb0(%p: bf16):
      loop.yield %p
    }
    loop.yield %y
  }
  loop.kernel @along(%x: bf16[40, 63]) -> (bf16[2, 32, 32, 2]) sizes() {
    %y = loop.nest (i0: 2, i1: 32, i2: 32, i3: 2) ins(%x[32*i0 + i2, 2*i1 + i3] pad 0.0) outs(bf16[2, 32, 32, 2][i0, i1, i2, i3]) {
    ^bb0(%p: bf16):
      loop.yield %p
    }
    loop.yield %y
  }
}
