// PASSES: graph-fold-constants,graph-to-loop,loop-fuse,loop-outline,loop-pack-operands,loop-schedule
// TARGET: cpu avx2
// Bytes are packed in groups of four of the summed axis, side by side inside the tile; the last
// group is filled up with zeros. So are pairs of bf16. The reader divides both axes.
builtin.module {
  // CHECK: strata.func @bytes
  // CHECK: graph.constant {value = #strata.weight<"{{.*}}.packed", "{{.*}}">} : i8[4, 2, 16, 4]
  // CHECK: loop.kernel @contract_0
  // CHECK-SAME: schedule<grid i1 tile 16 lanes, loop i0 tile 4, loop i2 tile 4 unroll 4 group>
  // CHECK: ins(%a[i0, i2], %{{.*}}[(i1 floordiv 16), (i2 floordiv 4), (i1 mod 16), (i2 mod 4)]) outs(add i32[m, 50][i0, i1])
  strata.func @bytes(%a: ui8[m, 6]) -> (i32[m, 50]) inputs ["a"] outputs ["y"] {
    %w = graph.range {start = 0, step = 1, count = 300, to = i8} : i8[300]
    %v = graph.reshape %w {shape = [6, 50]} : i8[6, 50]
    %y = graph.matmul %a, %v {to = i32} : i32[m, 50]
    strata.return %y
  }
  // The other factor's summed axis does not run along memory: no word of it holds a group.
  // CHECK: loop.kernel @contract_1
  // CHECK-SAME: loop i2 tile 1 unroll 4>
  strata.func @across(%a: ui8[6, m]) -> (i32[m, 50]) inputs ["a"] outputs ["y"] {
    %w = graph.range {start = 0, step = 1, count = 300, to = i8} : i8[300]
    %v = graph.reshape %w {shape = [6, 50]} : i8[6, 50]
    %t = graph.transpose %a {perm = [1, 0]} : ui8[m, 6]
    %y = graph.matmul %t, %v {to = i32} : i32[m, 50]
    strata.return %y
  }
  // CHECK: loop.kernel @contract_2
  // CHECK-SAME: bf16[4, 16, 16, 2]
  // CHECK-SAME: loop i2 tile 2 unroll 4 group>
  strata.func @halves(%a: bf16[m, 32]) -> (f32[m, 50]) inputs ["a"] outputs ["y"] {
    %r = graph.range {start = 0, step = 1, count = 1600, to = i64} : i64[1600]
    %w = graph.cast %r {to = bf16} : bf16[1600]
    %v = graph.reshape %w {shape = [32, 50]} : bf16[32, 50]
    %y = graph.matmul %a, %v {to = f32} : f32[m, 50]
    strata.return %y
  }
}
