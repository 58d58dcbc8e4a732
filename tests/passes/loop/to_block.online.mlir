// PASSES: host-bufferize,loop-to-block
// TOLERANCE: 1e-5
// Sums that are online on a maximum: one loop carries all three. The maximum starts at the lowest
// number, and is that of the unscaled scores, scaled. The factor of the rows is loaded before. Rows
// reach to the diagonal: the first loop compares nothing, the second one walks the rest.
builtin.module {
  // CHECK: block.kernel @online({{.*}}) grid(%i0: 3)
  // CHECK-NEXT: block.load %q[16*%i0 + t0, t1] check [0] pad 0 : tile<16x16xf32>
  // CHECK-NEXT: block.full -3.4028234663852886e+38 : tile<16xf32>
  // CHECK-NEXT: block.full 0.0 : tile<16xf32>
  // CHECK-NEXT: block.full 0.0 : tile<16x16xf32>
  // CHECK-NEXT: block.for %i1 = 0 to 16*%i0 step 16 (
  // CHECK: block.dot
  // CHECK-NEXT: block.reduce max {{.*}} dim 1 : tile<16xf32>
  // CHECK: arith.maximumf
  // CHECK: math.exp2
  // CHECK-NOT: arith.cmpi
  // CHECK: block.dot
  // CHECK: block.yield
  // CHECK: block.for %i1_1 = 16*%i0 to min(16*%i0 + 16, 40) step 16
  // CHECK: arith.cmpi
  // CHECK: block.reduce max
  // CHECK: arith.divf
  // CHECK: block.store
  strata.func @main(%q: f32[40, 16], %k: f32[40, 16], %v: f32[40, 16]) -> (f32[40, 16]) inputs ["q", "k", "v"] outputs ["y"] {
    %y = loop.call @online(%q, %k, %v) sizes() : f32[40, 16]
    strata.return %y
  }
  loop.kernel @online(%q: f32[40, 16], %k: f32[40, 16], %v: f32[40, 16]) -> (f32[40, 16]) sizes() schedule<grid i0 tile 16, whole i2 tile 16, whole i3 tile 16, loop i1 tile 16 | online = 1, dot = 1, tails = mask> {
    %s = loop.nest (i0: 40, i1: 40, reduce i2: 16) ins(%q[i0, i2], %k[i1, i2]) outs(add f32[40, 40][i0, i1]) {
    ^bb0(%a: f32, %b: f32):
      %c = arith.mulf %a, %b : f32
      loop.yield %c
    }
    %x = loop.nest (i0: 40, i1: 40) ins(%s[i0, i1]) outs(f32[40, 40][i0, i1]) {
    ^bb0(%a: f32):
      %c = arith.constant 0.25 : f32
      %b = arith.mulf %a, %c : f32
      %column = loop.index i1 : index
      %row = loop.index i0 : index
      %kept = arith.cmpi sle, %column, %row : index
      %none = arith.constant 0xFF800000 : f32
      %r = arith.select %kept, %b, %none : f32
      loop.yield %r
    }
    %m = loop.nest (i0: 40, reduce i1: 40) ins(%x[i0, i1]) outs(max f32[40][i0]) {
    ^bb0(%a: f32):
      loop.yield %a
    }
    %p = loop.nest (i0: 40, i1: 40) ins(%x[i0, i1], %m[i0]) outs(f32[40, 40][i0, i1]) {
    ^bb0(%a: f32, %b: f32):
      %c = arith.subf %a, %b : f32
      %r = math.exp2 %c : f32
      loop.yield %r
    }
    %l = loop.nest (i0: 40, reduce i1: 40) ins(%p[i0, i1]) outs(add f32[40][i0]) {
    ^bb0(%a: f32):
      loop.yield %a
    }
    %t = loop.nest (i0: 40, i3: 16, reduce i1: 40) ins(%p[i0, i1], %v[i1, i3]) outs(add f32[40, 16][i0, i3]) {
    ^bb0(%a: f32, %b: f32):
      %c = arith.mulf %a, %b : f32
      loop.yield %c
    }
    %y = loop.nest (i0: 40, i3: 16) ins(%t[i0, i3], %l[i0]) outs(f32[40, 16][i0, i3]) {
    ^bb0(%a: f32, %b: f32):
      %c = arith.divf %a, %b : f32
      loop.yield %c
    }
    loop.yield %y
  }
}
