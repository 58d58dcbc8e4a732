// PASSES: graph-decompose,graph-to-loop,loop-fuse,loop-outline,loop-join-online
// TARGET: cuda sm_90
// TOLERANCE: 1e-3
// A mask that two chains read is computed by both of them, from indices and from a row that is much
// shorter than it is. What compares indices is the outermost selection, and tells how far rows
// reach. A mask that reads more bytes than it makes is read.
builtin.module {
  // CHECK: strata.func @main
  // CHECK-NEXT: %y = loop.call @online_{{.*}}(%m, %q, %k) sizes(s)
  // CHECK-NEXT: %z = loop.call @online_{{.*}}(%m, %k, %q) sizes(s)
  // CHECK-NEXT: strata.return %y, %z
  // CHECK: strata.func @read
  // CHECK-NEXT: %a = loop.call @map_
  // CHECK-NEXT: %y = loop.call @online_{{.*}}(%q, %k, %a) sizes(s)
  // CHECK: loop.kernel @online_4(
  // CHECK: loop.nest (i0: 3, i1: s, i3: s) ins(%0[i0, i1, i3], %m[i3])
  // CHECK: %12 = arith.cmpi sle
  // CHECK: arith.select %7, %
  // CHECK: arith.select %12, %
  // CHECK-NEXT: loop.yield
  strata.func @main(%q: f16[3, s, 16], %k: f16[3, s, 16], %m: i1[s]) -> (f16[3, s, 16], f16[3, s, 16]) inputs ["q", "k", "m"] outputs ["y", "z"] {
    %r = graph.range {start = 0, step = 1, count = s, to = i64} : i64[s]
    %c = graph.reshape %r {shape = [s, 1]} : i64[s, 1]
    %l = graph.less_equal %r, %c : i1[s, s]
    %b = graph.and %l, %m : i1[s, s]
    %n = graph.constant {value = literal[-inf]} : f16[]
    %o = graph.constant {value = literal[0.0]} : f16[]
    %a = graph.where %b, %o, %n : f16[s, s]
    %t = graph.transpose %k {perm = [0, 2, 1]} : f16[3, 16, s]
    %x = graph.matmul %q, %t : f16[3, s, s]
    %xa = graph.add %x, %a : f16[3, s, s]
    %p = graph.softmax %xa {axis = 2} : f16[3, s, s]
    %y = graph.matmul %p, %k : f16[3, s, 16]
    %u = graph.transpose %q {perm = [0, 2, 1]} : f16[3, 16, s]
    %w = graph.matmul %k, %u : f16[3, s, s]
    %wa = graph.add %a, %w : f16[3, s, s]
    %h = graph.softmax %wa {axis = 2} : f16[3, s, s]
    %z = graph.matmul %h, %q : f16[3, s, 16]
    strata.return %y, %z
  }
  strata.func @read(%q: f16[3, s, 16], %k: f16[3, s, 16], %m: i32[s, s]) -> (f16[3, s, 16]) inputs ["q", "k", "m"] outputs ["y"] {
    %n = graph.constant {value = literal[-inf]} : f16[]
    %o = graph.constant {value = literal[0.0]} : f16[]
    %b = graph.cast %m {to = i1} : i1[s, s]
    %a = graph.where %b, %o, %n : f16[s, s]
    %t = graph.transpose %k {perm = [0, 2, 1]} : f16[3, 16, s]
    %x = graph.matmul %q, %t : f16[3, s, s]
    %xa = graph.add %x, %a : f16[3, s, s]
    %p = graph.softmax %xa {axis = 2} : f16[3, s, s]
    %y = graph.matmul %p, %k : f16[3, s, 16]
    strata.return %y
  }
}
