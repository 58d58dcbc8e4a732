/* Two models in one program, and states of one model in several threads: each computes its own. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "first.h"
#include "second.h"

enum { ROWS = 64, TIMES = 50 };

static float x[ROWS * 8], wanted[2][ROWS * 4];

static void *run(void *wrong) {
    static _Thread_local float y[ROWS * 4];
    first_state *one = NULL;
    second_state *other = NULL;
    strata_options options = {sizeof options, 2, NULL, NULL, NULL, NULL, 0, 0};
    options.copies = 1;
    if (first_create(&options, &one) || second_create(&options, &other)) *(int *)wrong = 1;
    for (int k = 0; k < TIMES && !*(int *)wrong; k++) {
        int64_t rows = 1 + (int64_t)(k * 7 % ROWS);
        size_t bytes = (size_t)rows * 4 * sizeof *y;
        if (first_run(one, rows, x, y) || memcmp(y, wanted[0], bytes)) *(int *)wrong = 1;
        if (second_run(other, rows, x, y) || memcmp(y, wanted[1], bytes)) *(int *)wrong = 1;
    }
    first_destroy(one);
    second_destroy(other);
    return NULL;
}

int main(void) {
    pthread_t threads[4];
    int wrong[4] = {0}, bad = 0;
    first_state *one = NULL;
    second_state *other = NULL;
    for (int k = 0; k < ROWS * 8; k++) x[k] = (float)(k % 7) / 7 - 0.4f;
    if (first_create(NULL, &one) || second_create(NULL, &other)) return 2;
    if (first_run(one, ROWS, x, wanted[0]) || second_run(other, ROWS, x, wanted[1])) return 3;
    if (memcmp(wanted[0], wanted[1], sizeof wanted[0]) == 0) return 4;
    first_destroy(one);
    second_destroy(other);
    for (int k = 0; k < 4; k++) pthread_create(&threads[k], NULL, run, &wrong[k]);
    for (int k = 0; k < 4; k++) {
        pthread_join(threads[k], NULL);
        bad += wrong[k];
    }
    printf("%d threads were wrong\n", bad);
    return bad != 0;
}
