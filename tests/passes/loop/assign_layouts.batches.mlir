// PASSES: graph-to-loop,loop-fuse,loop-assign-layouts
// TOLERANCE: 1e-5
builtin.module {
  // A matrix times a batch of weights is no image; a transposed convolution makes one, although its
  // weights index the results of a position.
  // CHECK: strata.func @experts
  // CHECK: outs(add f32[2, 4, 3][i0, i1, i2])
  strata.func @experts(%x: f32[4, 2]) -> (f32[2, 3]) inputs ["x"] outputs ["y"] {
    %w = graph.constant {value = literal[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 1.5, 2.5, 3.5]} : f32[2, 2, 3]
    %p = graph.matmul %x, %w : f32[2, 4, 3]
    %y = graph.reduce_max %p {axes = [1], keepdims = false} : f32[2, 3]
    strata.return %y
  }
  // CHECK: strata.func @phases
  // CHECK: outs(add f32[1, 2*h + 2, 2*w + 2, 7][0, 2*i2 + i4, 2*i3 + i5, i1])
  strata.func @phases(%x: f32[1, 3, h, w], %w: f32[3, 7, 4, 4]) -> (f32[1, 7, 2*h, 2*w]) inputs ["x", "w"] outputs ["z"] {
    %y = graph.conv_transpose %x, %w {strides = [2, 2], dilations = [1, 1], pads = [1, 1, 1, 1], output_padding = [0, 0], group = 1} : f32[1, 7, 2*h, 2*w]
    %z = graph.abs %y : f32[1, 7, 2*h, 2*w]
    strata.return %z
  }
  // What is read at indices is walked as these are.
  // CHECK: strata.func @resized
  // CHECK: outs(f32[1, h, w, 4][0, i2, i3, i1])
  strata.func @resized(%x: f32[1, 4, h, w], %i: i64[k], %v: f32[6, 4, 1, 1]) -> (f32[1, 6, k, w]) inputs ["x", "i", "v"] outputs ["y"] {
    %a = graph.exp %x : f32[1, 4, h, w]
    %g = graph.gather %a, %i {axis = 2} : f32[1, 4, k, w]
    %y = graph.conv %g, %v : f32[1, 6, k, w]
    strata.return %y
  }
}
