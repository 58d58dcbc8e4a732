/* Runs a model on arrays from standard input, and writes its outputs to standard output.

   Inputs are as in arrays.h, and outputs are the same.
   The program is compiled with HEADER, and CALL(function) for the names of functions. */
#include <stdio.h>
#include <stdlib.h>
#include HEADER
#include "arrays.h"

int main(void) {
    int32_t in_count = CALL(input_count)(), out_count = CALL(output_count)();
    strata_tensor *in = calloc((size_t)in_count + 1, sizeof *in);
    strata_tensor *out = calloc((size_t)out_count + 1, sizeof *out);
    read_inputs(in, in_count);
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
