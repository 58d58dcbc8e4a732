// PASSES: graph-decompose,graph-to-loop,loop-fuse,loop-outline,loop-join-rows
// TARGET: cpu avx2
// TOLERANCE: 1e-5
// Attention: the scores of a row are needed for that row only, so one kernel has them. The largest
// is found while they are made (i4); the exponentials walk the keys once more (i8), and the sum over
// the values a third time (i9). What scales the queries belongs to the rows, too; the keys do not,
// so they are scaled before. Sums are divided, not factors.
builtin.module {
  // CHECK: strata.func @main
  // CHECK: %t = loop.call @map_1(%k)
  // CHECK-NEXT: %y = loop.call @rows_4(%q, %t, %m, %v) sizes(s) : f32[3, s, 8]
  // CHECK-NEXT: strata.return %y
  // CHECK: loop.kernel @rows_4(
  // CHECK-NEXT: loop.nest (i0: 3, i1: s, i6: 8) ins(%q[i0, i1, i6])
  // CHECK: %x = loop.nest (i0: 3, i1: s, i4: s, reduce i7: 8) ins(%{{.*}}[i0, i1, i7], %{{.*}}[i0, i7, i4])
  // CHECK: %a = loop.nest (i0: 3, i1: s, i4: s) ins(%x[i0, i1, i4], %m[i4])
  // CHECK: %{{.*}} = loop.nest (i0: 3, i1: s, reduce i4: s) ins(%a[i0, i1, i4]) outs(max
  // CHECK: %{{.*}} = loop.nest (i0: 3, i1: s, i8: s) ins(%a[i0, i1, i8], %{{.*}}[i0, i1, 0])
  // CHECK: %{{.*}} = loop.nest (i0: 3, i1: s, reduce i8: s) ins(%{{.*}}[i0, i1, i8]) outs(add
  // CHECK: %y = loop.nest (i0: 3, i1: s, i2: 8, reduce i9: s) ins(%{{.*}}[i0, i1, i9], %v[i0, i9, i2])
  // CHECK: loop.nest (i0: 3, i1: s, i2: 8) ins(%y[i0, i1, i2], %{{.*}}[i0, i1, 0])
  // CHECK: arith.divf
  // CHECK-NOT: loop.nest
  strata.func @main(%q: f32[3, s, 8], %k: f32[3, s, 8], %v: f32[3, s, 8], %m: f32[s]) -> (f32[3, s, 8]) inputs ["q", "k", "v", "m"] outputs ["y"] {
    %c = graph.constant {value = literal[0.25]} : f32[1]
    %qs = graph.mul %q, %c : f32[3, s, 8]
    %ks = graph.mul %k, %c : f32[3, s, 8]
    %t = graph.transpose %ks {perm = [0, 2, 1]} : f32[3, 8, s]
    %x = graph.matmul %qs, %t : f32[3, s, s]
    %a = graph.add %x, %m : f32[3, s, s]
    %p = graph.softmax %a {axis = 2} : f32[3, s, s]
    %y = graph.matmul %p, %v : f32[3, s, 8]
    strata.return %y
  }
}
