// PASSES: graph-sink-constants
// What a loop gets as a constant, and hands on to a branch, moves to where it is read.
builtin.module {
  // CHECK: %y = strata.loop @step at k trip 3 carried(%z) with(%c) : f32[2]
  strata.func @main(%x: f32[2], %c: i1[]) -> (f32[2]) inputs ["x", "c"] outputs ["y"] {
    %z = graph.exp %x : f32[2]
    %w = graph.constant {value = literal[1.0, 2.0]} : f32[2]
    %y = strata.loop @step at k trip 3 carried(%z) with(%w, %c) : f32[2]
    strata.return %y
  }
  // CHECK: strata.func @step(%h: f32[2], %c: i1[]) -> (f32[2]) inputs ["h", "c"]
  // CHECK-NEXT: %w = graph.constant {value = literal[1.0, 2.0]} : f32[2]
  // CHECK-NEXT: %a = graph.mul %h, %w : f32[2]
  // CHECK-NEXT: %y = strata.if %c then @more else @same (%a) : f32[2]
  strata.func @step(%h: f32[2], %w: f32[2], %c: i1[]) -> (f32[2])
      inputs ["h", "w", "c"] outputs ["y"] {
    %a = graph.mul %h, %w : f32[2]
    %y = strata.if %c then @more else @same (%a, %w) : f32[2]
    strata.return %y
  }
  // CHECK: strata.func @more(%a: f32[2]) -> (f32[2]) inputs ["a"]
  // CHECK-NEXT: %w = graph.constant {value = literal[1.0, 2.0]} : f32[2]
  // CHECK-NEXT: %y = graph.add %a, %w : f32[2]
  strata.func @more(%a: f32[2], %w: f32[2]) -> (f32[2]) inputs ["a", "w"] outputs ["y"] {
    %y = graph.add %a, %w : f32[2]
    strata.return %y
  }
  // CHECK: strata.func @same(%a: f32[2]) -> (f32[2]) inputs ["a"]
  strata.func @same(%a: f32[2], %w: f32[2]) -> (f32[2]) inputs ["a", "w"] outputs ["y"] {
    %y = graph.neg %a : f32[2]
    strata.return %y
  }
}
