// PASSES: graph-share-layers{least=4}
// Three layers are equal but for their weights; the last product is another one.
builtin.module {
  // CHECK: strata.func @main(%x: f32[n, 2]) -> (f32[n, 3]) inputs ["x"] outputs ["y"] {
  // CHECK-NEXT: %b0 = strata.call @layer_0 number 0 of ["n4", "n5", "n3", "n2"] (%x) : f32[n, 2]
  // CHECK-NEXT: %b1 = strata.call @layer_0 number 1 of ["n7", "n8", "n6", "n2"] (%b0) : f32[n, 2]
  // CHECK-NEXT: %b2 = strata.call @layer_0 number 2 of ["n10", "n11", "n9", "n2"] (%b1) : f32[n, 2]
  strata.func @main(%x: f32[n, 2]) -> (f32[n, 3]) inputs ["x"] outputs ["y"] {
    %h = graph.constant {value = literal[0.5]} : f32[]
    %w0 = graph.constant {value = literal[1.0, 2.0, 3.0, 4.0]} : f32[2, 2]
    %m0 = graph.matmul %x, %w0 : f32[n, 2]
    %b0 = graph.mul %m0, %h : f32[n, 2]
    %w1 = graph.constant {value = literal[5.0, 6.0, 7.0, 8.0]} : f32[2, 2]
    %m1 = graph.matmul %b0, %w1 : f32[n, 2]
    %b1 = graph.mul %m1, %h : f32[n, 2]
    %w2 = graph.constant {value = literal[-1.0, 6.0, 7.0, 2.0]} : f32[2, 2]
    %m2 = graph.matmul %b1, %w2 : f32[n, 2]
    %b2 = graph.mul %m2, %h : f32[n, 2]
    // CHECK: %y = graph.matmul %b2, %last : f32[n, 3]
    %last = graph.constant {value = literal[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]} : f32[2, 3]
    %y = graph.matmul %b2, %last : f32[n, 3]
    strata.return %y
  }
  // CHECK: strata.func @layer_0(%x: f32[n, 2]) -> (f32[n, 2]) sizes(n) inputs ["x"] outputs ["0"] {
  // CHECK-NEXT: %w0 = graph.constant {value = #strata.weights<[#strata.weight<"n3"
  // CHECK-NEXT: %h = graph.constant {value = literal[0.5]} : f32[]
  // CHECK-NEXT: %m0 = graph.matmul %x, %w0 : f32[n, 2]
  // CHECK-NEXT: %b0 = graph.mul %m0, %h : f32[n, 2]
  // CHECK-NEXT: strata.return %b0
}
