// PASSES: graph-fold-constants,graph-to-loop,loop-fuse,loop-assign-layouts,loop-outline,loop-prepare-kernels,loop-pack-operands
// TARGET: cuda sm_90
// Constant bytes run along the summed axis, which ends in what is contiguous in the data: channels.
builtin.module {
  // CHECK: strata.func @main
  // CHECK: graph.constant {value = #strata.weight<"{{.*}}.packed", "{{.*}}">} : i8[8, 36, 1]
  // CHECK: loop.nest (i0: 6*n, i1: 8, reduce i5: 36) ins(%a[{{.*}}, (i5 mod 4)], %w[i1, i5, 0])
  strata.func @main(%x: i8[n, 4, 4, 5]) -> (i32[n, 8, 2, 3]) inputs ["x"] outputs ["y"] {
    %r = graph.range {start = -100, step = 1, count = 288, to = i32} : i32[288]
    %b = graph.cast %r {to = i8} : i8[288]
    %w = graph.reshape %b {shape = [8, 4, 3, 3]} : i8[8, 4, 3, 3]
    %a = graph.add %x, %x : i8[n, 4, 4, 5]
    %c = graph.conv %a, %w {to = i32} : i32[n, 8, 2, 3]
    %y = graph.add %c, %c : i32[n, 8, 2, 3]
    strata.return %y
  }
}
