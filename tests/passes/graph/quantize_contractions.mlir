// PASSES: graph-quantize-contractions
builtin.module {
  // One scale per column; what is quantized again is multiplied once: 0.5 * [0.25, 0.5] / 2.
  // CHECK: strata.func @matmul
  // CHECK-NOT: dequantize_linear
  // CHECK: graph.transpose %w {perm = [1, 0]} : i8[4, 2]
  // CHECK: %{{.*}} = graph.matmul_integer %x, %{{.*}}, %z, %{{.*}} : i32[n, 2]
  // CHECK: %{{.*}} = graph.constant {value = literal[0.125, 0.25]} : f32[2]
  // CHECK: %{{.*}} = graph.div %{{.*}}, %u : f32[2]
  // CHECK: graph.cast %{{.*}} {to = f32} : f32[n, 2]
  // CHECK: graph.constant {value = literal[1.0]} : f32[]
  // CHECK: %q = graph.quantize_linear %{{.*}}, %{{.*}}, %v {to = ui8} : ui8[n, 2]
  strata.func @matmul(%x: ui8[n, 4]) -> (ui8[n, 2]) inputs ["x"] outputs ["q"] {
    %w = graph.constant {value = literal[1, -2, 3, -4, 5, -6, 7, -8]} : i8[2, 4]
    %s = graph.constant {value = literal[0.5]} : f32[]
    %z = graph.constant {value = literal[1]} : ui8[]
    %t = graph.constant {value = literal[0.25, 0.5]} : f32[2]
    %u = graph.constant {value = literal[2.0]} : f32[]
    %v = graph.constant {value = literal[3]} : ui8[]
    %a = graph.dequantize_linear %x, %s, %z {to = f32} : f32[n, 4]
    %b = graph.dequantize_linear %w, %t {axis = 0, to = f32} : f32[2, 4]
    %c = graph.transpose %b {perm = [1, 0]} : f32[4, 2]
    %y = graph.matmul %a, %c : f32[n, 2]
    %q = graph.quantize_linear %y, %u, %v {to = ui8} : ui8[n, 2]
    strata.return %q
  }
  // A bias at the product's scale, and a relu, belong to the sum; pads stay with the operation.
  // CHECK: strata.func @conv
  // CHECK: %{{.*}} = graph.conv_integer %x, %w, %z, %{{.*}} {pads = [1, 1]} : i32[n, 2, h]
  // CHECK: %{{.*}} = graph.reshape %b {shape = [2, 1]} : i32[2, 1]
  // CHECK: %{{.*}} = graph.add %{{.*}}, %{{.*}} : i32[n, 2, h]
  // CHECK: %{{.*}} = graph.relu %{{.*}} : i32[n, 2, h]
  // CHECK: %r = graph.dequantize_linear %{{.*}}, %{{.*}} {axis = 1, to = f32} : f32[n, 2, h]
  // CHECK-NEXT: strata.return %r
  strata.func @conv(%x: i8[n, 1, h]) -> (f32[n, 2, h]) inputs ["x"] outputs ["r"] {
    %w = graph.constant {value = literal[1, -2, 3, -4, 5, -6]} : i8[2, 1, 3]
    %b = graph.constant {value = literal[7, -9]} : i32[2]
    %s = graph.constant {value = literal[0.5]} : f32[]
    %z = graph.constant {value = literal[-3]} : i8[]
    %t = graph.constant {value = literal[0.25, 0.5]} : f32[2]
    %u = graph.constant {value = literal[0.125, 0.25]} : f32[2]
    %dx = graph.dequantize_linear %x, %s, %z {to = f32} : f32[n, 1, h]
    %dw = graph.dequantize_linear %w, %t {axis = 0, to = f32} : f32[2, 1, 3]
    %db = graph.dequantize_linear %b, %u {axis = 0, to = f32} : f32[2]
    %y = graph.conv %dx, %dw, %db {pads = [1, 1]} : f32[n, 2, h]
    %r = graph.relu %y : f32[n, 2, h]
    strata.return %r
  }
  // What only moves elements, or takes the largest, is done to integers.
  // CHECK: strata.func @moves
  // CHECK-NEXT: graph.reshape %x {shape = [n, 1, 6]} : i8[n, 1, 6]
  // CHECK-NEXT: graph.max_pool {{.*}} : i8[n, 1, 3]
  // CHECK-NEXT: graph.slice {{.*}} : i8[n, 1, 2]
  // CHECK-NEXT: graph.concat {{.*}} : i8[2*n, 1, 2]
  // CHECK-NEXT: strata.return
  strata.func @moves(%x: i8[n, 2, 3]) -> (i8[2*n, 1, 2]) inputs ["x"] outputs ["q"] {
    %s = graph.constant {value = literal[0.3]} : f32[]
    %z = graph.constant {value = literal[-3]} : i8[]
    %d = graph.dequantize_linear %x, %s, %z {to = f32} : f32[n, 2, 3]
    %a = graph.reshape %d {shape = [n, 1, 6]} : f32[n, 1, 6]
    %b = graph.max_pool %a {kernel = [2], strides = [2]} : f32[n, 1, 3]
    %c = graph.slice %b {starts = [0, 0, 1], sizes = [n, 1, 2], steps = [1, 1, 1]} : f32[n, 1, 2]
    %e = graph.concat %c, %c {axis = 0} : f32[2*n, 1, 2]
    %q = graph.quantize_linear %e, %s, %z {to = i8} : i8[2*n, 1, 2]
    strata.return %q
  }
  // Scales that differ along the sum, blocks, a float operand and 16 bits stay as they are.
  // CHECK: strata.func @stays
  // CHECK-NOT: integer
  // CHECK: strata.return
  strata.func @stays(%x: i8[n, 2], %y: f32[2, 3], %h: i16[2, 3]) -> (f32[n, 3], f32[n, 3], f32[n, 3], f32[n, 3])
      inputs ["x", "y", "h"] outputs ["a", "b", "c", "d"] {
    %s = graph.constant {value = literal[0.5]} : f32[]
    %t = graph.constant {value = literal[0.25, 0.5]} : f32[2]
    %k = graph.constant {value = literal[0.25, 0.5, 1.0]} : f32[1, 3]
    %w = graph.constant {value = literal[1, -2, 3, -4, 5, -6]} : i8[2, 3]
    %one = graph.dequantize_linear %x, %s {to = f32} : f32[n, 2]
    %several = graph.dequantize_linear %x, %t {axis = 1, to = f32} : f32[n, 2]
    %dw = graph.dequantize_linear %w, %s {to = f32} : f32[2, 3]
    %blocks = graph.dequantize_linear %w, %k {axis = 0, block_size = 2, to = f32} : f32[2, 3]
    %dh = graph.dequantize_linear %h, %s {to = f32} : f32[2, 3]
    %a = graph.matmul %several, %dw : f32[n, 3]
    %b = graph.matmul %one, %y : f32[n, 3]
    %c = graph.matmul %one, %dh : f32[n, 3]
    %d = graph.matmul %one, %blocks : f32[n, 3]
    strata.return %a, %b, %c, %d
  }
  // Floats of a byte are rounded as floats.
  // CHECK: strata.func @floats
  // CHECK: graph.quantize_linear
  // CHECK-NEXT: graph.dequantize_linear
  strata.func @floats(%x: f32[n, 2]) -> (f32[n, 2]) inputs ["x"] outputs ["y"] {
    %s = graph.constant {value = literal[0.5]} : f32[]
    %q = graph.quantize_linear %x, %s {to = f8E4M3FN, saturate = true} : f8E4M3FN[n, 2]
    %y = graph.dequantize_linear %q, %s {to = f32} : f32[n, 2]
    strata.return %y
  }
}
