/* A loop that takes for ever ends when another thread, or a function that it calls, says so. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include "looped.h"

static void *cancel_soon(void *state) {
    struct timespec soon = {0, 50 * 1000 * 1000};
    nanosleep(&soon, NULL);
    looped_cancel(state);
    return NULL;
}

static int enough(void *calls) { return ++*(int *)calls > 1; }

int main(void) {
    float x[2] = {1, 2}, y[2];
    int64_t many = INT64_C(1) << 47, few = 3;
    int calls = 0;
    strata_options options = {sizeof options, 2, NULL, NULL, NULL, NULL, 0, 0};
    looped_state *state = NULL;
    pthread_t other;
    if (looped_create(&options, &state)) return 2;
    pthread_create(&other, NULL, cancel_soon, state);
    int first = looped_run(state, x, &many, y);
    pthread_join(other, NULL);
    int second = looped_run(state, x, &few, y);
    printf("%d %d %g %g\n", first, second, y[0], y[1]);
    looped_destroy(state);
    options.interrupt = enough;
    options.interrupt_context = &calls;
    if (looped_create(&options, &state)) return 3;
    int third = looped_run(state, x, &many, y);
    printf("%d %d: %s\n", third, calls, looped_message(state));
    looped_destroy(state);
    return 0;
}
