// PASSES: graph-fold-constants,graph-join-groups
// TARGET: cuda sm_90
// TOLERANCE: 1e-4
// Four groups of four channels are one of 16, which is the least that a product has; eight are two.
// A channel by itself is no product, and groups of 16 channels are large enough. A filter that is an
// argument gets its zeros when the model runs.
builtin.module {
  // CHECK: graph.conv %x, %{{.*}} {{.*}}group = 1} : f32[n, 16, h]
  // CHECK: graph.conv %x, %{{.*}} {{.*}}group = 16} : f32[n, 16, h]
  // CHECK: graph.conv %z, %{{.*}} {{.*}}group = 2} : f32[n, 8, h]
  // CHECK: graph.conv %z, %{{.*}} {{.*}}group = 2} : f32[n, 2, h]
  // CHECK: graph.reshape %f {shape = [8, 1, 4, 2]} : f32[8, 1, 4, 2]
  // CHECK: graph.where %{{.*}} : f32[8, 4, 4, 2]
  // CHECK: graph.reshape %{{.*}} {shape = [8, 16, 2]} : f32[8, 16, 2]
  // CHECK: graph.conv %z, %{{.*}} {{.*}}group = 2} : f32[n, 8, h - 1]
  strata.func @main(%x: f32[n, 16, h], %z: f32[n, 32, h], %f: f32[8, 4, 2]) -> (f32[n, 16, h], f32[n, 16, h], f32[n, 8, h], f32[n, 2, h], f32[n, 8, h - 1]) inputs ["x", "z", "f"] outputs ["a", "b", "c", "d", "e"] {
    %r = graph.range {start = 0, step = 1, count = 64, to = f32} : f32[64]
    %k = graph.reshape %r {shape = [16, 4, 1]} : f32[16, 4, 1]
    %a = graph.conv %x, %k {strides = [1], dilations = [1], pads = [0, 0], group = 4} : f32[n, 16, h]
    %s = graph.range {start = 0, step = 1, count = 16, to = f32} : f32[16]
    %l = graph.reshape %s {shape = [16, 1, 1]} : f32[16, 1, 1]
    %b = graph.conv %x, %l {strides = [1], dilations = [1], pads = [0, 0], group = 16} : f32[n, 16, h]
    %t = graph.range {start = 0, step = 1, count = 32, to = f32} : f32[32]
    %p = graph.reshape %t {shape = [8, 4, 1]} : f32[8, 4, 1]
    %c = graph.conv %z, %p {strides = [1], dilations = [1], pads = [0, 0], group = 8} : f32[n, 8, h]
    %q = graph.reshape %t {shape = [2, 16, 1]} : f32[2, 16, 1]
    %d = graph.conv %z, %q {strides = [1], dilations = [1], pads = [0, 0], group = 2} : f32[n, 2, h]
    %e = graph.conv %z, %f {strides = [1], dilations = [1], pads = [0, 0], group = 8} : f32[n, 8, h - 1]
    strata.return %a, %b, %c, %d, %e
  }
}
