// PASSES: graph-fold-constants,graph-pack-codes,graph-dce
// TARGET: cuda sm_90
// TOLERANCE: 1e-4
// One row reads codes of 4 bits two in a byte, and each half of a row its half of the scales. Codes
// of 5 bits, and those that two rows read, stay bytes.
builtin.module {
  // CHECK: %0 = graph.constant {{.*}} : ui8[512, 512]
  // CHECK: %{{.*}} = graph.and %0, %{{.*}} : ui8[512, 512]
  // CHECK: %{{.*}} = graph.slice %scales {starts = [0, 0], sizes = [512, 512], steps = [1, 1]}
  // CHECK: %{{.*}} = graph.shift_right %0, %{{.*}} : ui8[512, 512]
  // CHECK: %{{.*}} = graph.slice %scales {starts = [0, 512], sizes = [512, 512], steps = [1, 1]}
  // CHECK: %{{.*}} = graph.reduce_sum
  // CHECK: %z = graph.matmul %x, %
  // CHECK: %v = graph.matmul %two, %
  strata.func @main(%x: f32[1, 1024], %two: f32[2, 1024], %scales: f32[512, 1024])
      -> (f32[1, 512], f32[1, 512], f32[2, 512]) inputs ["x", "two", "s"] outputs ["y", "z", "v"] {
    %r = graph.range {start = 0, step = 1, count = 262144, to = i32} : i32[262144]
    %fifteen = graph.constant {value = literal[15]} : i32[]
    %n = graph.and %r, %fifteen : i32[262144]
    %u = graph.cast %n {to = ui8} : ui8[262144]
    %both = graph.concat %u, %u {axis = 0} : ui8[524288]
    %w = graph.reshape %both {shape = [512, 1024]} : ui8[512, 1024]
    %f = graph.cast %w {to = f32} : f32[512, 1024]
    %eight = graph.constant {value = literal[8.0]} : f32[]
    %c = graph.sub %f, %eight : f32[512, 1024]
    %m = graph.mul %c, %scales : f32[512, 1024]
    %t = graph.transpose %m {perm = [1, 0]} : f32[1024, 512]
    %y = graph.matmul %x, %t : f32[1, 512]
    %thirty = graph.constant {value = literal[31]} : i32[]
    %n5 = graph.and %r, %thirty : i32[262144]
    %u5 = graph.cast %n5 {to = ui8} : ui8[262144]
    %both5 = graph.concat %u5, %u5 {axis = 0} : ui8[524288]
    %w5 = graph.reshape %both5 {shape = [1024, 512]} : ui8[1024, 512]
    %f5 = graph.cast %w5 {to = f32} : f32[1024, 512]
    %z = graph.matmul %x, %f5 : f32[1, 512]
    %v = graph.matmul %two, %t : f32[2, 512]
    strata.return %y, %z, %v
  }
}
