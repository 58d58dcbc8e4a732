// PASSES: graph-cse
builtin.module {
  // CHECK: strata.func @main
  // CHECK-NEXT: %c = graph.constant {value = literal[1.0, -0.0]} : f32[2]
  // CHECK-NEXT: %a = graph.add %x, %c : f32[n, 2]
  // CHECK-NEXT: %u = graph.exp %a : f32[n, 2]
  // CHECK-NEXT: %y = graph.mul %u, %u : f32[n, 2]
  // CHECK-NEXT: strata.return %y
  strata.func @main(%x: f32[n, 2]) -> (f32[n, 2]) inputs ["x"] outputs ["y"] {
    %c = graph.constant {value = literal[1.0, -0.0]} : f32[2]
    %d = graph.constant {value = literal[1.0, -0.0]} : f32[2]
    %a = graph.add %x, %c : f32[n, 2]
    %b = graph.add %x, %d : f32[n, 2]
    %u = graph.exp %a : f32[n, 2]
    %v = graph.exp %b : f32[n, 2]
    %y = graph.mul %u, %v : f32[n, 2]
    strata.return %y
  }
  // Zeros of different sign, types and attributes that differ keep operations apart.
  // CHECK: strata.func @apart
  // CHECK: literal[0.0]} : f32[1]
  // CHECK-NEXT: literal[-0.0]} : f32[1]
  // CHECK-NEXT: literal[0.0]} : f32[]
  // CHECK: value = 0.0} : f32[m + 1]
  // CHECK: value = -0.0} : f32[m + 1]
  strata.func @apart(%x: f32[m]) -> (f32[1], f32[1], f32[], f32[m + 1], f32[m + 1]) inputs ["x"] outputs ["a", "b", "c", "d", "e"] {
    %a = graph.constant {value = literal[0.0]} : f32[1]
    %b = graph.constant {value = literal[-0.0]} : f32[1]
    %c = graph.constant {value = literal[0.0]} : f32[]
    %d = graph.pad %x {low = [0], high = [1], mode = "constant", value = 0.0} : f32[m + 1]
    %e = graph.pad %x {low = [0], high = [1], mode = "constant", value = -0.0} : f32[m + 1]
    strata.return %a, %b, %c, %d, %e
  }
}
