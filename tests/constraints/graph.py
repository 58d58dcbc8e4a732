"""Texts that violate the constraints of the graph level, in the form of a docstring's example.

The first column names an operation, or a class whose docstring states the constraint for all
operations that inherit it. For these `OP` is the operation, `ATTRIBUTES` the attributes of its
example, `GOOD` an element type that it takes, `OTHER` another one, and `BAD` one that it does not.
"""

CASES = [
    # families
    ("ElementwiseOp", "C1: element types differ",
     "OP %x, %y : GOOD[3] given %x: GOOD[3], %y: OTHER[3]"),
    ("ElementwiseOp", "C2: ", "OP %x, %y : BAD[3] given %x: BAD[3], %y: BAD[3]"),
    ("ElementwiseOp", "C2: ", "OP %x : BAD[3] given %x: BAD[3]"),
    ("ElementwiseOp", "C3: ", "OP %x, %y : GOOD[3] given %x: GOOD[3], %y: GOOD[4]"),
    ("ActivationOp", "C1: elements must be", "OP %x ATTRIBUTES : BAD[3] given %x: BAD[3]"),
    ("ReduceOp", "C1: axes [1, 0] must be sorted",
     "OP %x {axes = [1, 0], keepdims = false} : GOOD[] given %x: GOOD[3, 4]"),
    ("ReduceOp", "C2: ", "OP %x {axes = [0], keepdims = false} : BAD[4] given %x: BAD[3, 4]"),
    ("CumulativeOp", "C1: axis 1 is not in 0 to 0",
     "OP %x {axis = 1, exclusive = false, reverse = false} : f32[3] given %x: f32[3]"),
    ("CumulativeOp", "C2: elements must be",
     "OP %x {axis = 0, exclusive = false, reverse = false} : i1[3] given %x: i1[3]"),
    ("ArgOp", "C1: axis 0 of f32[0] is empty",
     "OP %x {axis = 0, keepdims = false} : i64[] given %x: f32[0]"),
    ("ArgOp", "C2: elements must be",
     "OP %x {axis = 0, keepdims = false} : i64[] given %x: i1[3]"),
    ("AllReduceOp", "C1: the reduction is 'mean'",
     'OP %x {reduce = "mean", group = #strata.group<"g", [[0, 1]]>} : f32[3] given %x: f32[3]'),
    ("AllReduceOp", "C1: avg of i32",
     'OP %x {reduce = "avg", group = #strata.group<"g", [[0, 1]]>} : i32[3] given %x: i32[3]'),
    ("AllReduceOp", "C1: elements must be",
     'OP %x {reduce = "sum", group = #strata.group<"g", [[0, 1]]>} : i1[3] given %x: i1[3]'),
    *(("ForeignKernelOp", message,
       'OP %x {kernel = "k", source = "", call = "{0}", sizes = [], reads = 1, warps = 4, '
       f'stages = 3, {rest}}} : f32[3] given %x: f32[3]') for message, rest in (
        ("C1: there are 1 operands", 'kept = [1], elements = "", shapes = [], grid = [1]'),
        ("C2: each result that starts", 'kept = [-1], elements = "", shapes = [], grid = [1]'),
        ("C2: there is no type of f33", 'kept = [-1], elements = "f33", shapes = [1, 3], '
         'grid = [1]'),
        ("C3: a grid has", 'kept = [-1], elements = "f32", shapes = [1, 3], grid = []'))),
    ("ReduceScatterOp", "C1: the reduction is 'mean'",
     'OP %x {reduce = "mean", group = #strata.group<"g", [[0, 1]]>} : f32[2] given %x: f32[4]'),
    ("ReduceScatterOp", "C2: the first dim of f32[3]",
     'OP %x {reduce = "sum", group = #strata.group<"g", [[0, 1]]>} : f32[1] given %x: f32[3]'),
    ("AllGatherOp", "C1: a tensor without dims",
     'OP %x {group = #strata.group<"g", [[0, 1]]>} : f32[] given %x: f32[]'),
    ("AllToAllOp", "C1: the first dim of f32[3, 2]",
     'OP %x {group = #strata.group<"g", [[0, 1]]>} : f32[3, 2] given %x: f32[3, 2]'),
    ("ShardOp", "C1: the first dim of f32[3]",
     'OP %x {group = #strata.group<"g", [[0, 1]]>} : f32[1] given %x: f32[3]'),
    ("ShardAsOp", "C1: 'tp' does not divide",
     'OP %x {axes = "tp"} : f32[2, 3] given %x: f32[2, 3]'),
    ("ShardAsOp", "C1: 'tp,tp' does not divide",
     'OP %x {axes = "tp,tp"} : f32[2, 2] given %x: f32[2, 2]'),
    ("BroadcastRanksOp", "C1: the root is 2",
     'OP %x {root = 2, group = #strata.group<"g", [[0, 1]]>} : f32[3] given %x: f32[3]'),
    ("PermuteRanksOp", "C1: [0, 2] does not pair",
     'OP %x {pairs = [0, 2], group = #strata.group<"g", [[0, 1]]>} : f32[3] given %x: f32[3]'),
    ("PermuteRanksOp", "C1: [0, 1, 1, 1] does not pair",
     'OP %x {pairs = [0, 1, 1, 1], group = #strata.group<"g", [[0, 1]]>} : f32[3] '
     "given %x: f32[3]"),
    ("SoftmaxFamilyOp", "C1: elements must be floats",
     "OP %x {axis = 0} : i64[3] given %x: i64[3]"),
    ("SoftmaxFamilyOp", "C2: axis 1", "OP %x {axis = 1} : f32[3] given %x: f32[3]"),

    # one operation each
    ("graph.constant", "C1: the value of graph.constant",
     'graph.constant {value = "2"} : f32[1]'),
    ("graph.constant", "C2: 1 values for the shape f32[2]",
     "graph.constant {value = literal[1.0]} : f32[2]"),
    ("graph.sizes", "C1: 2 values do not fill the shape [3]",
     "graph.sizes {values = [1, 2], shape = [3], to = i64} : i64[3]"),
    ("graph.sizes", "C2: elements must be",
     "graph.sizes {values = [1, 2], shape = [2], to = i1} : i1[2]"),
    ("graph.range", "C1: elements must be",
     "graph.range {start = 0, step = 1, count = 2, to = i1} : i1[2]"),
    ("graph.range", "C2: the count -1 is negative",
     "graph.range {start = 0, step = 1, count = -1, to = i64} : i64[2]"),
    ("graph.where", "C1: element types differ",
     "graph.where %c, %x, %y : f32[3] given %c: i1[3], %x: f32[3], %y: i64[3]"),
    ("graph.where", "C2: the condition must have truth values",
     "graph.where %c, %x, %y : f32[3] given %c: f32[3], %x: f32[3], %y: f32[3]"),
    ("graph.where", "C3: shapes", "graph.where %c, %x, %x : f32[3] given %c: i1[2], %x: f32[3]"),
    ("graph.cast", 'C1: "f99" is not an element type',
     'graph.cast %x {to = "f99"} : f32[3] given %x: f32[3]'),
    ("graph.cast", "C2: only narrow floats saturate, not f16",
     "graph.cast %x {to = f16, saturate = true} : f16[3] given %x: f32[3]"),
    ("graph.cast", "C3: 'up' is not a rounding mode of f16",
     'graph.cast %x {to = f16, round = "up"} : f16[3] given %x: f32[3]'),
    ("graph.bitcast", "C1: elements of f32 cannot be read as i64",
     "graph.bitcast %x {to = i64} : i64[3] given %x: f32[3]"),
    ("graph.philox", "C4: draw is -1",
     "graph.philox %x, %y {draw = -1} : i64[3] given %x: i64[3], %y: i64[]"),
    ("graph.gelu", "C2: unknown approximation",
     'graph.gelu %x {approximate = "erf"} : f32[3] given %x: f32[3]'),
    ("graph.clip", "C1: elements must be",
     "graph.clip %x {has_min = false, has_max = false} : i1[3] given %x: i1[3]"),
    ("graph.clip", "C2: 0 flags are set for 1 bounds",
     "graph.clip %x, %y {has_min = false, has_max = false} : f32[3] given %x: f32[3], %y: f32[]"),
    ("graph.clip", "C3: ",
     "graph.clip %x, %y {has_min = true, has_max = false} : f32[3] given %x: f32[3], %y: f32[4]"),
    ("graph.reduce_mean", "C1: axes [2] must be sorted",
     "graph.reduce_mean %x {axes = [2], keepdims = false} : f32[3] given %x: f32[3, 4]"),
    ("graph.reduce_mean", "C2: elements must be",
     "graph.reduce_mean %x {axes = [1], keepdims = false} : i1[3] given %x: i1[3, 4]"),
    *(("graph.descend", message, f"graph.descend %x, %k, %r {{steps = {steps}}} : i64[7, 3] given "
       f"%x: {x}, %k: {nodes}, %r: {roots}") for message, x, nodes, roots, steps in (
        ("C1: element types differ", "i64[7, 4]", "i32[9, 2]", "i64[3]", 1),
        ("C1: x must hold signed integers", "f32[7, 4]", "f32[9, 2]", "i64[3]", 1),
        ("C2: x must have 2 dims", "i32[7]", "i32[9, 2]", "i64[3]", 1),
        ("C2: x has m columns", "i32[7, m]", "i32[9, 2]", "i64[3]", 1),
        ("C2: a node has 3 numbers", "i32[7, 4]", "i32[9, 3]", "i64[3]", 1),
        ("C3: indices must be integers", "i32[7, 4]", "i32[9, 2]", "f32[3]", 1),
        ("C4: steps must be at least 0", "i32[7, 4]", "i32[9, 2]", "i64[3]", -1))),
    ("graph.search_sorted", "C1: element types differ",
     "graph.search_sorted %l, %v : i64[3] given %l: f32[4], %v: f16[3]"),
    ("graph.search_sorted", "C2: elements must be",
     "graph.search_sorted %l, %v : i64[3] given %l: i1[4], %v: i1[3]"),
    ("graph.search_sorted", "C3: the list must have 1 dims",
     "graph.search_sorted %l, %v : i64[3] given %l: f32[4, 1], %v: f32[3]"),
    ("graph.top_k", "C1: axis 1", "%v, %i = graph.top_k %x {axis = 1, k = 1, largest = true} : "
     "f32[1], i64[1] given %x: f32[3]"),
    ("graph.top_k", "C2: elements must be", "%v, %i = graph.top_k %x {axis = 0, k = 1, "
     "largest = true} : i1[1], i64[1] given %x: i1[3]"),
    ("graph.top_k", "C3: 4 elements cannot be taken of 3", "%v, %i = graph.top_k %x {axis = 0, "
     "k = 4, largest = true} : f32[4], i64[4] given %x: f32[3]"),
    ("graph.reshape", "C1: f32[3, 4] has 12 elements, [5] has 5",
     "graph.reshape %x {shape = [5]} : f32[5] given %x: f32[3, 4]"),
    ("graph.reshape", "C2: the shape [-1, -1] has a negative size",
     "graph.reshape %x {shape = [-1, -1]} : f32[-1, -1] given %x: f32[1]"),
    ("graph.transpose", "C1: perm [0, 0] does not permute",
     "graph.transpose %x {perm = [0, 0]} : f32[3, 4] given %x: f32[3, 4]"),
    ("graph.broadcast", "C1: f32[3, 4] has more dims than [4]",
     "graph.broadcast %x {shape = [4]} : f32[4] given %x: f32[3, 4]"),
    ("graph.broadcast", "C2: f32[3, 4] does not broadcast to [3, 5]",
     "graph.broadcast %x {shape = [3, 5]} : f32[3, 5] given %x: f32[3, 4]"),
    ("graph.slice", "C1: starts, sizes and steps need 1 entries each",
     "graph.slice %x {starts = [0], sizes = [3], steps = []} : f32[3] given %x: f32[3]"),
    ("graph.slice", "C2: the step of dim 0 is 0",
     "graph.slice %x {starts = [0], sizes = [3], steps = [0]} : f32[3] given %x: f32[3]"),
    ("graph.slice", "C3: the size -1 of dim 0 is negative",
     "graph.slice %x {starts = [0], sizes = [-1], steps = [1]} : f32[3] given %x: f32[3]"),
    ("graph.slice", "C4: element 3 is outside dim 0 of size 3",
     "graph.slice %x {starts = [1], sizes = [3], steps = [1]} : f32[3] given %x: f32[3]"),
    ("graph.frames", "C1: axis 1",
     "graph.frames %x {axis = 1, size = 2, step = 1} : f32[2, 2] given %x: f32[3]"),
    ("graph.frames", "C2: size 2 and step 0 must be from 1 up",
     "graph.frames %x {axis = 0, size = 2, step = 0} : f32[2, 2] given %x: f32[3]"),
    ("graph.frames", "C3: a frame of 4 is longer than dim 0",
     "graph.frames %x {axis = 0, size = 4, step = 1} : f32[2, 4] given %x: f32[3]"),
    ("graph.pad", "C1: low and high need 1 entries from 0 up", "graph.pad %x {low = [1], "
     'high = [-1], mode = "edge"} : f32[3] given %x: f32[3]'),
    ("graph.pad", "C2: unknown mode 'mirror'", "graph.pad %x {low = [1], high = [1], "
     'mode = "mirror"} : f32[5] given %x: f32[3]'),
    ("graph.pad", "C3: dim 0 of size 3 is too small to reflect 3 elements", "graph.pad %x "
     '{low = [3], high = [0], mode = "reflect"} : f32[6] given %x: f32[3]'),
    ("graph.concat", "C1: needs at least one operand", "graph.concat {axis = 0} : f32[3]"),
    ("graph.concat", "C1: element types differ",
     "graph.concat %x, %y {axis = 0} : f32[6] given %x: f32[3], %y: f16[3]"),
    ("graph.concat", "C2: every operand must have 1 dims",
     "graph.concat %x, %y {axis = 0} : f32[6] given %x: f32[3], %y: f32[3, 1]"),
    ("graph.concat", "C3: [3, 2] and [3, 1] do not join along axis 0",
     "graph.concat %x, %y {axis = 0} : f32[6, 2] given %x: f32[3, 2], %y: f32[3, 1]"),
    ("graph.gather", "C1: indices must be integers",
     "graph.gather %x, %i {axis = 0} : f32[2] given %x: f32[3], %i: f32[2]"),
    ("graph.gather", "C2: axis 1",
     "graph.gather %x, %i {axis = 1} : f32[2] given %x: f32[3], %i: i64[2]"),
    ("graph.gather_elements", "C1: indices must be integers",
     "graph.gather_elements %x, %i {axis = 0} : f32[2] given %x: f32[3], %i: f32[2]"),
    ("graph.gather_elements", "C2: indices must have 1 dims",
     "graph.gather_elements %x, %i {axis = 0} : f32[2] given %x: f32[3], %i: i64[2, 1]"),
    ("graph.gather_elements", "C3: dim 0 of indices is 4, larger than x's 3",
     "graph.gather_elements %x, %i {axis = 1} : f32[4, 1] given %x: f32[3, 4], %i: i64[4, 1]"),
    ("graph.gather_nd", "C1: indices must have at least one dim",
     "graph.gather_nd %x, %i {batch_dims = 0} : f32[] given %x: f32[3], %i: i64[]"),
    ("graph.gather_nd", "C2: batch dims differ: 3 and 5",
     "graph.gather_nd %x, %i {batch_dims = 1} : f32[5] given %x: f32[3, 4], %i: i64[5, 1]"),
    ("graph.gather_nd", "C3: index vectors of 3 do not fit f32[3, 4]",
     "graph.gather_nd %x, %i {batch_dims = 0} : f32[5] given %x: f32[3, 4], %i: i64[5, 3]"),
    ("graph.scatter_elements", "C1: indices must be integers",
     "graph.scatter_elements %x, %i, %u {axis = 0} : f32[3] given %x: f32[3], %i: f32[2], "
     "%u: f32[2]"),
    ("graph.scatter_elements", "C2: element types differ",
     "graph.scatter_elements %x, %i, %u {axis = 0} : f32[3] given %x: f32[3], %i: i64[2], "
     "%u: f16[2]"),
    ("graph.scatter_elements", "C2: elements of i1 have no combiner 'add'",
     'graph.scatter_elements %x, %i, %u {axis = 0, combiner = "add"} : i1[3] given %x: i1[3], '
     "%i: i64[2], %u: i1[2]"),
    ("graph.scatter_elements", "C3: indices must have 1 dims",
     "graph.scatter_elements %x, %i, %u {axis = 0} : f32[3] given %x: f32[3], %i: i64[2, 1], "
     "%u: f32[2]"),
    ("graph.scatter_elements", "C4: indices and updates differ in shape",
     "graph.scatter_elements %x, %i, %u {axis = 0} : f32[3] given %x: f32[3], %i: i64[2], "
     "%u: f32[3]"),
    ("graph.scatter_elements", "C5: there is no order 'some' of updates",
     'graph.scatter_elements %x, %i, %u {axis = 0, order = "some"} : f32[3] given %x: f32[3], '
     "%i: i64[2], %u: f32[2]"),
    ("graph.scatter_nd", "C1: indices must have at least one dim",
     "graph.scatter_nd %x, %i, %u : f32[3] given %x: f32[3], %i: i64[], %u: f32[]"),
    ("graph.scatter_nd", "C2: elements of f32 have no combiner 'or'",
     'graph.scatter_nd %x, %i, %u {combiner = "or"} : f32[3] given %x: f32[3], %i: i64[1], '
     "%u: f32[]"),
    ("graph.scatter_nd", "C3: index vectors of 2 do not fit f32[3]",
     "graph.scatter_nd %x, %i, %u : f32[3] given %x: f32[3], %i: i64[4, 2], %u: f32[4]"),
    ("graph.scatter_nd", "C4: updates must have 2 dims",
     "graph.scatter_nd %x, %i, %u : f32[3, 5] given %x: f32[3, 5], %i: i64[4, 1], %u: f32[4]"),
    ("graph.scatter_nd", "C5: there is no order 'some' of updates",
     'graph.scatter_nd %x, %i, %u {order = "some"} : f32[3] given %x: f32[3], %i: i64[1], '
     "%u: f32[]"),
    ("graph.resize", "C1: mode must be one of", "graph.resize %x {shape = [6], scales = literal[], "
     'mode = "area", coordinates = "half_pixel"} : f32[6] given %x: f32[3]'),
    ("graph.resize", "C2: shape and scales need 1 entries each", "graph.resize %x {shape = [6, 1], "
     'scales = literal[], mode = "linear", coordinates = "half_pixel"} : f32[6, 1] '
     "given %x: f32[3]"),
    ("graph.resize", "C3: elements must be floats", "graph.resize %x {shape = [6], "
     'scales = literal[], mode = "linear", coordinates = "half_pixel"} : i64[6] given %x: i64[3]'),

    # sums of products
    ("graph.matmul", "C1: element types differ",
     "graph.matmul %a, %b : f32[3, 5] given %a: f32[3, 4], %b: f16[4, 5]"),
    ("graph.matmul", "C2: elements must be",
     "graph.matmul %a, %b : i1[3, 5] given %a: i1[3, 4], %b: i1[4, 5]"),
    ("graph.matmul", "C3: operands need at least one dim",
     "graph.matmul %a, %b : f32[5] given %a: f32[], %b: f32[4, 5]"),
    ("graph.matmul", "C4: inner sizes",
     "graph.matmul %a, %b : f32[3, 4] given %a: f32[3, 4], %b: f32[3, 4]"),
    ("graph.matmul", "C5: shapes",
     "graph.matmul %a, %b : f32[2, 3, 3] given %a: f32[2, 3, 4], %b: f32[5, 4, 3]"),
    ("graph.grouped_matmul", "C1: element types differ", "graph.grouped_matmul %a, %b, %e : "
     "f32[6, 5] given %a: f32[6, 4], %b: f16[2, 4, 5], %e: i32[2]"),
    ("graph.grouped_matmul", "C2: elements must be integers", "graph.grouped_matmul %a, %b, %e : "
     "f32[6, 5] given %a: f32[6, 4], %b: f32[2, 4, 5], %e: f32[2]"),
    ("graph.grouped_matmul", "C3: b must have 3 dims", "graph.grouped_matmul %a, %b, %e : "
     "f32[6, 5] given %a: f32[6, 4], %b: f32[4, 5], %e: i32[2]"),
    ("graph.grouped_matmul", "C4: inner sizes", "graph.grouped_matmul %a, %b, %e : "
     "f32[6, 5] given %a: f32[6, 4], %b: f32[2, 3, 5], %e: i32[2]"),
    ("graph.grouped_matmul", "C5: i32[3] are not the ends", "graph.grouped_matmul %a, %b, %e : "
     "f32[6, 5] given %a: f32[6, 4], %b: f32[2, 4, 5], %e: i32[3]"),
    ("graph.matmul_integer", "C1: elements must be integers", "graph.matmul_integer %a, %b, %s, %t "
     ": i32[3, 5] given %a: f32[3, 4], %b: i8[4, 5], %s: f32[], %t: i8[]"),
    ("graph.matmul_integer", "C2: inner sizes", "graph.matmul_integer %a, %b, %s, %t "
     ": i32[3, 5] given %a: i8[3, 4], %b: i8[3, 5], %s: i8[], %t: i8[]"),
    ("graph.matmul_integer", "C3: i8[4] differs along the summed dim", "graph.matmul_integer %a, "
     "%b, %s, %t : i32[3, 5] given %a: i8[3, 4], %b: i8[4, 5], %s: i8[4], %t: i8[]"),

    # windows
    ("graph.conv", "C1: element types differ",
     "graph.conv %x, %w : f32[1, 4, 6] given %x: f32[1, 3, 8], %w: f16[4, 3, 3]"),
    ("graph.conv", "C2: f32[1, 3] has no spatial dims",
     "graph.conv %x, %w : f32[1, 4] given %x: f32[1, 3], %w: f32[4, 3]"),
    ("graph.conv", "C3: strides",
     "graph.conv %x, %w {strides = [0]} : f32[1, 4, 6] given %x: f32[1, 3, 8], %w: f32[4, 3, 3]"),
    ("graph.conv", "C3: the spatial sizes of the filter",
     "graph.conv %x, %w : f32[1, 4, 6] given %x: f32[1, 3, 8], %w: f32[4, 3, k]"),
    ("graph.conv", "C4: channels of f32[1, 3, 8] and f32[4, 2, 3] differ",
     "graph.conv %x, %w : f32[1, 4, 6] given %x: f32[1, 3, 8], %w: f32[4, 2, 3]"),
    ("graph.conv", "C4: group 2 does not divide 5 channels", "graph.conv %x, %w {group = 2} : "
     "f32[1, 5, 6] given %x: f32[1, 4, 8], %w: f32[5, 2, 3]"),
    ("graph.conv", "C5: bias and result channels differ", "graph.conv %x, %w, %b : f32[1, 4, 6] "
     "given %x: f32[1, 3, 8], %w: f32[4, 3, 3], %b: f32[5]"),
    ("graph.conv", "C6: ",
     "graph.conv %x, %w : f32[1, 4, 0] given %x: f32[1, 3, 8], %w: f32[4, 3, 9]"),
    ("graph.conv_transpose", "C1: element types differ",
     "graph.conv_transpose %x, %w : f32[1, 4, 8] given %x: f32[1, 3, 8], %w: f16[3, 4, 1]"),
    ("graph.conv_transpose", "C2: f32[1, 3] has no spatial dims",
     "graph.conv_transpose %x, %w : f32[1, 4] given %x: f32[1, 3], %w: f32[3, 4]"),
    ("graph.conv_transpose", "C3: output_padding", "graph.conv_transpose %x, %w "
     "{output_padding = [-1]} : f32[1, 4, 8] given %x: f32[1, 3, 8], %w: f32[3, 4, 1]"),
    ("graph.conv_transpose", "C4: channels",
     "graph.conv_transpose %x, %w : f32[1, 4, 8] given %x: f32[1, 3, 8], %w: f32[4, 4, 1]"),
    ("graph.conv_transpose", "C5: bias and result channels differ", "graph.conv_transpose %x, %w, "
     "%b : f32[1, 4, 8] given %x: f32[1, 3, 8], %w: f32[3, 4, 1], %b: f32[5]"),
    ("graph.conv_transpose", "C6: the pads 2 of spatial dim 0", "graph.conv_transpose %x, %w "
     "{pads = [1, 1]} : f32[1, 1, 1] given %x: f32[1, 3, 1], %w: f32[3, 1, 1]"),
    *(("graph.conv_filter_gradient", message, f"graph.conv_filter_gradient %x, %y {attributes} : "
       f"f32[4, 3, 3] given %x: {x}, %y: {y}") for message, attributes, x, y in (
        ("C1: element types differ", "{kernel = [3]}", "f32[1, 3, 8]", "f16[1, 4, 6]"),
        ("C2: f32[1, 3] has no spatial dims", "{kernel = [3]}", "f32[1, 3]", "f32[1, 4]"),
        ("C2: the gradient", "{kernel = [3]}", "f32[1, 3, 8]", "f32[1, 4, 6, 1]"),
        ("C3: kernel [3, 3] must be 1 numbers", "{kernel = [3, 3]}", "f32[1, 3, 8]",
         "f32[1, 4, 6]"),
        ("C3: kernel [0]", "{kernel = [0]}", "f32[1, 3, 8]", "f32[1, 4, 6]"),
        ("C4: group 2 does not divide 3 channels", "{kernel = [3], group = 2}", "f32[1, 3, 8]",
         "f32[1, 4, 6]"),
        ("C5: batches of", "{kernel = [3]}", "f32[1, 3, 8]", "f32[2, 4, 6]"),
        ("C6: 6 windows fit into spatial dim 0", "{kernel = [3]}", "f32[1, 3, 8]",
         "f32[1, 4, 7]"))),
    ("graph.conv_integer", "C1: elements of i32[1, 3, 8] have more than 16 bits",
     "graph.conv_integer %x, %w, %s, %t : i32[1, 4, 6] given %x: i32[1, 3, 8], %w: i8[4, 3, 3], "
     "%s: i32[], %t: i8[]"),
    ("graph.conv_integer", "C2: channels of",
     "graph.conv_integer %x, %w, %s, %t : i32[1, 4, 6] given %x: i8[1, 3, 8], %w: i8[4, 2, 3], "
     "%s: i8[], %t: i8[]"),
    ("graph.conv_integer", "C3: zero points and channels differ",
     "graph.conv_integer %x, %w, %s, %t : i32[1, 4, 6] given %x: i8[1, 3, 8], %w: i8[4, 3, 3], "
     "%s: i8[], %t: i8[3]"),

    # quantization
    ("graph.quantize_linear", "C1: scales are floats", "graph.quantize_linear %x, %s {to = i8} : "
     "i8[4] given %x: f32[4], %s: i32[]"),
    ("graph.quantize_linear", "C2: axis 1", "graph.quantize_linear %x, %s {to = i8, axis = 1} : "
     "i8[4] given %x: f32[4], %s: f32[4]"),
    ("graph.dequantize_linear", "C1: the zero point is ui8[], not i8", "graph.dequantize_linear "
     "%x, %s, %z {to = f32} : f32[4] given %x: i8[4], %s: f32[], %z: ui8[]"),
    ("graph.dequantize_linear", "C2: f32[3] does not fit axis 0", "graph.dequantize_linear "
     "%x, %s {to = f32, axis = 0} : f32[4] given %x: i8[4], %s: f32[3]"),
    ("graph.dequantize_linear", "C3: i32 is not a float", "graph.dequantize_linear "
     "%x, %s {to = i32} : i32[4] given %x: i8[4], %s: f32[]"),

    # normalization and recurrence
    ("graph.layer_norm", "C1: element types differ", "graph.layer_norm %x, %s {axis = 1, "
     "epsilon = 0.1} : f32[3, 4] given %x: f32[3, 4], %s: f16[4]"),
    ("graph.layer_norm", "C2: axis 2", "graph.layer_norm %x, %s {axis = 2, "
     "epsilon = 0.1} : f32[3, 4] given %x: f32[3, 4], %s: f32[4]"),
    ("graph.layer_norm", "C3: f32[3] does not broadcast to [4]", "graph.layer_norm %x, %s "
     "{axis = 1, epsilon = 0.1} : f32[3, 4] given %x: f32[3, 4], %s: f32[3]"),
    ("graph.batch_norm", "C1: elements must be floats", "graph.batch_norm %x, %p, %p, %p, %p "
     "{epsilon = 0.1} : i64[3, 4] given %x: i64[3, 4], %p: i64[4]"),
    ("graph.batch_norm", "C2: f32[3] has no channels", "graph.batch_norm %x, %p, %p, %p, %p "
     "{epsilon = 0.1} : f32[3] given %x: f32[3], %p: f32[3]"),
    ("graph.batch_norm", "C3: channels differ", "graph.batch_norm %x, %p, %p, %p, %p "
     "{epsilon = 0.1} : f32[3, 4] given %x: f32[3, 4], %p: f32[3]"),
    *(("graph.lstm", message, f'%y, %h, %c = graph.lstm {operands} {{hidden_size = 2, direction = '
       f'"{direction}"}} : {e}[5, 1, 1, 2], {e}[1, 1, 2], {e}[1, 1, 2] given %x: {e}[5, 1, 3], '
       f"%w: {e}[1, 8, 3], %r: {e}[1, 8, 2]")
      for message, operands, direction, e in (
          ("C1: elements must be floats", "%x, %w, %r", "forward", "i64"),
          ("C2: unknown direction", "%x, %w, %r", "up", "f32"),
          ("C3: f32[1, 8, 3] must be f32[1, 8, 2]", "%x, %w, %w", "forward", "f32"),
          ("C4: the flags ask for 3 operands, not 4", "%x, %w, %r, %r", "forward", "f32"))),

    # pooling: OP is graph.max_pool, graph.max_pool_indices or graph.avg_pool
    *((op, message, f"{op} {operands} {{kernel = [2, 2]{more}}} : {result} given {types}")
      for op, operands, result, bad in (
          ("graph.max_pool", "%x", "f32[1, 3, 7, 7]", "i1"),
          ("graph.max_pool_indices", "%x, %x", "i64[1, 3, 7, 7]", "i1"),
          ("graph.avg_pool", "%x", "f32[1, 3, 7, 7]", "i64"))
      for message, more, types in (
          ("C1: elements must be", "", f"%x: {bad}[1, 3, 8, 8]"),
          ("C2: the kernel [2, 2] does not fit", "", "%x: f32[1, 3, 8]"),
          ("C3: strides", ", strides = [0, 1]", "%x: f32[1, 3, 8, 8]"),
          ("C4: the pads of spatial dim 0", ", pads = [2, 0, 0, 0]", "%x: f32[1, 3, 8, 8]"),
          ("C5: ", "", "%x: f32[1, 3, 8, 1]"))),
    ("graph.max_pool_indices", "C6: y is f32[1, 3, 8, 8], not f32[1, 3, 7, 7]",
     "graph.max_pool_indices %x, %x {kernel = [2, 2]} : i64[1, 3, 7, 7] given %x: f32[1, 3, 8, 8]"),
]
