// A small model in the graph dialect. The test reads it, verifies it, and prints the same text back.
builtin.module {
  strata.func @main(%image: f32[batch, 3, h, 8], %ids: i64[batch, 4]) -> (f32[batch, 10], f32[batch, 4, 6]) inputs ["image", "input.ids"] outputs ["scores", "embedded"] {
    %w = graph.constant {value = #strata.weight<"conv.weight", "0123456789abcdef01234567">} : f32[8, 3, 3, 3]
    %b = graph.constant {value = literal[0.5, -1.0, nan, inf, -inf, 1.0e-05, 3.0, -0.0]} : f32[8]
    %0 = graph.conv %image, %w, %b {strides = [1, 2], dilations = [1, 1], pads = [1, 1, 1, 1], group = 1} : f32[batch, 8, h, 4]
    %1 = graph.relu %0 : f32[batch, 8, h, 4]
    %low = graph.constant {value = literal[0.0]} : f32[]
    %2 = graph.clip %1, %low {has_min = true, has_max = false} : f32[batch, 8, h, 4]
    %3 = graph.reduce_mean %2 {axes = [2, 3], keepdims = false} : f32[batch, 8]
    %fc = graph.constant {value = #strata.weight<"fc \22quoted\22", "89abcdef0123456789abcdef">} : f32[8, 10]
    %4 = graph.matmul %3, %fc : f32[batch, 10]
    %scores = graph.softmax %4 {axis = 1} : f32[batch, 10]
    %table = graph.constant {value = #strata.weight<"table", "fedcba9876543210fedcba98">} : f32[99, 6]
    %5 = graph.gather %table, %ids {axis = 0} : f32[batch, 4, 6]
    %6 = graph.slice %5 {starts = [batch - 1, 0, 5], sizes = [batch, 4, 6], steps = [-1, 1, -1]} : f32[batch, 4, 6]
    %7 = graph.sizes {values = [batch*h, 2*batch + 1], shape = [2], to = i64} : i64[2]
    %8 = graph.reduce_sum %7 {axes = [0], keepdims = false} : i64[]
    %9 = graph.cast %8 {to = f32} : f32[]
    %10 = graph.mul %6, %9 : f32[batch, 4, 6]
    %11 = graph.reshape %10 {shape = [2*batch, 12]} : f32[2*batch, 12]
    %embedded = graph.reshape %11 {shape = [batch, 4, 6]} : f32[batch, 4, 6]
    strata.return %scores, %embedded
  }
}
