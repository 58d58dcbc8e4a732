// PASSES: graph-decompose,graph-fold-constants
builtin.module {
  // The zero point of x is subtracted with the sums of constant weights: [1, 1] @ w = [4, -6].
  // CHECK: strata.func @matmul
  // CHECK: %0 = graph.matmul %x, %w {to = i32} : i32[n, 2]
  // CHECK-NEXT: %1 = graph.constant {value = literal[4, -6]} : i32[1, 2]
  // CHECK-NEXT: %2 = graph.cast %z {to = i32} : i32[]
  // CHECK-NEXT: %3 = graph.mul %2, %1 : i32[1, 2]
  // CHECK-NEXT: %y = graph.sub %0, %3 : i32[n, 2]
  strata.func @matmul(%x: ui8[n, 2], %z: ui8[]) -> (i32[n, 2]) inputs ["x", "z"] outputs ["y"] {
    %w = graph.constant {value = literal[1, -2, 3, -4]} : i8[2, 2]
    %0 = graph.constant {value = literal[0]} : i8[]
    %y = graph.matmul_integer %x, %w, %z, %0 : i32[n, 2]
    strata.return %y
  }
  // Both operands are known only at run time: they become i16, less their zero points.
  // CHECK: strata.func @activations
  // CHECK: graph.sub %{{.*}} : i16[2, n]
  // CHECK: graph.sub %{{.*}} : i16[n, 2]
  // CHECK-NEXT: %y = graph.matmul %{{.*}} {to = i32} : i32[n, n]
  strata.func @activations(%x: ui8[n, 2], %w: ui8[2, n], %z: ui8[]) -> (i32[n, n])
      inputs ["x", "w", "z"] outputs ["y"] {
    %one = graph.constant {value = literal[1]} : ui8[]
    %y = graph.matmul_integer %x, %w, %z, %one : i32[n, n]
    strata.return %y
  }
  // The zero point surrounds x, whether it is known now or not; w less its own is known in any case.
  // CHECK: strata.func @conv
  // CHECK: graph.pad %x {low = [0, 0, 1], high = [0, 0, 2], mode = "constant", value = 5.0} : ui8[n, 1, h + 3]
  // CHECK: graph.conv %{{.*}} {group = 1, to = i32} : i32[n, 2, h + 1]
  // CHECK-NEXT: graph.constant {value = literal[0, 30]} : i32[2, 1]
  // CHECK: graph.where %{{.*}}, %{{.*}}, %z : ui8[n, 1, h + 3]
  // CHECK-NEXT: graph.conv %{{.*}} {group = 1, to = i32} : i32[n, 2, h + 1]
  strata.func @conv(%x: ui8[n, 1, h], %z: ui8[]) -> (i32[n, 2, h + 1], i32[n, 2, h + 1])
      inputs ["x", "z"] outputs ["a", "b"] {
    %w = graph.constant {value = literal[1, 2, 3, 4, 5, 6]} : ui8[2, 1, 3]
    %zw = graph.constant {value = literal[2, 3]} : ui8[2]
    %five = graph.constant {value = literal[5]} : ui8[]
    %a = graph.conv_integer %x, %w, %five, %zw {pads = [1, 2], group = 1} : i32[n, 2, h + 1]
    %b = graph.conv_integer %x, %w, %z, %zw {pads = [1, 2], group = 1} : i32[n, 2, h + 1]
    strata.return %a, %b
  }
}
