/* The inputs of a model from standard input: of each, dtype and rank (int32), sizes (int64),
   bytes (int64), data. Include a model's header first. */
#include <stdio.h>
#include <stdlib.h>

static void read_all(void *memory, size_t bytes) {
    if (fread(memory, 1, bytes, stdin) != bytes) exit(3);
}

static void read_inputs(strata_tensor *in, int32_t in_count) {
    for (int32_t k = 0; k < in_count; k++) {
        int64_t bytes;
        read_all(&in[k].dtype, sizeof in[k].dtype);
        read_all(&in[k].rank, sizeof in[k].rank);
        read_all(in[k].shape, (size_t)in[k].rank * sizeof *in[k].shape);
        read_all(&bytes, sizeof bytes);
        in[k].data = malloc((size_t)bytes + 8);
        read_all(in[k].data, (size_t)bytes);
    }
}
