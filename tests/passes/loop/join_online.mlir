// PASSES: graph-decompose,graph-to-loop,loop-fuse,loop-outline,loop-join-online
// TARGET: cuda sm_90
// TOLERANCE: 1e-3
// Attention of halves: all nests walk the keys (i3) together, once. Nothing is rounded between the
// products but the weights, to the type of the values. log2(e) is part of the scale; what divides
// the weights divides the sums. A mask of runtime numbers is added, so there the powers are of e.
builtin.module {
  // CHECK: strata.func @main
  // CHECK-NEXT: %y = loop.call @online_2(%q, %k, %v) sizes(s) : f16[3, s, 16]
  // CHECK-NEXT: strata.return %y
  // CHECK: loop.kernel @online_2(
  // CHECK-NEXT: %0 = loop.nest (i0: 3, i1: s, i3: s, reduce i4: 16) ins(%q[i0, i1, i4], %k[i0, i3, i4]) outs(add f32
  // CHECK: loop.nest (i0: 3, i1: s, i3: s) ins(%0[i0, i1, i3])
  // CHECK-NOT: arith.truncf
  // CHECK: arith.constant 0.360673755 : f32
  // CHECK: loop.nest (i0: 3, i1: s, reduce i3: s) ins({{.*}}[i0, i1, i3]) outs(max
  // CHECK: loop.nest (i0: 3, i1: s, i3: s) ins(
  // CHECK: math.exp2
  // CHECK: loop.nest (i0: 3, i1: s, reduce i3: s) {{.*}} outs(add
  // CHECK: loop.nest (i0: 3, i1: s, i3: s) {{.*}} outs(f16
  // CHECK: arith.truncf
  // CHECK: loop.nest (i0: 3, i1: s, i2: 16, reduce i3: s) ins({{.*}}[i0, i1, i3], %v[i0, i3, i2]) outs(add
  // CHECK: loop.nest (i0: 3, i1: s, i2: 16)
  // CHECK: arith.divf
  strata.func @main(%q: f16[3, s, 16], %k: f16[3, s, 16], %v: f16[3, s, 16]) -> (f16[3, s, 16]) inputs ["q", "k", "v"] outputs ["y"] {
    %c = graph.constant {value = literal[0.25]} : f16[1]
    %t = graph.transpose %k {perm = [0, 2, 1]} : f16[3, 16, s]
    %x = graph.matmul %q, %t : f16[3, s, s]
    %a = graph.mul %x, %c : f16[3, s, s]
    %p = graph.softmax %a {axis = 2} : f16[3, s, s]
    %y = graph.matmul %p, %v : f16[3, s, 16]
    strata.return %y
  }
  // What is computed for the rows belongs to the kernel, too.
  // CHECK: loop.kernel @online_6({{.*}}%m: f16[s]
  // CHECK-NEXT: loop.nest (i0: 3, i1: s, i4: 16) ins(%q[i0, i1, i4])
  // CHECK: math.exp %
  strata.func @masked(%q: f16[3, s, 16], %k: f16[3, 16, s], %v: f16[3, s, 16], %m: f16[s]) -> (f16[3, s, 16]) inputs ["q", "k", "v", "m"] outputs ["y"] {
    %c = graph.constant {value = literal[0.5]} : f16[1]
    %h = graph.mul %q, %c : f16[3, s, 16]
    %x = graph.matmul %h, %k : f16[3, s, s]
    %a = graph.add %x, %m : f16[3, s, s]
    %p = graph.softmax %a {axis = 2} : f16[3, s, s]
    %y = graph.matmul %p, %v : f16[3, s, 16]
    strata.return %y
  }
  // Keys times a constant are keys, and scores times it.
  // CHECK: loop.kernel @online_10(
  // CHECK-NEXT: %0 = loop.nest (i0: 3, i1: s, i3: s, reduce i4: 16) ins(%q[i0, i1, i4], %k[i0, i4, i3])
  // CHECK: arith.constant 0.360673755 : f32
  strata.func @keys(%q: f16[3, s, 16], %k: f16[3, 16, s], %v: f16[3, s, 16]) -> (f16[3, s, 16]) inputs ["q", "k", "v"] outputs ["y"] {
    %c = graph.constant {value = literal[0.25]} : f16[1]
    %h = graph.mul %k, %c : f16[3, 16, s]
    %x = graph.matmul %q, %h : f16[3, s, s]
    %p = graph.softmax %x {axis = 2} : f16[3, s, s]
    %y = graph.matmul %p, %v : f16[3, s, 16]
    strata.return %y
  }
  // The weights are a result as well, so they are in memory anyway.
  // CHECK: loop.kernel @contract_11(
  strata.func @weights(%q: f16[3, s, 16], %k: f16[3, 16, s], %v: f16[3, s, 16]) -> (f16[3, s, 16], f16[3, s, s]) inputs ["q", "k", "v"] outputs ["y", "p"] {
    %x = graph.matmul %q, %k : f16[3, s, s]
    %p = graph.softmax %x {axis = 2} : f16[3, s, s]
    %y = graph.matmul %p, %v : f16[3, s, 16]
    strata.return %y, %p
  }
}
