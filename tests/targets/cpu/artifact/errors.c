/* What a model of x: f32[n, 8] to y: f32[n, 4] refuses, and that nothing leaks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "mlp.h"

static int failures;

#define EXPECT(wanted, found)                                                                  \
    do {                                                                                       \
        int got = (found);                                                                     \
        if (got != (wanted)) {                                                                 \
            printf("line %d: status %d, not %d\n", __LINE__, got, (wanted));                   \
            failures++;                                                                        \
        }                                                                                      \
    } while (0)

#define SAYS(text)                                                                             \
    do {                                                                                       \
        if (strcmp(mlp_message(state), (text)) != 0) {                                         \
            printf("line %d: the message is '%s'\n", __LINE__, mlp_message(state));            \
            failures++;                                                                        \
        }                                                                                      \
    } while (0)

/* An allocator that counts, and fails from the n-th allocation on. */
typedef struct counter {
    int left, alive;
} counter;

static void *take(void *context, size_t alignment, size_t bytes) {
    counter *c = context;
    void *found = c->left-- > 0 ? aligned_alloc(alignment, bytes) : NULL;
    c->alive += found != NULL;
    return found;
}

static void give(void *context, void *memory) {
    ((counter *)context)->alive -= memory != NULL;
    free(memory);
}

static strata_tensor tensor(void *data, size_t bytes, int32_t dtype, int64_t n, int64_t m) {
    strata_tensor t = {data, bytes, dtype, 2, {n, m}};
    return t;
}

static void check_arguments(mlp_state *state) {
    static float x[3 * 8], y[3 * 4];
    strata_tensor in = tensor(x, sizeof x, STRATA_F32, 3, 8), out = {y, sizeof y, 0, 0, {0}};
    EXPECT(STRATA_OK, mlp_call(state, &in, 1, &out, 1));
    SAYS("");
    EXPECT(STRATA_BAD_COUNT, mlp_call(state, &in, 0, &out, 1));
    EXPECT(STRATA_BAD_COUNT, mlp_call(state, &in, 1, &out, 2));
    SAYS("the model has 1 inputs and 1 outputs, not 1 and 2");
    EXPECT(STRATA_BAD_ARGUMENT, mlp_call(state, NULL, 1, &out, 1));
    EXPECT(STRATA_BAD_ARGUMENT, mlp_call(NULL, &in, 1, &out, 1));
    in.dtype = STRATA_F64;
    EXPECT(STRATA_BAD_DTYPE, mlp_call(state, &in, 1, &out, 1));
    SAYS("input 'x' must be f32, not f64");
    in.dtype = 12345;
    EXPECT(STRATA_BAD_DTYPE, mlp_call(state, &in, 1, &out, 1));
    in = tensor(x, sizeof x, STRATA_F32, 3, 7);
    EXPECT(STRATA_BAD_SHAPE, mlp_call(state, &in, 1, &out, 1));
    SAYS("dim 1 of input 'x' is 7 but must be 8");
    in.rank = 3;
    EXPECT(STRATA_BAD_SHAPE, mlp_call(state, &in, 1, &out, 1));
    in.rank = -1;
    EXPECT(STRATA_BAD_SHAPE, mlp_call(state, &in, 1, &out, 1));
    in = tensor(x, sizeof x, STRATA_F32, -3, 8);
    EXPECT(STRATA_BAD_SHAPE, mlp_call(state, &in, 1, &out, 1));
    SAYS("dim 0 of input 'x' is -3 but must be from 0 to 281474976710656");
    in = tensor(x, sizeof x, STRATA_F32, INT64_MAX, 8);
    EXPECT(STRATA_BAD_SHAPE, mlp_call(state, &in, 1, &out, 1));
    in = tensor(x, 0, STRATA_F32, INT64_C(1) << 44, 8);
    EXPECT(STRATA_NO_MEMORY, mlp_call(state, &in, 1, &out, 1));
    in = tensor(x, sizeof x - 1, STRATA_F32, 3, 8);
    EXPECT(STRATA_TOO_SMALL, mlp_call(state, &in, 1, &out, 1));
    SAYS("input 'x' has 96 bytes, and its memory 95");
    EXPECT(STRATA_OK, mlp_shapes(state, &in, 1, &out, 1));
    out = tensor(y, sizeof y, 0, 0, 0);
    in = tensor(NULL, 0, STRATA_F32, 3, 8);
    EXPECT(STRATA_BAD_ARGUMENT, mlp_call(state, &in, 1, &out, 1));
    in = tensor((char *)x + 1, 0, STRATA_F32, 2, 8);
    EXPECT(STRATA_BAD_ALIGNMENT, mlp_call(state, &in, 1, &out, 1));
    in = tensor(x, sizeof x, STRATA_F32, 3, 8);
    out = tensor(y, sizeof y - 1, 0, 0, 0);
    EXPECT(STRATA_TOO_SMALL, mlp_call(state, &in, 1, &out, 1));
    SAYS("output 'y' has 48 bytes, and its memory 47");
    out = tensor(x, sizeof x, 0, 0, 0);
    EXPECT(STRATA_BAD_ARGUMENT, mlp_call(state, &in, 1, &out, 1));
    SAYS("the memory of output 'y' overlaps that of input 'x'");
    out = tensor(x + 23, sizeof y, 0, 0, 0);
    EXPECT(STRATA_BAD_ARGUMENT, mlp_bind(state, &in, 1, &out, 1));
    EXPECT(STRATA_NOT_BOUND, mlp_run_bound(state));
    out = tensor(y, sizeof y, STRATA_I64, 0, 0);
    EXPECT(STRATA_BAD_DTYPE, mlp_call(state, &in, 1, &out, 1));
    out = tensor((char *)y + 1, sizeof y - 1, 0, 0, 0);
    in = tensor(x, sizeof x, STRATA_F32, 2, 8);
    EXPECT(STRATA_BAD_ALIGNMENT, mlp_call(state, &in, 1, &out, 1));
    EXPECT(STRATA_NOT_BOUND, mlp_run_bound(state));
    EXPECT(STRATA_BAD_ARGUMENT, mlp_run(state, 3, x, NULL));
    EXPECT(STRATA_BAD_SHAPE, mlp_run(state, -1, x, y));
    EXPECT(STRATA_OK, mlp_run(state, 0, NULL, y));
    EXPECT(STRATA_BAD_ARGUMENT, mlp_set_threads(state, -1));
    EXPECT(STRATA_OK, mlp_set_threads(state, 3));
    EXPECT(STRATA_OK, mlp_run(state, 3, x, y));
    out = tensor(NULL, 0, 0, 0, 0);
    EXPECT(STRATA_OK, mlp_call(state, &in, 1, &out, 1));
    if (out.data == NULL || out.shape[0] != 2 || out.shape[1] != 4 || out.rank != 2) failures++;
    if (mlp_size(state, 0) != 2 || mlp_size(state, 1) != -1) failures++;
}

