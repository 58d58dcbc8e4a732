/* What states of code for processors and for GPUs share. */

static const int64_t nothing[ALIGNMENT / 8];

#if defined(MADV_HUGEPAGE)
/* Write to every so many bytes. Returns the nanoseconds of this thread that it took. */
static int64_t touch(char *from, const char *to, size_t step) {
    struct timespec before, after;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    for (; from < to; from += step) *(volatile char *)from = 0;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
    return (after.tv_sec - before.tv_sec) * INT64_C(1000000000) + after.tv_nsec - before.tv_nsec;
}

/* Take large pages for new memory as long as the system has some at hand, where one costs a fifth
   of as many bytes in small pages. Where it has none, it would move other memory to make them, for
   longer than small pages take: the first page that takes so long is the last large one. */
static void enlarge_pages(char *memory, size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), probes = 8;
    size_t skipped = (LARGE_PAGE - (uintptr_t)memory % LARGE_PAGE) % LARGE_PAGE;
    if (bytes < skipped + 2 * (size_t)LARGE_PAGE) return;
    char *next = memory + skipped, *end = next + (bytes - skipped) / LARGE_PAGE * LARGE_PAGE;
    int64_t most = touch(next, next + probes * page, page) * (int64_t)(LARGE_PAGE / page / probes);
    next += LARGE_PAGE;
    if (madvise(next, (size_t)(end - next), MADV_HUGEPAGE) != 0) return;
    while (next < end) {
        int64_t took = touch(next, next + 1, 1);
        next += LARGE_PAGE;
        if (took <= most || next == end) continue;
        madvise(next, (size_t)(end - next), MADV_NOHUGEPAGE);
        return;
    }
}
#else
static void enlarge_pages(char *memory, size_t bytes) { (void)memory, (void)bytes; }
#endif

#if defined(_WIN32)
static void *default_allocate(void *context, size_t alignment, size_t bytes) {
    (void)context;
    return _aligned_malloc(bytes, alignment);
}

static void default_release(void *context, void *memory) {
    (void)context;
    _aligned_free(memory);
}
#else
static void *default_allocate(void *context, size_t alignment, size_t bytes) {
    void *found = NULL;
    (void)context;
    if (posix_memalign(&found, alignment, bytes)) return NULL;
    enlarge_pages(found, bytes);
    return found;
}

static void default_release(void *context, void *memory) {
    (void)context;
    free(memory);
}
#endif

static int64_t bytes_of(int32_t rank, const int64_t *shape, int32_t dtype) {
    int64_t total = dtype_bytes[dtype];
    for (int32_t k = 0; k < rank; k++) total = product_of(total, shape[k]);
    return total;
}

/* The caller's options, of which older headers know fewer. */
static int read_options(const strata_options *given, strata_options *options) {
    memset(options, 0, sizeof *options);
    if (given == NULL) return 0;
    if (given->size < sizeof given->size + sizeof given->threads) return STRATA_BAD_ARGUMENT;
    memcpy(options, given, given->size < sizeof *options ? given->size : sizeof *options);
    return 0;
}

/* A state of zeros, in memory of the caller's allocator. */
static int new_state(const strata_options *options, STATE **made) {
    strata_allocator allocator = {default_allocate, default_release, NULL};
    if (options->allocator != NULL) allocator = *options->allocator;
    if (allocator.allocate == NULL || allocator.release == NULL) return STRATA_BAD_ARGUMENT;
    size_t bytes = (sizeof(STATE) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    STATE *s = allocator.allocate(allocator.context, ALIGNMENT, bytes);
    if (s == NULL) return STRATA_NO_MEMORY;
    memset(s, 0, sizeof *s);
    s->variant = VARIANT;
    s->allocator = allocator;
    *made = s;
    return 0;
}

static int enter(STATE *s) { return atomic_exchange(&s->busy, 1) ? STRATA_BUSY : 0; }

static int leave(STATE *s, int status) {
    if (status == 0) s->message[0] = 0;
    atomic_store(&s->busy, 0);
    return status;
}
