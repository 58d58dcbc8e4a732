/* Many states in many threads, with helpers of their own, and one state that several threads want;
   also programs for some sizes, which a state makes when it first needs them. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "rows.h"

#define ROWS 150
#define COLUMNS 64
#define BYTES (ROWS * COLUMNS * sizeof(float))

static float x[ROWS * COLUMNS];
static rows_state *shared;
static int wrong;

static void expect(int holds) {
    if (!holds) __atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
}

static void *own_state(void *number) {
    static const int64_t counts[] = {64, 0, 1, ROWS};
    rows_state *state = NULL;
    strata_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.threads = 1 + *(int *)number % 3;
    expect(rows_create(&options, &state) == STRATA_OK);
    float *y = malloc(BYTES);
    for (int k = 0; k < 12; k++) {
        expect(rows_run(state, counts[k % 4], x, y) == STRATA_OK);
        if (k == 6) expect(rows_set_threads(state, 3) == STRATA_OK);
    }
    free(y);
    rows_destroy(state);
    return NULL;
}

static void *shared_state(void *number) {
    float *y = malloc(BYTES);
    (void)number;
    for (int k = 0; k < 20; k++) {
        int status = rows_run(shared, ROWS, x, y);
        expect(status == STRATA_OK || status == STRATA_BUSY);
        rows_cancel(shared);
    }
    free(y);
    return NULL;
}

int main(void) {
    pthread_t threads[8];
    int numbers[8];
    for (int k = 0; k < ROWS * COLUMNS; k++) x[k] = (float)(k % 17) / 17;
    expect(rows_create(NULL, &shared) == STRATA_OK);
    for (int k = 0; k < 8; k++) {
        numbers[k] = k;
        expect(!pthread_create(&threads[k], NULL, k < 5 ? own_state : shared_state, &numbers[k]));
    }
    for (int k = 0; k < 8; k++) pthread_join(threads[k], NULL);
    rows_destroy(shared);
    printf("%d were wrong\n", wrong);
    return 0;
}
