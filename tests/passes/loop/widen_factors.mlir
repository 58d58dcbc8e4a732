// PASSES: graph-decompose,graph-to-loop,loop-fuse,loop-widen-factors
// TARGET: cpu avx2
builtin.module {
  // A sum's rounded result that is read 32 times stays f32; inputs and results keep their types.
  // CHECK: strata.func @chain
  // CHECK: %p = loop.nest (i0: n, i1: 32) {{.*}} outs(f32[n, 32][i0, i1]) {
  // CHECK: arith.truncf %{{.*}} : f32 to f16
  // CHECK-NEXT: arith.extf %{{.*}} : f16 to f32
  // CHECK-NEXT: loop.yield
  // CHECK: loop.nest (i0: n, i1: 32, reduce i2: 32) ins(%p[i0, i2], %b[i2, i1])
  // CHECK-NEXT: ^bb0(%{{.*}}: f32, %{{.*}}: f16):
  // CHECK: %y = loop.nest {{.*}} outs(f16[n, 32][i0, i1])
  strata.func @chain(%x: f16[n, 32], %a: f16[32, 32], %b: f16[32, 32]) -> (f16[n, 32])
      inputs ["x", "a", "b"] outputs ["y"] {
    %p = graph.matmul %x, %a : f16[n, 32]
    %y = graph.matmul %p, %b : f16[n, 32]
    strata.return %y
  }
  // What is written into one tensor is kept alike, also where a nest reads it in its own type.
  // CHECK: strata.func @parts
  // CHECK: loop.empty : f32[n, 24]
  // CHECK: %c = loop.nest {{.*}} outs(f32[n, 24][i0, i1 + 8]) into(
  // CHECK: ins(%c[i0, i2], %b[i2, i1])
  // CHECK: %w = loop.nest
  // CHECK-NEXT: ^bb0(%{{.*}}: f32):
  // CHECK-NEXT: arith.truncf %{{.*}} : f32 to f16
  // CHECK-NEXT: arith.bitcast %{{.*}} : f16 to i16
  strata.func @parts(%x: f16[n, 8], %z: f16[n, 16], %b: f16[24, 32]) -> (f16[n, 32], i16[n, 24])
      inputs ["x", "z", "b"] outputs ["y", "w"] {
    %c = graph.concat %x, %z {axis = 1} : f16[n, 24]
    %y = graph.matmul %c, %b : f16[n, 32]
    %w = graph.bitcast %c {to = i16} : i16[n, 24]
    strata.return %y, %w
  }
  // What else such nests read and write keeps its type: bodies hold ui16 as i16.
  // CHECK: strata.func @unsigned
  // CHECK: %p = loop.nest {{.*}} ins({{.*}}%u[i0, i1]) outs(f32[n, 32][i0, i1]) {
  // CHECK: %w = loop.nest {{.*}} outs(ui16[n, 32][i0, i1]) {
  strata.func @unsigned(%x: f16[n, 32], %u: ui16[n, 32], %b: f16[32, 32])
      -> (f16[n, 32], ui16[n, 32]) inputs ["x", "u", "b"] outputs ["y", "w"] {
    %v = graph.cast %u {to = f16} : f16[n, 32]
    %p = graph.add %x, %v : f16[n, 32]
    %y = graph.matmul %p, %b : f16[n, 32]
    %w = graph.cast %p {to = ui16} : ui16[n, 32]
    strata.return %y, %w
  }
  // Read too seldom, or returned: left alone.
  // CHECK: strata.func @others
  // CHECK: %p = loop.nest {{.*}} outs(f16[n, 32][i0, i1])
  // CHECK: %q = loop.nest {{.*}} outs(f16[32, 32][i0, i1])
  strata.func @others(%x: f16[n, 32], %a: f16[32, 32], %b: f16[32, 8]) -> (f16[n, 8], f16[32, 32], f16[n, 32])
      inputs ["x", "a", "b"] outputs ["y", "q", "z"] {
    %p = graph.matmul %x, %a : f16[n, 32]
    %y = graph.matmul %p, %b : f16[n, 8]
    %q = graph.matmul %a, %a : f16[32, 32]
    %r = graph.matmul %x, %q : f16[n, 32]
    strata.return %y, %q, %r
  }
}
