// PASSES: graph-decompose,graph-to-loop,loop-fuse,loop-narrow-factors
// TARGET: cuda sm_90
builtin.module {
  // Through a transpose, and through halves that hold all numbers of a byte.
  // CHECK: strata.func @bytes
  // CHECK-NEXT: %0 = loop.nest (i0: 3, i1: 5, reduce i2: 40) ins(%a[i0, i2], %b[i1, i2]) outs(add f32[3, 5][i0, i1]) {
  // CHECK-NEXT: ^bb0(%1: f8E4M3FN, %2: f8E4M3FN):
  // CHECK-NEXT: arith.extf %1 : f8E4M3FN to f32
  // CHECK-NEXT: arith.extf %2 : f8E4M3FN to f32
  // CHECK-NEXT: arith.mulf
  strata.func @bytes(%a: f8E4M3FN[3, 40], %b: f8E4M3FN[5, 40]) -> (bf16[3, 5]) inputs ["a", "b"] outputs ["y"] {
    %p = graph.cast %a {to = bf16} : bf16[3, 40]
    %q = graph.cast %b {to = bf16} : bf16[5, 40]
    %t = graph.transpose %q {perm = [1, 0]} : bf16[40, 5]
    %y = graph.matmul %p, %t : bf16[3, 5]
    strata.return %y
  }
  // CHECK: strata.func @halves
  // CHECK-NEXT: %y = loop.nest (i0: n, i1: 5, reduce i2: 40) ins(%a[i0, i2], %b[i2, i1]) outs(add f32[n, 5][i0, i1]) {
  // CHECK-NEXT: ^bb0(%{{.*}}: f16, %{{.*}}: f16):
  strata.func @halves(%a: f16[n, 40], %b: f16[40, 5]) -> (f32[n, 5]) inputs ["a", "b"] outputs ["y"] {
    %p = graph.cast %a {to = f32} : f32[n, 40]
    %q = graph.cast %b {to = f32} : f32[40, 5]
    %y = graph.matmul %p, %q : f32[n, 5]
    strata.return %y
  }
  // Two types, a type that no instruction multiplies, and a factor that is computed.
  // CHECK: strata.func @others
  // CHECK: %x = loop.nest (i0: 3, i1: 5, reduce i2: 40) ins(%p[i0, i2], %q[i2, i1])
  // CHECK: %y = loop.nest (i0: 3, i1: 5, reduce i2: 40) ins(%r[i0, i2], %s[i2, i1])
  // CHECK: %z = loop.nest (i0: 3, i1: 5, reduce i2: 40) ins(%e[i0, i2], %q[i2, i1])
  strata.func @others(%a: f16[3, 40], %b: bf16[40, 5], %c: f8E4M3FNUZ[3, 40], %d: f8E4M3FNUZ[40, 5])
      -> (f32[3, 5], f32[3, 5], f32[3, 5]) inputs ["a", "b", "c", "d"] outputs ["x", "y", "z"] {
    %p = graph.cast %a {to = f32} : f32[3, 40]
    %q = graph.cast %b {to = f32} : f32[40, 5]
    %x = graph.matmul %p, %q : f32[3, 5]
    %r = graph.cast %c {to = f32} : f32[3, 40]
    %s = graph.cast %d {to = f32} : f32[40, 5]
    %y = graph.matmul %r, %s : f32[3, 5]
    %e = graph.abs %p : f32[3, 40]
    %z = graph.matmul %e, %q : f32[3, 5]
    strata.return %x, %y, %z
  }
  // What lies outside of a slice is zero, and not what the whole tensor has there.
  // CHECK: strata.func @edges
  // CHECK: %y = loop.nest ({{.*}}) ins(%p[{{.*}}] pad 0.0, %q[
  // CHECK: %z = loop.nest ({{.*}}) ins(%a[{{.*}}] pad 0.0, %b[
  strata.func @edges(%a: f16[1, 8, 9], %b: f16[8, 8, 3]) -> (f32[1, 8, 5], f32[1, 8, 9])
      inputs ["a", "b"] outputs ["y", "z"] {
    %s = graph.slice %a {starts = [0, 0, 2], sizes = [1, 8, 5], steps = [1, 1, 1]} : f16[1, 8, 5]
    %p = graph.cast %s {to = f32} : f32[1, 8, 5]
    %q = graph.cast %b {to = f32} : f32[8, 8, 3]
    %y = graph.conv %p, %q {group = 1, pads = [1, 1], strides = [1]} : f32[1, 8, 5]
    %w = graph.cast %a {to = f32} : f32[1, 8, 9]
    %z = graph.conv %w, %q {group = 1, pads = [1, 1], strides = [1]} : f32[1, 8, 9]
    strata.return %y, %z
  }
  // What two products and a sum read is stored as it was rounded.
  // CHECK: strata.func @shared
  // CHECK-NEXT: %{{.*}} = loop.nest (i0: 8, i1: 16) ins(%x[i0, i1]) outs(f16[8, 16]
  // CHECK: outs(add f32[8, 8][i0, i1]) {
  // CHECK-NEXT: ^bb0(%{{.*}}: f16, %{{.*}}: f16):
  // CHECK: outs(add f32[16, 4][i0, i1]) {
  // CHECK-NEXT: ^bb0(%{{.*}}: f16, %{{.*}}: f16):
  // CHECK: loop.nest (i0: 8, i1: 16) {{.*}} outs(f32[8, 16]
  // CHECK: arith.extf
  strata.func @shared(%x: f32[8, 16], %a: f16[16, 8], %b: f16[8, 4]) -> (f32[8, 8], f32[16, 4], f32[8, 16])
      inputs ["x", "a", "b"] outputs ["y", "z", "w"] {
    %s = graph.sin %x : f32[8, 16]
    %n = graph.cast %s {to = f16} : f16[8, 16]
    %r = graph.cast %n {to = f32} : f32[8, 16]
    %p = graph.cast %a {to = f32} : f32[16, 8]
    %q = graph.cast %b {to = f32} : f32[8, 4]
    %y = graph.matmul %r, %p : f32[8, 8]
    %t = graph.transpose %r {perm = [1, 0]} : f32[16, 8]
    %z = graph.matmul %t, %q : f32[16, 4]
    %w = graph.add %r, %x : f32[8, 16]
    strata.return %y, %z, %w
  }
}
