/* Which memory a state asks to be in large pages: printed, as is how much of it again is not to be,
   after a page that took long. The argument is which reading of the clock jumps. The linker puts the
   clock and the advice of this program in the place of the system's. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include "wide.h"

static int64_t now, readings, jump;

int __wrap_clock_gettime(clockid_t number, struct timespec *found);
int __wrap_madvise(void *memory, size_t bytes, int advice);

int __wrap_clock_gettime(clockid_t number, struct timespec *found) {
    (void)number;
    now += ++readings == jump ? 1000000000 : 1000;
    found->tv_sec = (time_t)(now / 1000000000);
    found->tv_nsec = (long)(now % 1000000000);
    return 0;
}

int __wrap_madvise(void *memory, size_t bytes, int advice) {
    if ((uintptr_t)memory % (2u << 20)) printf("in the middle of a page: ");
    printf("%s %zu\n", advice == MADV_HUGEPAGE ? "large" : "small", bytes >> 21);
    return 0;
}

int main(int argc, char **argv) {
    static float data[8192 * 1024];
    wide_state *state = NULL;
    strata_options options = {.size = sizeof options, .threads = 1};
    strata_tensor x = {data, sizeof data, STRATA_F32, 2, {8192, 1024}}, y = {.dtype = STRATA_F32};
    jump = argc > 1 ? atoll(argv[1]) : 0;
    for (int k = 0; k < 8192 * 1024; k++) data[k] = (float)k;
    int status = wide_create(&options, &state);
    if (status == STRATA_OK) status = wide_call(state, &x, 1, &y, 1);
    if (status != STRATA_OK) printf("%s\n", wide_message(state));
    const float *found = y.data;
    for (int k = 0; k < 8192 * 1024 && status == STRATA_OK; k++)
        if (found[k] != data[k] + 1) status = printf("element %d is wrong\n", k);
    wide_destroy(state);
    return status != STRATA_OK;
}
