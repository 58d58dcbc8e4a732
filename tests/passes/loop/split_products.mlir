// PASSES: graph-decompose,graph-to-loop,loop-fuse,loop-split-products
// TARGET: cuda sm_90
// TOLERANCE: 2e-3
builtin.module {
  // A vector and a matrix that lies row by row: parts of the sum until there are programs enough.
  // CHECK: strata.func @vector
  // CHECK-NEXT: %0 = loop.nest (i1: 640, i2: 8, reduce i2_part: 256) ins(%a[0, 256*i2 + i2_part], %b[256*i2 + i2_part, i1]) outs(add f32[8, 1, 640][i2, 0, i1]) {
  // CHECK: %y = loop.nest (i1: 640, reduce i2: 8) ins(%0[i2, 0, i1]) outs(add f32[1, 640][0, i1]) {
  strata.func @vector(%a: f32[1, 2048], %b: f32[2048, 640]) -> (f32[1, 640]) inputs ["a", "b"] outputs ["y"] {
    %y = graph.matmul %a, %b : f32[1, 640]
    strata.return %y
  }
  // Few rows, of halves: the parts are sums in f32, and are rounded once, when they are added.
  // CHECK: strata.func @rows
  // CHECK-NEXT: %0 = loop.nest (i0: 16, i1: 64, i2: {{[0-9]+}}, reduce i2_part: {{[0-9]+}}) {{.*}} outs(add f32[{{[0-9]+}}, 16, 64][i2, i0, i1]) {
  // CHECK: %6 = loop.nest (i0: 16, i1: 64, reduce i2: {{[0-9]+}}) ins(%0[i2, i0, i1]) outs(add f32[16, 64][i0, i1]) {
  // CHECK: arith.truncf
  strata.func @rows(%a: f16[16, 8192], %b: f16[8192, 64]) -> (f16[16, 64]) inputs ["a", "b"] outputs ["y"] {
    %y = graph.matmul %a, %b : f16[16, 64]
    strata.return %y
  }
  // Programs enough, short sums, a batch, open sizes, a matrix that lies column by column.
  // CHECK: strata.func @others
  // CHECK-NEXT: loop.nest (i0: 512, i1: 512, reduce i2: 512)
  // CHECK: loop.nest (i0: 12, i1: 16, i2: 16, reduce i3: 2048)
  // CHECK: loop.nest (i0: n, i1: 128, reduce i2: 2048)
  // CHECK: loop.nest (i1: 64, reduce i2: 2048)
  // CHECK: loop.nest (i1: 640, reduce i2: k)
  // CHECK-NOT: _part
  strata.func @others(%a: f16[512, 512], %b: f16[n, 2048], %c: f16[2048, 128], %d: f16[64, 2048], %e: f16[12, 16, 2048], %f: f16[12, 2048, 16], %g: f16[1, 2048], %h: f16[1, k], %i: f16[k, 640])
      -> (f16[512, 512], f16[12, 16, 16], f16[n, 128], f16[1, 64], f16[1, 640]) inputs ["a", "b", "c", "d", "e", "f", "g", "h", "i"] outputs ["p", "q", "r", "s", "u"] {
    %p = graph.matmul %a, %a : f16[512, 512]
    %q = graph.matmul %e, %f : f16[12, 16, 16]
    %r = graph.matmul %b, %c : f16[n, 128]
    %t = graph.transpose %d {perm = [1, 0]} : f16[2048, 64]
    %s = graph.matmul %g, %t : f16[1, 64]
    %u = graph.matmul %h, %i : f16[1, 640]
    strata.return %p, %q, %r, %s, %u
  }
}
