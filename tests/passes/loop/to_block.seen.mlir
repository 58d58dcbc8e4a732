// PASSES: host-bufferize,loop-to-block
// TOLERANCE: 1e-6
// A program finds the first key that one of its rows sees, and one after the last. The loop that computes
// scores counts whole tiles between them, and takes what is left of the keys behind; loops that read scores
// again begin and end at seen keys.
builtin.module {
  // CHECK: block.kernel @seen(%q: f32[64, 8], %k: f32[50, 8], %ids: i32[64], %more: i32[50], %y: f32[64, 8]) grid(%i0: 4) sizes()
  // CHECK: block.for %seen = 0 to 48 step 4 (%{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}) {
  // CHECK: block.load %ids[16*%i0 + t0] : tile<[16]xi32>
  // CHECK: block.load %more[%seen + t0] : tile<4xi32>
  // CHECK: %{{[^,]*}}, %{{[^ ]*}} = block.map {{.*}} : tile<index>, tile<index> {
  // CHECK: block.for %i1 = max((%{{[^ ),]*}} floordiv 4), 0) to min(((%{{[^ ),]*}} + 3) floordiv 4), 12) step 1
  // CHECK: block.load %k[4*%i1 + t0, %i2] : tile<4xf32>
  // CHECK: block.load %k[t0 + 48, %{{.*}}] : tile<2xf32>
  // CHECK: block.for %i3 = max(%{{[^ ),]*}}, 0) to min(%{{[^ ),]*}}, 50) - 1 step 2
  // CHECK: block.for %i5 = max(%{{[^ ),]*}}, 0) to min(%{{[^ ),]*}}, 50) step 1
  strata.func @main(%q: f32[64, 8], %k: f32[50, 8], %ids: i32[64], %more: i32[50]) -> (f32[64, 8]) inputs ["q", "k", "ids", "more"] outputs ["y"] {
    %y = loop.call @seen(%q, %k, %ids, %more) sizes() : f32[64, 8]
    strata.return %y
  }
  loop.kernel @seen(%q: f32[64, 8], %k: f32[50, 8], %ids: i32[64], %more: i32[50]) -> (f32[64, 8]) sizes() schedule<grid i0 tile 16 lanes, loop i1 tile 4, loop i2 tile 1, loop i3 tile 2, loop i4 tile 4, loop i5 tile 1> {
    %s = loop.nest (i0: 64, i1: 50, reduce i2: 8) ins(%q[i0, i2], %k[i1, i2]) outs(add f32[64, 50][i0, i1]) {
    ^bb0(%a: f32, %b: f32):
      %c = arith.mulf %a, %b : f32
      loop.yield %c
    }
    %x = loop.nest (i0: 64, i1: 50) ins(%s[i0, i1], %ids[i0], %more[i1]) outs(f32[64, 50][i0, i1]) {
    ^bb0(%a: f32, %b: i32, %c: i32):
      %d = arith.cmpi sge, %b, %c : i32
      %e = arith.constant 0xff800000 : f32
      %f = arith.select %d, %a, %e : f32
      loop.yield %f
    }
    %m = loop.nest (i0: 64, reduce i1: 50) ins(%x[i0, i1]) outs(max f32[64][i0]) {
    ^bb0(%a: f32):
      loop.yield %a
    }
    %e = loop.nest (i0: 64, i3: 50) ins(%x[i0, i3], %m[i0]) outs(f32[64, 50][i0, i3]) {
    ^bb0(%a: f32, %b: f32):
      %c = arith.subf %a, %b : f32
      %d = math.exp %c : f32
      loop.yield %d
    }
    %l = loop.nest (i0: 64, reduce i3: 50) ins(%e[i0, i3]) outs(add f32[64][i0]) {
    ^bb0(%a: f32):
      loop.yield %a
    }
    %t = loop.nest (i0: 64, i4: 8, reduce i5: 50) ins(%e[i0, i5], %k[i5, i4]) outs(add f32[64, 8][i0, i4]) {
    ^bb0(%a: f32, %b: f32):
      %c = arith.mulf %a, %b : f32
      loop.yield %c
    }
    %y = loop.nest (i0: 64, i4: 8) ins(%t[i0, i4], %l[i0]) outs(f32[64, 8][i0, i4]) {
    ^bb0(%a: f32, %b: f32):
      %c = arith.divf %a, %b : f32
      loop.yield %c
    }
    loop.yield %y
  }
}
