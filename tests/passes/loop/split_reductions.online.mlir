// PASSES: loop-split-reductions
// TOLERANCE: 1e-4
// TARGET: cuda sm_90
builtin.module {
  // A sum of powers follows the maximum part by part, and its powers are computed where they are needed.
  // CHECK: strata.func @softmax
  // CHECK-NEXT: %0 = loop.nest (i0: 3, i2: 256, reduce i2_part: 256) ins(%x[i0, 256*i2 + i2_part]) outs(max f32[256, 3, 1][i2, i0, 0]) {
  // CHECK: %m = loop.nest (i0: 3, reduce i2: 256) ins(%0[i2, i0, 0]) outs(max f32[3, 1][i0, 0]) {
  // CHECK: %3 = loop.nest (i0: 3, i2: 256, reduce i2_part: 256) ins(%x[i0, 256*i2 + i2_part], %0[i2, i0, 0]) outs(add f32[256, 3, 1][i2, i0, 0]) {
  // CHECK: arith.maximumf
  // CHECK: math.exp
  // CHECK: loop.nest (i0: 3, reduce i2: 256) ins(%3[i2, i0, 0], %0[i2, i0, 0], %m[i0, 0]) outs(add f32[3, 1][i0, 0]) {
  // CHECK-NEXT: ^bb0(%8: f32, %9: f32, %10: f32):
  // CHECK-NEXT: %11 = arith.subf %9, %10 : f32
  // CHECK-NEXT: %12 = math.exp %11 : f32
  // CHECK-NEXT: %13 = arith.mulf %8, %12 : f32
  strata.func @softmax(%x: bf16[3, 65536]) -> (bf16[3, 65536]) inputs ["x"] outputs ["y"] {
    %m = loop.nest (i0: 3, reduce i2: 65536) ins(%x[i0, i2]) outs(max f32[3, 1][i0, 0]) {
    ^bb0(%a: bf16):
      %b = arith.extf %a : bf16 to f32
      loop.yield %b
    }
    %e = loop.nest (i0: 3, i1: 65536) ins(%x[i0, i1], %m[i0, 0]) outs(f32[3, 65536][i0, i1]) {
    ^bb0(%a: bf16, %b: f32):
      %c = arith.extf %a : bf16 to f32
      %d = arith.subf %c, %b : f32
      %f = math.exp %d : f32
      loop.yield %f
    }
    %l = loop.nest (i0: 3, reduce i2: 65536) ins(%e[i0, i2]) outs(add f32[3, 1][i0, 0]) {
    ^bb0(%a: f32):
      loop.yield %a
    }
    %y = loop.nest (i0: 3, i1: 65536) ins(%e[i0, i1], %l[i0, 0]) outs(bf16[3, 65536][i0, i1]) {
    ^bb0(%a: f32, %b: f32):
      %c = arith.divf %a, %b : f32
      %d = arith.truncf %c : f32 to bf16
      loop.yield %d
    }
    strata.return %y
  }
  // A program holds what it walks twice: no part of a maximum is longer than 8192.
  // CHECK: strata.func @long
  // CHECK-NEXT: %0 = loop.nest (i0: 200, i2: 16, reduce i2_part: 4096)
  strata.func @long(%x: i8[200, 65536]) -> (i8[200]) inputs ["x"] outputs ["y"] {
    %y = loop.nest (i0: 200, reduce i2: 65536) ins(%x[i0, i2]) outs(max i8[200][i0]) {
    ^bb0(%a: i8):
      loop.yield %a
    }
    strata.return %y
  }
  // What is computed of no more bytes is not stored for the parts to read; what is of more stays.
  // CHECK: strata.func @squares
  // CHECK: %d = loop.nest (i0: 3, i1: 65536)
  // CHECK: loop.nest (i0: 3, i2: 256, reduce i2_part: 256) ins(%x[i0, 256*i2 + i2_part], %m[i0]) outs(add f32[256, 3][i2, i0]) {
  // CHECK: arith.subf
  // CHECK-NEXT: arith.mulf
  strata.func @squares(%x: bf16[3, 65536], %m: f32[3]) -> (f32[3], f32[3, 65536]) inputs ["x", "m"] outputs ["y", "d"] {
    %d = loop.nest (i0: 3, i1: 65536) ins(%x[i0, i1], %m[i0]) outs(f32[3, 65536][i0, i1]) {
    ^bb0(%a: bf16, %b: f32):
      %c = arith.extf %a : bf16 to f32
      %e = arith.subf %c, %b : f32
      loop.yield %e
    }
    %y = loop.nest (i0: 3, reduce i2: 65536) ins(%d[i0, i2]) outs(add f32[3][i0]) {
    ^bb0(%a: f32):
      %b = arith.mulf %a, %a : f32
      loop.yield %b
    }
    strata.return %y, %d
  }
  // CHECK: strata.func @sum
  // CHECK: %d = loop.nest (i0: 3, i1: 65536)
  // CHECK: loop.nest (i0: 3, i2: 256, reduce i2_part: 256) ins(%d[i0, 256*i2 + i2_part]) outs(add f32[256, 3][i2, i0]) {
  strata.func @sum(%x: f32[3, 65536], %z: f32[3, 65536]) -> (f32[3], f32[3, 65536]) inputs ["x", "z"] outputs ["y", "d"] {
    %d = loop.nest (i0: 3, i1: 65536) ins(%x[i0, i1], %z[i0, i1]) outs(f32[3, 65536][i0, i1]) {
    ^bb0(%a: f32, %b: f32):
      %c = arith.addf %a, %b : f32
      loop.yield %c
    }
    %y = loop.nest (i0: 3, reduce i2: 65536) ins(%d[i0, i2]) outs(add f32[3][i0]) {
    ^bb0(%a: f32):
      loop.yield %a
    }
    strata.return %y, %d
  }
  // Maxima that are in another order are none of ours.
  // CHECK: strata.func @own
  // CHECK: loop.nest (i0: 3, i2: 256, reduce i2_part: 256) ins(%x[i0, 256*i2 + i2_part], %m[i0]) outs(add f32[256, 3][i2, i0]) {
  // CHECK-NOT: maximumf
  strata.func @own(%x: f32[3, 65536]) -> (f32[3]) inputs ["x"] outputs ["l"] {
    %n = loop.nest (i0: 3, i2: 256, reduce i3: 256) ins(%x[i0, 256*i2 + i3]) outs(max f32[3, 256][i0, i2]) {
    ^bb0(%a: f32):
      loop.yield %a
    }
    %m = loop.nest (i0: 3, reduce i2: 256) ins(%n[i0, i2]) outs(max f32[3][i0]) {
    ^bb0(%a: f32):
      loop.yield %a
    }
    %l = loop.nest (i0: 3, reduce i2: 65536) ins(%x[i0, i2], %m[i0]) outs(add f32[3][i0]) {
    ^bb0(%a: f32, %b: f32):
      %d = arith.subf %a, %b : f32
      %f = math.exp %d : f32
      loop.yield %f
    }
    strata.return %l
  }
  // The parts of a row of odd length have a shorter one at the end, in the maximum and in the sum.
  // CHECK: strata.func @odd
  // CHECK-NEXT: %0 = loop.nest (i0: 3, i2: 256, reduce i2_part: 256) ins(%x[i0, 256*i2 + i2_part] pad 0) outs(max f32[256, 3][i2, i0]) {
  // CHECK: loop.nest (i0: 3, i2: 256, reduce i2_part: 256) ins(%x[i0, 256*i2 + i2_part] pad 0, %0[i2, i0]) outs(add f32[256, 3][i2, i0]) {
  // CHECK: arith.maximumf
  strata.func @odd(%x: f32[3, 65521]) -> (f32[3], f32[3]) inputs ["x"] outputs ["m", "l"] {
    %m = loop.nest (i0: 3, reduce i2: 65521) ins(%x[i0, i2]) outs(max f32[3][i0]) {
    ^bb0(%a: f32):
      loop.yield %a
    }
    %l = loop.nest (i0: 3, reduce i2: 65521) ins(%x[i0, i2], %m[i0]) outs(add f32[3][i0]) {
    ^bb0(%a: f32, %b: f32):
      %d = arith.subf %a, %b : f32
      %f = math.exp %d : f32
      loop.yield %f
    }
    strata.return %m, %l
  }
}