static void check_questions(void) {
    const strata_port *x = mlp_input(0);
    if (x == NULL || strcmp(x->name, "x") != 0 || strcmp(x->type, "f32[n, 8]") != 0 ||
        x->shape[0] != -1 || x->shape[1] != 8 || x->dtype != STRATA_F32)
        failures++;
    if (mlp_input(1) != NULL || mlp_output(-1) != NULL || strcmp(mlp_size_name(0), "n") != 0)
        failures++;
    if (strcmp(mlp_error_text(-1), mlp_error_text(1000)) != 0) failures++;
    for (int k = 0; k <= STRATA_NOT_BOUND; k++)
        if (strcmp(mlp_error_text(k), mlp_error_text(-1)) == 0) failures++;
}

static void check_options(void) {
    mlp_state *state = NULL;
    strata_options options = {sizeof options, -1, NULL, NULL, NULL, NULL, 0, 0};
    strata_allocator nothing = {NULL, NULL, NULL};
    EXPECT(STRATA_BAD_ARGUMENT, mlp_create(NULL, NULL));
    EXPECT(STRATA_BAD_ARGUMENT, mlp_create(&options, &state));
    options.threads = 1;
    options.allocator = &nothing;
    EXPECT(STRATA_BAD_ARGUMENT, mlp_create(&options, &state));
    options.size = 0;
    EXPECT(STRATA_BAD_ARGUMENT, mlp_create(&options, &state));
    mlp_destroy(NULL);
}

/* Every allocation fails once: the status says so, and everything is released. */
static void check_memory(int32_t threads, int32_t copies) {
    static float x[200 * 8], y[200 * 4];
    for (int n = 0, status = STRATA_NO_MEMORY; status != STRATA_OK; n++) {
        counter c = {n, 0};
        strata_allocator allocator = {take, give, &c};
        strata_options options = {sizeof options, threads, &allocator, NULL,
                                    NULL, NULL, copies, 1};
        mlp_state *state = NULL;
        status = mlp_create(&options, &state);
        if (status == STRATA_OK) status = mlp_run(state, 200, x, y);
        if (status != STRATA_OK) EXPECT(STRATA_NO_MEMORY, status);
        mlp_destroy(state);
        if (c.alive != 0 || n > 50) {
            printf("%d blocks are left after %d allocations\n", c.alive, n);
            failures++;
            return;
        }
    }
}

int main(void) {
    mlp_state *state = NULL;
    EXPECT(STRATA_OK, mlp_create(NULL, &state));
    check_arguments(state);
    mlp_destroy(state);
    check_questions();
    check_options();
    check_memory(1, 0);
    check_memory(2, 0);
    check_memory(2, 1);
    printf("%d failures\n", failures);
    return failures != 0;
}
