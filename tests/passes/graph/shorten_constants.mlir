// PASSES: graph-fold-constants,graph-shorten-constants
// TARGET: cuda sm_90
// What was widened is bf16 again; thirds are no halves, and what a product reads stays as it is.
builtin.module {
  // CHECK: %0 = graph.constant {{.*}} : bf16[64]
  // CHECK-NEXT: %scale = graph.cast %0 {to = f32} : f32[64]
  // CHECK-NEXT: %thirds = graph.constant {{.*}} : f32[64]
  // CHECK: %column = graph.constant {{.*}} : f32[64, 1]
  strata.func @main(%x: bf16[n, 64]) -> (bf16[n, 64], f32[n, 1]) inputs ["x"] outputs ["y", "z"] {
    %wide = graph.cast %x {to = f32} : f32[n, 64]
    %w = graph.range {start = 0, step = 1, count = 64, to = bf16} : bf16[64]
    %scale = graph.cast %w {to = f32} : f32[64]
    %three = graph.constant {value = literal[3.0]} : f32[]
    %thirds = graph.div %scale, %three : f32[64]
    %scaled = graph.mul %wide, %scale : f32[n, 64]
    %moved = graph.add %scaled, %thirds : f32[n, 64]
    %y = graph.cast %moved {to = bf16} : bf16[n, 64]
    %column = graph.reshape %scale {shape = [64, 1]} : f32[64, 1]
    %z = graph.matmul %wide, %column : f32[n, 1]
    strata.return %y, %z
  }
}
