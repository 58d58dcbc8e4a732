// PASSES: graph-fold-constants
builtin.module {
  // CHECK: strata.func @main
  // CHECK-NEXT: graph.constant {value = literal[1.0, 3.0, 2.0, 4.0]} : f32[2, 2]
  // CHECK-NEXT: %y = graph.matmul %x, {{.*}} : f32[n, 2]
  // CHECK-NEXT: strata.return %y
  strata.func @main(%x: f32[n, 2]) -> (f32[n, 2]) inputs ["x"] outputs ["y"] {
    %c = graph.constant {value = literal[1.0, 2.0, 3.0, 4.0]} : f32[2, 2]
    %t = graph.transpose %c {perm = [1, 0]} : f32[2, 2]
    %y = graph.matmul %x, %t : f32[n, 2]
    strata.return %y
  }
  // A composite is evaluated whole; sizes that are plain integers are constants.
  // CHECK: strata.func @composite
  // CHECK-NEXT: graph.constant {value = literal[0.0, 2.0]} : f32[2]
  // CHECK-NEXT: graph.constant {value = literal[3.0]} : f32[]
  // CHECK-NEXT: strata.return
  strata.func @composite() -> (f32[2], f32[]) inputs [] outputs ["y", "s"] {
    %c = graph.constant {value = literal[-1.0, 2.0]} : f32[2]
    %y = graph.relu %c : f32[2]
    %s = graph.sizes {values = [3], shape = [], to = i64} : i64[]
    %f = graph.cast %s {to = f32} : f32[]
    strata.return %y, %f
  }
  // What depends on a size symbol, or would grow too large, stays.
  // CHECK: strata.func @stays
  // CHECK: graph.sizes {values = [n]
  // CHECK: graph.broadcast {{.*}} {shape = [n]} : f32[n]
  // CHECK: graph.broadcast {{.*}} {shape = [1000, 1000]} : f32[1000, 1000]
  strata.func @stays(%x: f32[n]) -> (f32[], f32[n], f32[1000, 1000]) inputs ["x"] outputs ["a", "b", "c"] {
    %s = graph.sizes {values = [n], shape = [], to = i64} : i64[]
    %f = graph.cast %s {to = f32} : f32[]
    %one = graph.constant {value = literal[1.0]} : f32[]
    %b = graph.broadcast %one {shape = [n]} : f32[n]
    %c = graph.broadcast %one {shape = [1000, 1000]} : f32[1000, 1000]
    strata.return %f, %b, %c
  }
  // Nor is a large weight turned for a product, when others read it as it lies.
  // CHECK: strata.func @tied
  // CHECK: graph.constant {{.*}} : f32[1024, 512]
  // CHECK: %t = graph.transpose {{.*}} {perm = [1, 0]} : f32[512, 1024]
  // CHECK-NEXT: graph.matmul %x, %t
  strata.func @tied(%x: f32[n, 512]) -> (f32[n, 1024], f32[1024, 512]) inputs ["x"] outputs ["y", "w"] {
    %one = graph.constant {value = literal[1.0]} : f32[]
    %b = graph.broadcast %one {shape = [512, 512]} : f32[512, 512]
    %w = graph.concat %b, %b {axis = 0} : f32[1024, 512]
    %t = graph.transpose %w {perm = [1, 0]} : f32[512, 1024]
    %y = graph.matmul %x, %t : f32[n, 1024]
    strata.return %y, %w
  }
  // CHECK: strata.func @alone
  // CHECK-NOT: graph.transpose
  // CHECK: strata.return
  strata.func @alone(%x: f32[n, 512]) -> (f32[n, 1024]) inputs ["x"] outputs ["y"] {
    %one = graph.constant {value = literal[1.0]} : f32[]
    %b = graph.broadcast %one {shape = [512, 512]} : f32[512, 512]
    %w = graph.concat %b, %b {axis = 0} : f32[1024, 512]
    %t = graph.transpose %w {perm = [1, 0]} : f32[512, 1024]
    %y = graph.matmul %x, %t : f32[n, 1024]
    strata.return %y
  }
  // Constants that are as required need no check, unless sizes of a run decide.
  // CHECK: strata.func @required
  // CHECK-NOT: strata.require -3
  // CHECK: strata.require -n <= %c < n
  // CHECK-NEXT: strata.return
  strata.func @required(%x: f32[n]) -> () inputs ["x"] outputs [] {
    %c = graph.constant {value = literal[2, -3]} : i64[2]
    strata.require -3 <= %c < 3
    strata.require -n <= %c < n
    strata.return
  }
}
