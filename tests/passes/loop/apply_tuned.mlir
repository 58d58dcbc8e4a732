// PASSES: graph-fold-constants,graph-to-loop,loop-fuse,loop-outline,loop-apply-tuned,loop-pack-operands,loop-schedule
// TARGET: cpu avx2
// TOLERANCE: 1e-5
// TUNED: 9cee484e54b4ac67ec2d90c7f908ecfc.7d2a59f9 <grid a1 tile 24 lanes, loop a0 tile 3, loop a2 tile 1 unroll 2>
// The first product is known: its panels are as wide as its tile. It would be under other names, too.
// The second has no constant, which is another key: the rules choose.
builtin.module {
  // CHECK: strata.func @main
  // CHECK: graph.constant {value = #strata.weight<"{{.*}}.packed", "{{.*}}">} : f32[2, 5, 24]
  // CHECK: loop.kernel @contract_0{{.*}} schedule<grid i1 tile 24 lanes, loop i0 tile 3, loop i2 tile 1 unroll 2>
  // CHECK: loop.kernel @contract_1{{.*}} schedule<grid i1 tile 40 lanes, loop i0
  strata.func @main(%x: f32[6, 5], %v: f32[5, 40]) -> (f32[6, 40], f32[6, 40]) inputs ["x", "v"] outputs ["y", "z"] {
    %r = graph.range {start = -100, step = 1, count = 200, to = f32} : f32[200]
    %w = graph.reshape %r {shape = [5, 40]} : f32[5, 40]
    %y = graph.matmul %x, %w : f32[6, 40]
    %z = graph.matmul %x, %v : f32[6, 40]
    strata.return %y, %z
  }
}
