/* What states of code for processors and for GPUs share. */

static const int64_t nothing[ALIGNMENT / 8];

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
    return posix_memalign(&found, alignment, bytes) ? NULL : found;
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
