// PASSES: host-bufferize,loop-to-block,block-expand-floats
// One narrow float is decoded, another encoded; conversions of all others stay.
builtin.module {
  // CHECK: block.kernel @convert
  // CHECK: f8E4M3FN to i8
  // CHECK-NOT: f8E4M3FN to f32
  // CHECK: arith.extf
  // CHECK-NOT: f32 to f4E2M1FN
  // CHECK: i32 to i4
  // CHECK-NEXT: i4 to f4E2M1FN
  // CHECK-NEXT: block.yield
  strata.func @main(%x: f8E4M3FN[n, 40], %s: f16[n]) -> (f4E2M1FN[n, 40]) inputs ["x", "s"] outputs ["y"] {
    %y = loop.call @convert(%x, %s) sizes(n) : f4E2M1FN[n, 40]
    strata.return %y
  }
  loop.kernel @convert(%x: f8E4M3FN[n, 40], %s: f16[n]) -> (f4E2M1FN[n, 40]) sizes(n) schedule<grid i0 tile 1, whole i1 tile 64 | tails = mask> {
    %y = loop.nest (i0: n, i1: 40) ins(%x[i0, i1], %s[i0]) outs(f4E2M1FN[n, 40][i0, i1]) {
    ^bb0(%p: f8E4M3FN, %h: f16):
      %wide = arith.extf %p : f8E4M3FN to f32
      %scale = arith.extf %h : f16 to f32
      %product = arith.mulf %wide, %scale : f32
      %narrow = arith.truncf %product : f32 to f4E2M1FN
      loop.yield %narrow
    }
    loop.yield %y
  }
}
