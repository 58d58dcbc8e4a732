// Every operation of the block level, in every form of its text.
builtin.module {
  block.kernel @tiles(%x: f32[rows, 1000], %ids: i64[rows], %y: f32[rows, 1000]) grid(%r: rows, %p: 1000 ceildiv 64) sizes(rows) schedule<grid i0 tile 1, grid i1 tile 64 lanes | tails = mask, warps = 4> {
    %a = block.load %x[%r, 64*%p + t0] check [1] pad -inf : tile<[64]xf32>
    %id = block.load %ids[%r] : tile<i64>
    %b = block.load %x[%id, 64*%p + t0] check [0, 1] pad 0.0 : tile<[64]xf32>
    %v = block.valid 64*%p + t0 < 1000 : tile<[64]xi1>
    %low = block.full -1.0e-05 : tile<[64]xf32>
    %m, %n = block.map (%a[0], %b[0], %v[0], %r[]) : tile<[64]xf32>, tile<[64]xi1> {
    ^bb0(%left: f32, %right: f32, %valid: i1, %row: index):
      %zero = arith.constant 0.000000e+00 : f32
      %sum = arith.addf %left, %right : f32
      %kept = arith.select %valid, %sum, %zero : f32
      block.yield %kept, %valid
    }
    block.store %m, %y[%r, 64*%p + t0] check [1]
    %top = block.reduce max %m dim 0 : tile<f32>
    %c = block.convert %m : tile<64xf32>
    %so_far = block.scan add %c dim 0 : tile<64xf32>
    %all = block.all_reduce %c {group = #strata.group<"tp", [[0, 1]]>} : tile<64xf32>
    block.yield
  }
  block.kernel @loops(%a: f16[m, k], %b: f16[k, n], %y: f32[m, n]) grid(%p: m ceildiv 128) sizes(m, n, k) {
    block.for %q = 0 to n step 64 parallel {
      %z = block.full 0.0 : tile<128x64xf32>
      %acc = block.for %i = 0 to min(k, 64*%q + 64) step 32 unroll 2 (%c = %z) {
        block.prefetch %a[128*%p + 128, 4*%i]
        %l = block.load %a[128*%p + t0, %i + t1] check [0, 1] : tile<128x32xf16>
        %r = block.load %b[%i + t0, %q + t1] check [0, 1] : tile<32x64xf16>
        %d = block.dot %l, %r, %c tf32 : tile<128x64xf32>
        block.yield %d
      }
      block.store %acc, %y[128*%p + t0, %q + t1] check [0, 1]
      block.yield
    }
    block.yield
  }
  block.kernel @indices(%x: f32[n, 14, 14], %y: f32[196*n]) grid(%p: n) sizes(n) {
    %s = block.scratch : f32[8, 1024]
    %pix = block.index 64*%p + t0 : tile<64xindex>
    %half = block.index %pix floordiv 2 with %pix[0] : tile<64x2xindex>
    %v = block.load %x[%pix floordiv 196, %pix mod 196 floordiv 14, (%pix mod 14)] with %pix[0] check [0] : tile<64xf32>
    block.store %v, %y[%pix] with %pix[0] check [0]
    block.yield
  }
  block.kernel @matrices(%a: bf16[32, 32], %b: bf16[16, 32, 2]) grid() sizes() schedule<grid i1 tile 32 lanes, loop i0 tile 32 matrix, loop i2 tile 32 unroll 2 matrix, loop i0 tile 4> {
    %m = block.scratch : f32[2, 16, 32]
    %z = block.full 0.0 : tile<(2x16x32)xf32>
    %l = block.load %a[16*t0 + t1, t2] : tile<(2x16x32)xbf16>
    %r = block.load %b[t0 floordiv 2, t1, t0 mod 2] : tile<(32x32)xbf16>
    %d = block.dot %l, %r, %z ieee : tile<(2x16x32)xf32>
    block.store %d, %m[t0, t1, t2]
    block.yield
  }
  block.kernel @conditional(%x: f32[8], %goes: i1[]) grid() sizes() {
    %first = block.load %goes[] : tile<i1>
    %last = block.for %k = 0 to 50 step 1 while (%flag = %first) {
      %v = block.load %x[t0] : tile<8xf32>
      block.store %v, %x[t0]
      block.barrier
      %next = block.load %goes[] : tile<i1>
      block.yield %next
    }
    block.yield
  }
  block.kernel @nothing() grid() sizes() {
    %t = block.full true : tile<i1>
    %n = block.full nan : tile<2x[16]x4xbf16>
    block.yield
  }
}
