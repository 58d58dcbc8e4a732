// PASSES: graph-delay-scales
// TARGET: cuda sm_90
// TOLERANCE: 2e-2
builtin.module {
  // One scale for each row and for each column; rows are counted otherwise, columns transposed.
  // CHECK: strata.func @rows_and_columns
  // CHECK-NEXT: %0 = graph.reshape %a {shape = [15, 40]} : f8E4M3FN[15, 40]
  // CHECK-NEXT: %1 = graph.reshape %s {shape = [15, 1]} : f32[15, 1]
  // CHECK-NEXT: %2 = graph.reshape %t {shape = [7, 1]} : f32[7, 1]
  // CHECK-NEXT: %3 = graph.transpose %2 {perm = [1, 0]} : f32[1, 7]
  // CHECK-NEXT: %4 = graph.transpose %b {perm = [1, 0]} : f8E4M3FN[40, 7]
  // CHECK-NEXT: %5 = graph.matmul %0, %4 {to = f32} : f32[15, 7]
  // CHECK-NEXT: %6 = graph.mul %5, %1 : f32[15, 7]
  // CHECK-NEXT: %y = graph.mul %6, %3 : f32[15, 7]
  strata.func @rows_and_columns(%a: f8E4M3FN[3, 5, 40], %s: f32[3, 5, 1], %b: f8E4M3FN[7, 40], %t: f32[7]) -> (f32[15, 7]) inputs ["a", "s", "b", "t"] outputs ["y"] {
    %0 = graph.cast %a {to = f32} : f32[3, 5, 40]
    %1 = graph.mul %0, %s : f32[3, 5, 40]
    %2 = graph.reshape %1 {shape = [15, 40]} : f32[15, 40]
    %3 = graph.dequantize_linear %b, %t {axis = 0, to = f32} : f32[7, 40]
    %4 = graph.transpose %3 {perm = [1, 0]} : f32[40, 7]
    %y = graph.matmul %2, %4 : f32[15, 7]
    strata.return %y
  }
  // Divided by, in halves, of a tensor; nothing that scales.
  // CHECK: strata.func @halves
  // CHECK-NEXT: %0 = graph.matmul %a, %b {to = f32} : f32[n, 7]
  // CHECK-NEXT: %1 = graph.cast %s {to = f32} : f32[]
  // CHECK-NEXT: %2 = graph.div %0, %1 : f32[n, 7]
  // CHECK-NEXT: %x = graph.cast %2 {to = bf16} : bf16[n, 7]
  // CHECK-NEXT: %y = graph.matmul %a, %b {to = f32} : f32[n, 7]
  strata.func @halves(%a: f8E5M2[n, 40], %s: bf16[], %b: f8E5M2[40, 7]) -> (bf16[n, 7], f32[n, 7]) inputs ["a", "s", "b"] outputs ["x", "y"] {
    %0 = graph.cast %a {to = bf16} : bf16[n, 40]
    %1 = graph.div %0, %s : bf16[n, 40]
    %2 = graph.cast %b {to = bf16} : bf16[40, 7]
    %x = graph.matmul %1, %2 : bf16[n, 7]
    %3 = graph.cast %a {to = f32} : f32[n, 40]
    %4 = graph.cast %b {to = f32} : f32[40, 7]
    %y = graph.matmul %3, %4 : f32[n, 7]
    strata.return %x, %y
  }
  // A scale along what is summed, one that makes a factor larger, two types, and no bytes.
  // CHECK: strata.func @others
  // CHECK-NOT: {to = f32} : f32[3, 7]
  // CHECK: strata.return
  strata.func @others(%a: f8E4M3FN[3, 40], %s: f32[40], %b: f8E4M3FN[40, 7], %u: f32[2, 1, 1], %c: f8E5M2[40, 7], %h: f16[3, 40]) -> (f32[3, 7], f32[2, 3, 7], f32[3, 7], f16[3, 7]) inputs ["a", "s", "b", "u", "c", "h"] outputs ["w", "x", "y", "z"] {
    %0 = graph.cast %a {to = f32} : f32[3, 40]
    %1 = graph.mul %0, %s : f32[3, 40]
    %2 = graph.cast %b {to = f32} : f32[40, 7]
    %w = graph.matmul %1, %2 : f32[3, 7]
    %3 = graph.mul %0, %u : f32[2, 3, 40]
    %x = graph.matmul %3, %2 : f32[2, 3, 7]
    %4 = graph.cast %c {to = f32} : f32[40, 7]
    %y = graph.matmul %0, %4 : f32[3, 7]
    %5 = graph.cast %b {to = f16} : f16[40, 7]
    %z = graph.matmul %h, %5 : f16[3, 7]
    strata.return %w, %x, %y, %z
  }
}
