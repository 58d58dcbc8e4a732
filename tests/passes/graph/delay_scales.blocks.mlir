// PASSES: graph-delay-scales
// TARGET: cpu avx2
builtin.module {
  // Scales of blocks of four, and a zero point of each; the codes stay as they lie.
  // CHECK: strata.func @blocks
  // CHECK-NEXT: %0 = graph.cast %w {to = f32} : f32[5, 12]
  // CHECK-NEXT: %1 = graph.broadcast %z {shape = [5, 3, 4]} : f32[5, 3, 4]
  // CHECK-NEXT: %2 = graph.reshape %1 {shape = [5, 12]} : f32[5, 12]
  // CHECK-NEXT: %3 = graph.sub %0, %2 : f32[5, 12]
  // CHECK-NEXT: %4 = graph.broadcast %s {shape = [5, 3, 4]} : f32[5, 3, 4]
  // CHECK-NEXT: %5 = graph.reshape %4 {shape = [5, 12]} : f32[5, 12]
  // CHECK-NEXT: %6 = graph.mul %3, %5 : f32[5, 12]
  // CHECK-NEXT: %7 = graph.transpose %6 {perm = [1, 0]} : f32[12, 5]
  // CHECK-NEXT: %y = graph.matmul %x, %7 : f32[1, 5]
  strata.func @blocks(%x: f32[1, 12], %w: ui8[5, 12], %s: f32[5, 3, 1], %z: f32[5, 3, 1]) -> (f32[1, 5]) inputs ["x", "w", "s", "z"] outputs ["y"] {
    %0 = graph.cast %w {to = f32} : f32[5, 12]
    %1 = graph.reshape %0 {shape = [5, 3, 4]} : f32[5, 3, 4]
    %2 = graph.sub %1, %z : f32[5, 3, 4]
    %3 = graph.mul %2, %s : f32[5, 3, 4]
    %4 = graph.reshape %3 {shape = [5, 12]} : f32[5, 12]
    %5 = graph.transpose %4 {perm = [1, 0]} : f32[12, 5]
    %y = graph.matmul %x, %5 : f32[1, 5]
    strata.return %y
  }
  // Many rows: the floats are worth their memory.
  // CHECK: strata.func @many_rows
  // CHECK: graph.reshape %1 {shape = [5, 12]} : f32[5, 12]
  strata.func @many_rows(%x: f32[n, 12], %w: i8[5, 3, 4], %s: f32[5, 3, 1]) -> (f32[n, 5]) inputs ["x", "w", "s"] outputs ["y"] {
    %0 = graph.cast %w {to = f32} : f32[5, 3, 4]
    %1 = graph.mul %0, %s : f32[5, 3, 4]
    %2 = graph.reshape %1 {shape = [5, 12]} : f32[5, 12]
    %3 = graph.transpose %2 {perm = [1, 0]} : f32[12, 5]
    %y = graph.matmul %x, %3 : f32[n, 5]
    strata.return %y
  }
  // Floats in blocks are no codes.
  // CHECK: strata.func @floats
  // CHECK: graph.reshape %1 {shape = [5, 12]} : f32[5, 12]
  strata.func @floats(%x: f32[1, 12], %w: f32[5, 12], %s: f32[5, 3, 1]) -> (f32[1, 5]) inputs ["x", "w", "s"] outputs ["y"] {
    %0 = graph.reshape %w {shape = [5, 3, 4]} : f32[5, 3, 4]
    %1 = graph.mul %0, %s : f32[5, 3, 4]
    %2 = graph.reshape %1 {shape = [5, 12]} : f32[5, 12]
    %3 = graph.transpose %2 {perm = [1, 0]} : f32[12, 5]
    %y = graph.matmul %x, %3 : f32[1, 5]
    strata.return %y
  }
}
