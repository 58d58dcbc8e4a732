// PASSES: graph-sign-products
// TARGET: cuda sm_90
builtin.module {
  // Unsigned bytes less 128 are signed ones. Constants are changed, and summed, now: 1 - 128, 5 - 128.
  // CHECK: strata.func @matmul
  // CHECK: %0 = graph.constant {value = literal[128]} : ui8[]
  // CHECK-NEXT: %1 = graph.xor %x, %0 : ui8[n, 2]
  // CHECK-NEXT: %2 = graph.bitcast %1 {to = i8} : i8[n, 2]
  // CHECK: %5 = graph.bitcast %{{.*}} {to = i8} : i8[]
  // CHECK-NEXT: %6 = graph.constant {value = literal[-127, -126, -125, -124]} : i8[2, 2]
  // CHECK-NEXT: %7 = graph.constant {value = literal[-123]} : i8[]
  // CHECK-NEXT: %8 = graph.matmul %2, %6 {to = i32} : i32[n, 2]
  // CHECK-NEXT: %9 = graph.cast %5 {to = i32} : i32[]
  // CHECK-NEXT: %10 = graph.constant {value = literal[-252, -250]} : i32[1, 2]
  // CHECK-NEXT: %11 = graph.mul %9, %10 : i32[1, 2]
  // CHECK-NEXT: %12 = graph.sub %8, %11 : i32[n, 2]
  // CHECK: graph.reduce_sum %16 {axes = [1], keepdims = true} : i32[n, 1]
  // CHECK-NEXT: %18 = graph.mul %13, %17 : i32[n, 1]
  // CHECK-NEXT: %r = graph.sub %12, %18 : i32[n, 2]
  strata.func @matmul(%x: ui8[n, 2], %y: ui8[]) -> (i32[n, 2]) inputs ["x", "y"] outputs ["y"] {
    %w = graph.constant {value = literal[1, 2, 3, 4]} : ui8[2, 2]
    %z = graph.constant {value = literal[5]} : ui8[]
    %r = graph.matmul_integer %x, %w, %y, %z : i32[n, 2]
    strata.return %r
  }
  // Without zero points there is nothing to subtract; 128 becomes none.
  // CHECK: strata.func @symmetric
  // CHECK: graph.matmul %x, %w {to = i32}
  // CHECK-NEXT: strata.return
  strata.func @symmetric(%x: i8[n, 2], %w: i8[2, n]) -> (i32[n, n]) inputs ["x", "w"]
      outputs ["y"] {
    %z = graph.constant {value = literal[0]} : i8[]
    %r = graph.matmul_integer %x, %w, %z, %z : i32[n, n]
    strata.return %r
  }
  // CHECK: strata.func @middle
  // CHECK-NOT: graph.reduce_sum
  // CHECK: strata.return
  strata.func @middle(%x: ui8[n, 2], %w: ui8[2, n]) -> (i32[n, n]) inputs ["x", "w"]
      outputs ["y"] {
    %z = graph.constant {value = literal[128]} : ui8[]
    %r = graph.matmul_integer %x, %w, %z, %z : i32[n, n]
    strata.return %r
  }
  // The zero point surrounds x, which is signed then; x less its zero point is summed over channels,
  // then over windows.
  // CHECK: strata.func @conv
  // CHECK: graph.pad %x {low = [0, 0, 1], high = [0, 0, 2], mode = "constant", value = 5.0} : ui8[n, 4, h + 3]
  // CHECK: graph.xor %{{.*}} : ui8[n, 4, h + 3]
  // CHECK-NEXT: graph.bitcast %{{.*}} {to = i8} : i8[n, 4, h + 3]
  // CHECK-NEXT: graph.conv %{{.*}} {group = 2, to = i32} : i32[n, 6, h + 1]
  // CHECK: graph.reduce_sum %{{.*}} {axes = [2], keepdims = true} : i32[n, 2, 1, h]
  // CHECK: graph.conv %{{.*}} {pads = [1, 2], group = 2, to = i32} : i32[n, 6, h + 1]
  strata.func @conv(%x: ui8[n, 4, h], %w: i8[6, 2, 3], %z: i8[6]) -> (i32[n, 6, h + 1])
      inputs ["x", "w", "z"] outputs ["y"] {
    %five = graph.constant {value = literal[5]} : ui8[]
    %r = graph.conv_integer %x, %w, %five, %z {pads = [1, 2], group = 2} : i32[n, 6, h + 1]
    strata.return %r
  }
  // One column, one channel of each group, more bits: no dot.
  // CHECK: strata.func @others
  // CHECK: graph.matmul_integer
  // CHECK-NEXT: graph.conv_integer
  // CHECK-NEXT: graph.matmul_integer
  strata.func @others(%x: ui8[n, 2], %c: ui8[2, 1], %i: ui8[1, 2, n], %w: i8[2, 1, 1], %l: i16[n, 3])
      -> (i32[n, 1], i32[1, 2, n], i32[n, 2]) inputs ["x", "c", "i", "w", "l"]
      outputs ["a", "b", "c"] {
    %y = graph.constant {value = literal[5]} : ui8[]
    %z = graph.constant {value = literal[5]} : i8[]
    %v = graph.constant {value = literal[5]} : i16[]
    %m = graph.constant {value = literal[1, 2, 3, 4, 5, 6]} : i16[3, 2]
    %a = graph.matmul_integer %x, %c, %y, %y : i32[n, 1]
    %b = graph.conv_integer %i, %w, %y, %z {group = 2} : i32[1, 2, n]
    %d = graph.matmul_integer %l, %m, %v, %v : i32[n, 2]
    strata.return %a, %b, %d
  }
}
