/* Runs a model on arrays from standard input, and writes its outputs to standard output.

   Of each input: dtype and rank (int32), sizes (int64), bytes (int64), data. Outputs are the same.
   The program is compiled with HEADER, and CALL(function) for the names of functions. */
#include <stdio.h>
#include <stdlib.h>
#include HEADER

static void read_all(void *memory, size_t bytes) {
    if (fread(memory, 1, bytes, stdin) != bytes) exit(3);
}

int main(void) {
    int32_t in_count = CALL(input_count)(), out_count = CALL(output_count)();
    strata_tensor *in = calloc((size_t)in_count + 1, sizeof *in);
    strata_tensor *out = calloc((size_t)out_count + 1, sizeof *out);
    for (int32_t k = 0; k < in_count; k++) {
        int64_t bytes;
        read_all(&in[k].dtype, sizeof in[k].dtype);
        read_all(&in[k].rank, sizeof in[k].rank);
        read_all(in[k].shape, (size_t)in[k].rank * sizeof *in[k].shape);
        read_all(&bytes, sizeof bytes);
        in[k].data = malloc((size_t)bytes + 8);
        read_all(in[k].data, (size_t)bytes);
    }
    CALL(state) *state = NULL;
    int status = CALL(create)(NULL, &state);
    for (int run = 0; run < 2 && status == 0; run++) /* a state is used again */
        status = CALL(call)(state, in, in_count, out, out_count);
    if (status != 0) {
        fprintf(stderr, "%s: %s\n", CALL(error_text)(status), CALL(message)(state));
        return 1;
    }
    for (int32_t k = 0; k < out_count; k++) {
        int64_t bytes = BYTES[out[k].dtype];
        for (int32_t d = 0; d < out[k].rank; d++) bytes *= out[k].shape[d];
        fwrite(&out[k].dtype, sizeof out[k].dtype, 1, stdout);
        fwrite(&out[k].rank, sizeof out[k].rank, 1, stdout);
        fwrite(out[k].shape, sizeof *out[k].shape, (size_t)out[k].rank, stdout);
        fwrite(&bytes, sizeof bytes, 1, stdout);
        fwrite(out[k].data, 1, (size_t)bytes, stdout);
    }
    CALL(destroy)(state);
    return 0;
}
