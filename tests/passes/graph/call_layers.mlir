// PASSES: graph-call-layers{least=4}
// Four layers are equal but for their weights. A mask that all of them compute is computed once. The
// fifth has a bias of zeros, which a rule may remove.
builtin.module {
  // CHECK: strata.func @main(%x: f32[n, 2], %s: f32[n, 1]) -> (f32[n, 2]) inputs ["x", "s"] outputs ["y"] {
  // CHECK: %k0 = graph.sub %one, %s : f32[n, 1]
  // CHECK-NEXT: %b0 = strata.call @layer_0 number 0 of ["n5", "n6", "n8", "n9", "n3", "n4"] (%x, %k0) : f32[n, 2]
  // CHECK-NEXT: %b1 = strata.call @layer_0 number 1 of ["n12", "n13", "n15", "n16", "n10", "n11"] (%b0, %k0) : f32[n, 2]
  // CHECK-NEXT: %b2 = strata.call @layer_0 number 2
  // CHECK-NEXT: %b3 = strata.call @layer_0 number 3
  strata.func @main(%x: f32[n, 2], %s: f32[n, 1]) -> (f32[n, 2]) inputs ["x", "s"] outputs ["y"] {
    %one = graph.constant {value = literal[1.0]} : f32[]
    %w0 = graph.constant {value = literal[3.0, 1.0, 0.0, -2.5]} : f32[2, 2]
    %c0 = graph.constant {value = literal[3.0, 1.5]} : f32[2]
    %m0 = graph.matmul %x, %w0 : f32[n, 2]
    %a0 = graph.add %m0, %c0 : f32[n, 2]
    %k0 = graph.sub %one, %s : f32[n, 1]
    %t0 = graph.mul %a0, %k0 : f32[n, 2]
    %b0 = graph.tanh %t0 : f32[n, 2]
    %w1 = graph.constant {value = literal[-4.0, -4.5, -3.0, 2.5]} : f32[2, 2]
    %c1 = graph.constant {value = literal[6.0, 8.5]} : f32[2]
    %m1 = graph.matmul %b0, %w1 : f32[n, 2]
    %a1 = graph.add %m1, %c1 : f32[n, 2]
    %k1 = graph.sub %one, %s : f32[n, 1]
    %t1 = graph.mul %a1, %k1 : f32[n, 2]
    %b1 = graph.tanh %t1 : f32[n, 2]
    %w2 = graph.constant {value = literal[0.0, 0.5, 4.0, 2.0]} : f32[2, 2]
    %c2 = graph.constant {value = literal[6.0, 5.5]} : f32[2]
    %m2 = graph.matmul %b1, %w2 : f32[n, 2]
    %a2 = graph.add %m2, %c2 : f32[n, 2]
    %k2 = graph.sub %one, %s : f32[n, 1]
    %t2 = graph.mul %a2, %k2 : f32[n, 2]
    %b2 = graph.tanh %t2 : f32[n, 2]
    %w3 = graph.constant {value = literal[0.5, 3.5, -2.5, 2.5]} : f32[2, 2]
    %c3 = graph.constant {value = literal[6.0, 1.5]} : f32[2]
    %m3 = graph.matmul %b2, %w3 : f32[n, 2]
    %a3 = graph.add %m3, %c3 : f32[n, 2]
    %k3 = graph.sub %one, %s : f32[n, 1]
    %t3 = graph.mul %a3, %k3 : f32[n, 2]
    %b3 = graph.tanh %t3 : f32[n, 2]
    %w4 = graph.constant {value = literal[-1.0, 3.0, 0.0, -4.5]} : f32[2, 2]
    %c4 = graph.constant {value = literal[0.0, 0.0]} : f32[2]
    %m4 = graph.matmul %b3, %w4 : f32[n, 2]
    %a4 = graph.add %m4, %c4 : f32[n, 2]
    %k4 = graph.sub %one, %s : f32[n, 1]
    %t4 = graph.mul %a4, %k4 : f32[n, 2]
    %b4 = graph.tanh %t4 : f32[n, 2]
    // CHECK: %m4 = graph.matmul %b3, %w4 : f32[n, 2]
    strata.return %b4
  }
  // CHECK: strata.func @layer_0(%x: f32[n, 2], %k0: f32[n, 1]) -> (f32[n, 2]) sizes(n) inputs ["x", "k0"] outputs ["0"] {
  // CHECK-NEXT: %w0 = graph.constant {value = #strata.weights<[#strata.weight<"n3"
  // CHECK: %b0 = graph.tanh %t0
}
