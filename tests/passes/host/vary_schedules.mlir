// PASSES: loop-schedule,host-bufferize,host-vary-schedules
// TARGET: cuda sm_90
builtin.module {
  // A product of any number of rows: a tile for each range of them, of which one is launched.
  // CHECK: host.func @main
  // CHECK: host.launch @product(%x, %w, %y) sizes(n) when -min(1, max(0, n - 383)) + 1
  // CHECK-NEXT: host.launch @product_v1(%x, %w, %y) sizes(n) when -min(1, max(0, n - 1535)) + min(1, max(0, n - 383))
  // CHECK-NEXT: host.launch @product_v2(%x, %w, %y) sizes(n) when min(1, max(0, n - 1535)) - min(1, max(0, n - 4095))
  // CHECK-NEXT: host.launch @product_v3(%x, %w, %y) sizes(n) when min(1, max(0, n - 4095))
  // CHECK-NEXT: host.launch @negate(%y, %z) sizes(n)
  // CHECK: loop.kernel @product({{.*}} schedule<grid i0 tile 64, grid i1 tile 16, loop i2 tile 256
  // CHECK: loop.kernel @product_v3({{.*}} schedule<grid i0 tile {{[0-9]+}}, grid i1 tile {{[0-9]+}}, loop i2 tile 64
  strata.func @main(%x: f16[n, 256], %w: f16[256, 512]) -> (f32[n, 512]) inputs ["x", "w"] outputs ["y"] {
    %y = loop.call @product(%x, %w) sizes(n) : f32[n, 512]
    %z = loop.call @negate(%y) sizes(n) : f32[n, 512]
    strata.return %z
  }
  loop.kernel @product(%x: f16[n, 256], %w: f16[256, 512]) -> (f32[n, 512]) sizes(n) {
    %y = loop.nest (i0: n, i1: 512, reduce i2: 256) ins(%x[i0, i2], %w[i2, i1]) outs(add f32[n, 512][i0, i1]) {
    ^bb0(%p: f16, %q: f16):
      %a = arith.extf %p : f16 to f32
      %b = arith.extf %q : f16 to f32
      %c = arith.mulf %a, %b : f32
      loop.yield %c
    }
    loop.yield %y
  }
  // An elementwise kernel has one schedule.
  loop.kernel @negate(%x: f32[n, 512]) -> (f32[n, 512]) sizes(n) {
    %y = loop.nest (i0: n, i1: 512) ins(%x[i0, i1]) outs(f32[n, 512][i0, i1]) {
    ^bb0(%p: f32):
      %q = arith.negf %p : f32
      loop.yield %q
    }
    loop.yield %y
  }
}
