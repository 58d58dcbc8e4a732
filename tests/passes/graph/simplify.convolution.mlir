// PASSES: graph-simplify
// TOLERANCE: 1e-5
builtin.module {
  // s = [2, 0.5] / sqrt([4, 1]) = [1, 0.5];  t = [1, 2] - [3, 4] * s = [-2, 0]
  // CHECK: strata.func @batch_norm
  // CHECK: graph.constant {value = literal[1.0, 2.0, 1.5, 2.0]} : f32[2, 2, 1, 1]
  // CHECK: graph.constant {value = literal[8.0, 10.0]} : f32[2]
  // CHECK: %y = graph.conv %x, %{{.*}}, %{{.*}} {strides = [1, 1], dilations = [1, 1], pads = [0, 0, 0, 0], group = 1} : f32[n, 2, h, w]
  // CHECK-NEXT: strata.return %y
  strata.func @batch_norm(%x: f32[n, 2, h, w]) -> (f32[n, 2, h, w]) inputs ["x"] outputs ["y"] {
    %k = graph.constant {value = literal[1.0, 2.0, 3.0, 4.0]} : f32[2, 2, 1, 1]
    %b = graph.constant {value = literal[10.0, 20.0]} : f32[2]
    %s = graph.constant {value = literal[2.0, 0.5]} : f32[2]
    %t = graph.constant {value = literal[1.0, 2.0]} : f32[2]
    %m = graph.constant {value = literal[3.0, 4.0]} : f32[2]
    %v = graph.constant {value = literal[4.0, 1.0]} : f32[2]
    %c = graph.conv %x, %k, %b {strides = [1, 1], dilations = [1, 1], pads = [0, 0, 0, 0], group = 1} : f32[n, 2, h, w]
    %y = graph.batch_norm %c, %s, %t, %m, %v {epsilon = 0.0} : f32[n, 2, h, w]
    strata.return %y
  }
  // The same as single operations, around a convolution of two groups without a bias.
  // CHECK: strata.func @arithmetic
  // CHECK: graph.constant {value = literal[1.0, 1.5]} : f32[2]
  // CHECK-NOT: graph.mul
  // CHECK: %y = graph.conv %x, {{.*}} : f32[n, 2, h]
  // CHECK-NEXT: strata.return %y
  strata.func @arithmetic(%x: f32[n, 4, h]) -> (f32[n, 2, h]) inputs ["x"] outputs ["y"] {
    %k = graph.constant {value = literal[1.0, 2.0, 3.0, 4.0]} : f32[2, 2, 1]
    %s = graph.constant {value = literal[3.0, 0.5]} : f32[2, 1]
    %two = graph.constant {value = literal[2.0]} : f32[]
    %t = graph.constant {value = literal[2.0, -1.0]} : f32[1, 2, 1]
    %u = graph.constant {value = literal[0.0, -2.0]} : f32[2, 1]
    %c = graph.conv %x, %k {strides = [1], dilations = [1], pads = [0, 0], group = 2} : f32[n, 2, h]
    %d = graph.mul %s, %c : f32[n, 2, h]
    %e = graph.add %d, %t : f32[n, 2, h]
    %f = graph.div %e, %two : f32[n, 2, h]
    %y = graph.sub %f, %u : f32[n, 2, h]
    strata.return %y
  }
  // CHECK: strata.func @transposed
  // CHECK-NOT: graph.mul
  // CHECK: %y = graph.conv_transpose %x, {{.*}} : f32[n, 4, 2*h]
  // CHECK-NEXT: strata.return %y
  strata.func @transposed(%x: f32[n, 2, h]) -> (f32[n, 4, 2*h]) inputs ["x"] outputs ["y"] {
    %k = graph.constant {value = literal[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]} : f32[2, 2, 2]
    %s = graph.constant {value = literal[1.0, 2.0, 3.0, 4.0]} : f32[4, 1]
    %c = graph.conv_transpose %x, %k {strides = [2], dilations = [1], pads = [0, 0], output_padding = [0], group = 2} : f32[n, 4, 2*h]
    %y = graph.mul %c, %s : f32[n, 4, 2*h]
    strata.return %y
  }
  // CHECK: strata.func @padding
  // CHECK: graph.conv %x, %k {strides = [1], dilations = [1], pads = [2, 2], group = 1} : f32[n, 1, h + 2]
  // CHECK: graph.pad %x {low = [0, 0, 1], high = [0, 0, 1], mode = "edge"}
  strata.func @padding(%x: f32[n, 1, h], %k: f32[1, 1, 3]) -> (f32[n, 1, h + 2], f32[n, 1, h]) inputs ["x", "k"] outputs ["y", "z"] {
    %p = graph.pad %x {low = [0, 0, 1], high = [0, 0, 2], mode = "constant", value = 0.0} : f32[n, 1, h + 3]
    %y = graph.conv %p, %k {strides = [1], dilations = [1], pads = [1, 0], group = 1} : f32[n, 1, h + 2]
    %q = graph.pad %x {low = [0, 0, 1], high = [0, 0, 1], mode = "edge"} : f32[n, 1, h + 2]
    %z = graph.conv %q, %k {strides = [1], dilations = [1], pads = [0, 0], group = 1} : f32[n, 1, h]
    strata.return %y, %z
  }
  // Another use, weights that are not constant, a constant per row: nothing folds.
  // CHECK: strata.func @apart
  // CHECK: graph.mul %c, %s
  // CHECK: graph.mul %d, %s
  // CHECK: graph.add %e, %t
  strata.func @apart(%x: f32[n, 2, 3], %w: f32[2, 2, 1]) -> (f32[n, 2, 3], f32[n, 2, 3], f32[n, 2, 3], f32[n, 2, 3]) inputs ["x", "w"] outputs ["a", "b", "c", "d"] {
    %k = graph.constant {value = literal[1.0, 2.0, 3.0, 4.0]} : f32[2, 2, 1]
    %s = graph.constant {value = literal[3.0, 0.5]} : f32[2, 1]
    %t = graph.constant {value = literal[3.0, 0.5, 1.0]} : f32[3]
    %c = graph.conv %x, %k {strides = [1], dilations = [1], pads = [0, 0], group = 1} : f32[n, 2, 3]
    %a = graph.mul %c, %s : f32[n, 2, 3]
    %d = graph.conv %x, %w {strides = [1], dilations = [1], pads = [0, 0], group = 1} : f32[n, 2, 3]
    %b = graph.mul %d, %s : f32[n, 2, 3]
    %e = graph.conv %c, %k {strides = [1], dilations = [1], pads = [0, 0], group = 1} : f32[n, 2, 3]
    %f = graph.add %e, %t : f32[n, 2, 3]
    strata.return %c, %a, %b, %f
  }
}
