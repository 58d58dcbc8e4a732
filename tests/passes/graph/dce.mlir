// PASSES: graph-dce
builtin.module {
  // CHECK: strata.func @main
  // CHECK-NEXT: %y = graph.exp %x : f32[n]
  // CHECK-NEXT: strata.return %y
  strata.func @main(%x: f32[n]) -> (f32[n]) inputs ["x"] outputs ["y"] {
    %c = graph.constant {value = literal[1.0]} : f32[]
    %a = graph.add %x, %c : f32[n]
    %b = graph.exp %a : f32[n]
    %y = graph.exp %x : f32[n]
    strata.return %y
  }
}
