/* Every allocation of a state and of a call fails once: alone, or with all that follow. The status
   says so, nothing leaks, and the state computes again when there is memory.

   Inputs come from standard input, as for feed.c; arguments: threads, whether constants are copied.
   The program is compiled with HEADER, and CALL(function) for the names of functions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include HEADER
#include "arrays.h"

typedef struct counter {
    int64_t next, fails_at, stays, alive;
} counter;

static void *take(void *context, size_t alignment, size_t bytes) {
    counter *c = context;
    int64_t n = c->next++;
    if (n == c->fails_at || (c->stays && n > c->fails_at)) return NULL;
    c->alive++;
    return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void give(void *context, void *memory) {
    ((counter *)context)->alive -= memory != NULL;
    free(memory);
}

static int32_t in_count, out_count;
static strata_tensor *in, *out, *wanted;

static int64_t bytes_of(const strata_tensor *t) {
    int64_t bytes = BYTES[t->dtype];
    for (int32_t d = 0; d < t->rank; d++) bytes *= t->shape[d];
    return bytes;
}

static int run(CALL(state) *state) {
    memset(out, 0, (size_t)out_count * sizeof *out);
    return CALL(call)(state, in, in_count, out, out_count);
}

static int is_right(void) {
    for (int32_t k = 0; k < out_count; k++)
        if (memcmp(out[k].shape, wanted[k].shape, sizeof out[k].shape) ||
            memcmp(out[k].data, wanted[k].data, (size_t)bytes_of(&out[k])))
            return 0;
    return 1;
}

/* Whether the n-th allocation was reached. */
static int try_once(strata_options *options, counter *c) {
    CALL(state) *state = NULL;
    int status = CALL(create)(options, &state);
    if (status == STRATA_OK) status = run(state);
    int reached = c->next > c->fails_at;
    if (status != STRATA_OK && (status != STRATA_NO_MEMORY || !reached))
        printf("allocation %lld: status %d\n", (long long)c->fails_at, status);
    if (status == STRATA_OK && !is_right())
        printf("allocation %lld: other results\n", (long long)c->fails_at);
    c->fails_at = INT64_MAX;
    if (state != NULL && (run(state) != STRATA_OK || !is_right()))
        printf("with memory again: %s\n", CALL(message)(state));
    CALL(destroy)(state);
    if (c->alive != 0) printf("%lld blocks are left\n", (long long)c->alive);
    return reached;
}

int main(int argc, char **argv) {
    in_count = CALL(input_count)(), out_count = CALL(output_count)();
    in = calloc((size_t)in_count + 1, sizeof *in);
    out = calloc((size_t)out_count + 1, sizeof *out);
    wanted = calloc((size_t)out_count + 1, sizeof *out);
    read_inputs(in, in_count);
    CALL(state) *state = NULL;
    if (CALL(create)(NULL, &state) != 0 || run(state) != 0) return 2;
    memcpy(wanted, out, (size_t)out_count * sizeof *out);
    int64_t most = 0;
    for (int64_t stays = 0; stays < 2; stays++)
        for (int64_t n = 0;; n++) {
            counter c = {0, n, stays, 0};
            strata_allocator allocator = {take, give, &c};
            strata_options options = {sizeof options, argc > 1 ? atoi(argv[1]) : 1, &allocator, NULL,
                                      NULL, NULL, argc > 2 ? atoi(argv[2]) : 0, 1};
            if (!try_once(&options, &c)) break;
            most = n + 1;
            if (n > 5000) return 4;
        }
    printf("%s\n", most > 1 ? "every allocation failed" : "nothing was allocated");
    CALL(destroy)(state);
    for (int32_t k = 0; k < in_count; k++) free(in[k].data);
    free(in), free(out), free(wanted);
    return 0;
}
