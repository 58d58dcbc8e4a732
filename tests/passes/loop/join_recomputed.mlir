// PASSES: graph-decompose,graph-simplify,graph-to-loop,loop-simplify-nests,loop-fuse,loop-narrow-factors,loop-outline,loop-join-recomputed
// TARGET: cuda sm_90
// TOLERANCE: 1e-3
// The gradients of attention: products that read the scores compute them again, in a loop over keys
// for a block of queries, and in one over queries for a block of keys (both i3). Axes along which an
// argument is read in the same way have one name. What is done with finished sums comes last.
builtin.module {
  // CHECK: strata.func @main
  // CHECK-NEXT: %t = loop.call @reduce_1(
  // CHECK-NEXT: %x = loop.call @again_3(%q, %k, %l, %g, %v, %t)
  // CHECK-NEXT: %y, %z = loop.call @again_5(%q, %k, %l, %g, %v, %t)
  // CHECK-NEXT: strata.return %x, %y, %z
  // A matrix that is a result as well is written anyway, so its readers load it.
  // CHECK: strata.func @kept
  // CHECK-NEXT: loop.call @contract
  // CHECK-NEXT: loop.call @contract
  // CHECK: loop.kernel @again_3
  // CHECK-NEXT: loop.nest (i0: 3, i1: 21, i3: 35, reduce i5: 16) ins(%q[i0, i1, i5], %k[i0, i3, i5])
  // CHECK: math.exp
  // CHECK: loop.nest (i0: 3, i1: 21, i3: 35, reduce i4: 24) ins(%g[i0, i1, i4], %v[i0, i3, i4])
  // CHECK: loop.nest (i0: 3, i1: 21, i5: 16, reduce i3: 35) ins({{.*}}[i0, i1, i3], %k[i0, i3, i5])
  // CHECK: loop.kernel @again_5
  // CHECK-NEXT: loop.nest (i0: 3, i3: 21, i1: 35, reduce i4: 16) ins(%q[i0, i3, i4], %k[i0, i1, i4])
  // CHECK: loop.nest (i0: 3, i3: 21, i1: 35, reduce i6: 24) ins(%g[i0, i3, i6], %v[i0, i1, i6])
  // CHECK: loop.nest (i0: 3, i1: 35, i4: 16, reduce i3: 21) ins({{.*}}[i0, i3, i1], %q[i0, i3, i4])
  // CHECK: loop.nest (i0: 3, i1: 35, i6: 24, reduce i3: 21) ins(%pn[i0, i3, i1], %g[i0, i3, i6])
  // CHECK: %y = loop.nest (i0: 3, i1: 35, i4: 16)
  // CHECK: %z = loop.nest (i0: 3, i1: 35, i6: 24)
  strata.func @main(%q: f16[3, 21, 16], %k: f16[3, 35, 16], %v: f16[3, 35, 24], %g: f16[3, 21, 24], %o: f16[3, 21, 24], %l: f32[3, 21, 1]) -> (f16[3, 21, 16], f16[3, 35, 16], f16[3, 35, 24]) inputs ["q", "k", "v", "g", "o", "l"] outputs ["x", "y", "z"] {
    %c = graph.constant {value = literal[0.25]} : f32[]
    %wq = graph.cast %q {to = f32} : f32[3, 21, 16]
    %wk = graph.cast %k {to = f32} : f32[3, 35, 16]
    %wv = graph.cast %v {to = f32} : f32[3, 35, 24]
    %wg = graph.cast %g {to = f32} : f32[3, 21, 24]
    %wo = graph.cast %o {to = f32} : f32[3, 21, 24]
    %kt = graph.transpose %wk {perm = [0, 2, 1]} : f32[3, 16, 35]
    %vt = graph.transpose %wv {perm = [0, 2, 1]} : f32[3, 24, 35]
    %s = graph.matmul %wq, %kt : f32[3, 21, 35]
    %ss = graph.mul %s, %c : f32[3, 21, 35]
    %sl = graph.sub %ss, %l : f32[3, 21, 35]
    %p = graph.exp %sl : f32[3, 21, 35]
    %pn = graph.cast %p {to = f16} : f16[3, 21, 35]
    %pw = graph.cast %pn {to = f32} : f32[3, 21, 35]
    %go = graph.mul %wg, %wo : f32[3, 21, 24]
    %t = graph.reduce_sum %go {axes = [2], keepdims = true} : f32[3, 21, 1]
    %i = graph.matmul %wg, %vt : f32[3, 21, 35]
    %it = graph.sub %i, %t : f32[3, 21, 35]
    %u = graph.mul %pw, %it : f32[3, 21, 35]
    %un = graph.cast %u {to = f16} : f16[3, 21, 35]
    %uw = graph.cast %un {to = f32} : f32[3, 21, 35]
    %x0 = graph.matmul %uw, %wk : f32[3, 21, 16]
    %x1 = graph.mul %x0, %c : f32[3, 21, 16]
    %ut = graph.transpose %uw {perm = [0, 2, 1]} : f32[3, 35, 21]
    %y0 = graph.matmul %ut, %wq : f32[3, 35, 16]
    %y1 = graph.mul %y0, %c : f32[3, 35, 16]
    %pt = graph.transpose %pw {perm = [0, 2, 1]} : f32[3, 35, 21]
    %z0 = graph.matmul %pt, %wg : f32[3, 35, 24]
    %x = graph.cast %x1 {to = f16} : f16[3, 21, 16]
    %y = graph.cast %y1 {to = f16} : f16[3, 35, 16]
    %z = graph.cast %z0 {to = f16} : f16[3, 35, 24]
    strata.return %x, %y, %z
  }
  strata.func @kept(%q: f16[3, 21, 16], %k: f16[3, 16, 35], %v: f16[3, 35, 24]) -> (f16[3, 21, 35], f16[3, 21, 24]) inputs ["q", "k", "v"] outputs ["s", "x"] {
    %s = graph.matmul %q, %k : f16[3, 21, 35]
    %x = graph.matmul %s, %v : f16[3, 21, 24]
    strata.return %s, %x
  }
}
