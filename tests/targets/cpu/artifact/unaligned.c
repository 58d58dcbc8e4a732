/* Inputs and a large output at addresses that only their elements allow. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "wide.h"

#define COUNT (1 << 23)

int main(void) {
    float *x = malloc((COUNT + 32) * sizeof *x), *y = malloc((COUNT + 32) * sizeof *y);
    wide_state *state = NULL;
    int wrong = wide_create(NULL, &state) != STRATA_OK;
    for (int shift = 0; shift < 3; shift++) {
        float *in = x + 1 + shift, *out = y + 1 + 5 * shift;
        for (int k = 0; k < COUNT; k++) in[k] = (float)(k % 1000);
        memset(y, 0, (COUNT + 32) * sizeof *y);
        wrong += wide_run(state, in, out) != STRATA_OK;
        for (int k = 0; k < COUNT; k++) wrong += out[k] != in[k] + 1;
        wrong += out[-1] != 0 || out[COUNT] != 0;
    }
    wide_destroy(state);
    free(x);
    free(y);
    printf("%d were wrong\n", wrong);
    return 0;
}
