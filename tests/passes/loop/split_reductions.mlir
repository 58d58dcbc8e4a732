// PASSES: graph-decompose,graph-to-loop,loop-fuse,loop-split-reductions
// TARGET: cuda sm_90
builtin.module {
  // The slowest axes become parallel until there are 4 * 132 programs, the last of them in part.
  // CHECK: strata.func @image
  // CHECK-NEXT: %0 = loop.nest (i0: 4, i1: 256, reduce i1_part: 2, reduce i2: 1024) ins(%x[i0, 2*i1 + i1_part, i2]) outs(max f32[4, 256][i0, i1]) {
  // CHECK: %y = loop.nest (reduce i0: 4, reduce i1: 256) ins(%0[i0, i1]) outs(max f32[][]) {
  strata.func @image(%x: f32[4, 512, 1024]) -> (f32[]) inputs ["x"] outputs ["y"] {
    %y = graph.reduce_max %x {axes = [0, 1, 2], keepdims = false} : f32[]
    strata.return %y
  }
  // A part is a power of two, and 256 elements at least; integers wrap around in any order.
  // CHECK: strata.func @row
  // CHECK-NEXT: %0 = loop.nest (i0: 148, reduce i0_part: 256) ins(%x[256*i0 + i0_part] pad 0) outs(add i32[148][i0]) {
  // CHECK: %y = loop.nest (reduce i0: 148) ins(%0[i0]) outs(add i32[][]) {
  strata.func @row(%x: i32[37675]) -> (i32[]) inputs ["x"] outputs ["y"] {
    %y = graph.reduce_sum %x {axes = [0], keepdims = false} : i32[]
    strata.return %y
  }
  // Of open sizes, all become parallel if a known one remains.
  // CHECK: strata.func @open
  // CHECK-NEXT: %0 = loop.nest (i0: n, i1: m, reduce i2: 64) ins(%x[i0, i1, i2]) outs(min f32[n, m][i0, i1]) {
  // CHECK: %y = loop.nest (reduce i0: n, reduce i1: m) ins(%0[i0, i1]) outs(min f32[][]) {
  strata.func @open(%x: f32[n, m, 64]) -> (f32[]) inputs ["x"] outputs ["y"] {
    %y = graph.reduce_min %x {axes = [0, 1, 2], keepdims = false} : f32[]
    strata.return %y
  }
  // Few long rows; columns, of which a program computes 64 side by side.
  // CHECK: strata.func @rows
  // CHECK-NEXT: loop.nest (i0: 3, i1: 256, reduce i1_part: 256) ins(%x[i0, 256*i1 + i1_part]) outs(max f32[256, 3][i1, i0]) {
  // CHECK: %y = loop.nest (i0: 3, reduce i1: 256)
  strata.func @rows(%x: f32[3, 65536]) -> (f32[3]) inputs ["x"] outputs ["y"] {
    %y = graph.reduce_max %x {axes = [1], keepdims = false} : f32[3]
    strata.return %y
  }
  // CHECK: strata.func @columns
  // CHECK-NEXT: loop.nest (i0: 4096, i1: 16, reduce i1_part: 512) ins(%x[512*i1 + i1_part, i0]) outs(max f32[16, 4096][i1, i0]) {
  // CHECK: %y = loop.nest (i0: 4096, reduce i1: 16)
  strata.func @columns(%x: f32[8192, 4096]) -> (f32[4096]) inputs ["x"] outputs ["y"] {
    %y = graph.reduce_max %x {axes = [0], keepdims = false} : f32[4096]
    strata.return %y
  }
  // Of a prime number of elements, the last part is shorter, and what is beyond the end is the least.
  // CHECK: strata.func @prime
  // CHECK-NEXT: loop.nest (i0: 3, i1: 240, reduce i1_part: 256) ins(%x[i0, 256*i1 + i1_part] pad 0) outs(max f32[240, 3][i1, i0]) {
  // CHECK: arith.constant 0xff800000 : f32
  // CHECK: %y = loop.nest (i0: 3, reduce i1: 240)
  // CHECK: loop.nest (i0: 2, i1: 256, reduce i1_part: 256) ins(%z[i0, 256*i1 + i1_part] pad 0) outs(min i8[256, 2][i1, i0]) {
  // CHECK: arith.constant 127 : i8
  // CHECK: loop.nest (i0: 2, i1: 256, reduce i1_part: 256) ins(%h[i0, 256*i1 + i1_part] pad 0) outs(max
  strata.func @prime(%x: f32[3, 61403], %z: i8[2, 65521], %h: bf16[2, 65521]) -> (f32[3], i8[2], bf16[2]) inputs ["x", "z", "h"] outputs ["y", "q", "r"] {
    %y = graph.reduce_max %x {axes = [1], keepdims = false} : f32[3]
    %q = graph.reduce_min %z {axes = [1], keepdims = false} : i8[2]
    %r = graph.reduce_max %h {axes = [1], keepdims = false} : bf16[2]
    strata.return %y, %q, %r
  }
  // A program loads its part at once. Parts by the prime divisor 1129 would leave some programs to a
  // second wave, and begin at odd addresses. A row that no program holds is long.
  // CHECK: strata.func @long
  // CHECK-NEXT: loop.nest (i0: 552, reduce i0_part: 8192) ins(%x[8192*i0 + i0_part] pad 0) outs(add f32[552][i0]) {
  // CHECK: loop.nest (i0: 5, i1: 82, reduce i1_part: 256) ins(%r[i0, 256*i1 + i1_part] pad 0)
  strata.func @long(%x: f32[4519387], %r: f32[5, 20790]) -> (f32[], f32[5]) inputs ["x", "r"] outputs ["y", "m"] {
    %y = graph.reduce_sum %x {axes = [0], keepdims = false} : f32[]
    %m = graph.reduce_max %r {axes = [1], keepdims = false} : f32[5]
    strata.return %y, %m
  }
  // Few elements, a product of a prime number of them, many or short rows, and an open size alone: one step.
  // CHECK: strata.func @others
  // CHECK-NEXT: loop.nest (reduce i0: 100, reduce i1: 100)
  // CHECK: loop.nest (reduce i0: 65537)
  // CHECK: loop.nest (i0: 5000, reduce i1: 65536)
  // CHECK: loop.nest (i0: 3, reduce i1: 4096)
  // CHECK: loop.nest (reduce i0: n)
  // CHECK-NOT: loop.nest
  strata.func @others(%a: f32[100, 100], %b: f32[65537], %c: f32[5000, 65536], %e: f32[3, 4096], %d: f32[n])
      -> (f32[], f32[], f32[5000], f32[3], f32[]) inputs ["a", "b", "c", "e", "d"] outputs ["p", "q", "r", "t", "s"] {
    %p = graph.reduce_max %a {axes = [0, 1], keepdims = false} : f32[]
    %q = graph.reduce_prod %b {axes = [0], keepdims = false} : f32[]
    %r = graph.reduce_max %c {axes = [1], keepdims = false} : f32[5000]
    %t = graph.reduce_max %e {axes = [1], keepdims = false} : f32[3]
    %s = graph.reduce_max %d {axes = [0], keepdims = false} : f32[]
    strata.return %p, %q, %r, %t, %s
  }
}
