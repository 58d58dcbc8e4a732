/* States: their memory, threads and constants. */

/* ------------------------------------------------------------------ memory */
static void *allocate(STATE *s, size_t bytes) {
    size_t whole = (bytes | 1) + (ALIGNMENT - 1 - ((bytes | 1) - 1) % ALIGNMENT);
    return whole < bytes ? NULL : s->allocator.allocate(s->allocator.context, ALIGNMENT, whole);
}

static void release(STATE *s, void *memory) {
    if (memory != NULL) s->allocator.release(s->allocator.context, memory);
}

/* Memory that grows when it must; its contents are not kept. */
static int grow(STATE *s, void **memory, size_t *bytes, size_t wanted) {
    if (*memory != NULL && *bytes >= wanted) return 0;
    release(s, *memory);
    *bytes = 0;
    *memory = allocate(s, wanted);
    if (*memory == NULL)
        return refuse(s, STRATA_NO_MEMORY, "there is not enough memory for %zu bytes", wanted);
    *bytes = wanted;
    return 0;
}

/* What compiled code calls for sizes that only a run knows, on the calling thread. */
static void *heap_allocate(uint64_t alignment, uint64_t bytes) {
    strata_allocator *a = &own.state->allocator;
    return bytes > SIZE_MAX ? NULL : a->allocate(a->context, (size_t)alignment, (size_t)bytes);
}

static void heap_release(void *memory) {
    own.state->allocator.release(own.state->allocator.context, memory);
}

static void release_blocks(STATE *s) {
    char *block;
    memcpy(&block, &s->heap[HEAP_BLOCKS], sizeof block);
    while (block != NULL) {
        char *following;
        memcpy(&following, block, sizeof following);
        release(s, block);
        block = following;
    }
    s->heap[HEAP_BLOCKS] = 0;
}

static int check_memory(STATE *s, int64_t results, int64_t arena) {
#if defined(_SC_PHYS_PAGES) && !defined(__wasm__)
    double there = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
#else
    double there = (double)SIZE_MAX;
#endif
    if (results >= 0 && arena >= 0 && (double)results + (double)arena <= there) return 0;
    return refuse(s, STRATA_NO_MEMORY, "a call needs %lld bytes for results and %lld bytes for "
                  "intermediate values; this machine has %.0f", (long long)results,
                  (long long)arena, there);
}

/* ------------------------------------------------------------------ signals of loops */
static int32_t take_lock(void) { return 0; }
static int32_t is_cancelled(void) {
    STATE *s = own.state;
    return atomic_load(&s->cancels) || (s->interrupt != NULL && s->interrupt(s->interrupt_context));
}
/* The time in seconds and nanoseconds. Systems number their clocks in different ways. */
static int32_t read_clock(int32_t number, int64_t *time) {
    struct timespec now = {0, 0};
    (void)number;
#if defined(_WIN32)
    timespec_get(&now, TIME_UTC);
#else
    clock_gettime(CLOCK_MONOTONIC, &now);
#endif
    time[0] = (int64_t)now.tv_sec;
    time[1] = (int64_t)now.tv_nsec;
    return 0;
}
static void fetch_raised(void *type, void *value, void *trace) {
    (void)type, (void)value, (void)trace;
}
static void release_lock(int32_t held) { (void)held; }

void MODEL(cancel)(STATE *s) {
    if (s == NULL) return;
    atomic_store(&s->cancels, 1);
    cancel_others(s);
}

/* The same functions of an interpreter, whose handlers may end a run. Returns the three words in
   which the third of them leaves what a handler has raised. */
int64_t *MODEL(set_signals)(STATE *s, void *const *functions) {
    if (s == NULL || functions == NULL) return NULL;
    memcpy(&s->heap[HEAP_PYTHON + 1], functions, 4 * sizeof *s->heap);
    keep_signals(s, functions);
    return &s->heap[HEAP_RAISED];
}

/* ------------------------------------------------------------------ states */
static void set_word(int64_t *word, uintptr_t value) { *word = (int64_t)value; }

static void fill_heap(STATE *s) {
    set_word(&s->heap[0], (uintptr_t)heap_allocate);
    set_word(&s->heap[1], (uintptr_t)heap_release);
    set_word(&s->heap[HEAP_PYTHON], (uintptr_t)read_clock);
    set_word(&s->heap[HEAP_PYTHON + 1], (uintptr_t)take_lock);
    set_word(&s->heap[HEAP_PYTHON + 2], (uintptr_t)is_cancelled);
    set_word(&s->heap[HEAP_PYTHON + 3], (uintptr_t)fetch_raised);
    set_word(&s->heap[HEAP_PYTHON + 4], (uintptr_t)release_lock);
}

static void fill_table(STATE *s) {
    s->table[0].at = (void *)run_region;
    s->table[1].at = (void *)wait_for_all;
    s->table[2].at = (void *)thread_number;
    s->table[3].at = (void *)thread_count;
    s->table[4].at = s->heap;
#if defined(__linux__)
    s->table[SCHEDULER_ENTRY].at = (void *)sched_getcpu;
    s->table[SCHEDULER_ENTRY + 1].at = (void *)sched_getaffinity;
    s->table[SCHEDULER_ENTRY + 2].at = (void *)sched_setaffinity;
    s->table[SCHEDULER_ENTRY + 3].at = (void *)sched_yield;
#endif
    for (int32_t k = 0; k < CONSTANTS; k++)
        s->table[FIRST_CONSTANT + k].at = (void *)(uintptr_t)(s->weights + constants[k]);
    s->call.table.at = s->table;
    s->call.sizes.at = s->words;
    s->call.threads = 1;
}

/* Threads start when they are needed, and end with the state, or if more are wanted later. */
static int set_threads(STATE *s, int32_t threads) {
    if (threads < 0) return refuse(s, STRATA_BAD_ARGUMENT, "%d threads are too few", threads);
    if (threads == 0) threads = usable_processors();
    s->threads = threads > MOST_THREADS ? MOST_THREADS : threads;
    if (s->threads == 1 || (s->team != NULL && s->threads <= s->team->places)) return 0;
    if (s->team != NULL) end_team(s->team);
    release(s, s->team);
    size_t bytes = sizeof *s->team + (size_t)s->threads * sizeof *s->team->helper;
    s->team = s->allocator.allocate(s->allocator.context, LINE, bytes + LINE - bytes % LINE);
    if (s->team == NULL) return refuse(s, STRATA_NO_MEMORY, "there is no memory for threads");
    memset(s->team, 0, bytes);
    start_team(s->team, s->threads);
    return 0;
}

/* ------------------------------------------------------------------ constants */
/* Memory of the state with the constants, in large pages where the system has them. */
static int copy_constants(STATE *s) {
    size_t bytes = (CONSTANTS_BYTES / LARGE_PAGE + 1) * LARGE_PAGE;
    s->copy = s->allocator.allocate(s->allocator.context, LARGE_PAGE, bytes);
    if (s->copy == NULL) return STRATA_NO_MEMORY;
    enlarge_pages(s->copy, bytes);
    memcpy(s->copy, s->weights, CONSTANTS_BYTES);
    close_weights(s->weights, s->mapped);
    s->weights = s->copy;
    s->mapped = 0;
    return 0;
}

/* A new state. `weights`: the constants, if another state has opened them and outlives this one. */
static int make_state(const strata_options *given, const unsigned char *weights, STATE **made) {
    strata_options options;
    STATE *s = NULL;
    if (made == NULL) return STRATA_BAD_ARGUMENT;
    *made = NULL;
    int status = read_options(given, &options);
    if (status != 0) return status;
    if (options.threads < 0) return STRATA_BAD_ARGUMENT;
    if (!has_features()) return STRATA_NO_PROCESSOR;
    status = new_state(&options, &s);
    if (status != 0) return status;
    s->interrupt = options.interrupt;
    s->interrupt_context = options.interrupt_context;
    s->weights = weights;
    if (weights == NULL) status = open_weights(options.weights, &s->weights, &s->mapped);
    if (status == 0 && options.verify) status = verify_constants(s->weights);
    if (status == 0 && options.copies) status = copy_constants(s);
    if (status == 0) status = set_threads(s, options.threads);
    if (status != 0) {
        MODEL(destroy)(s);
        return status;
    }
    fill_heap(s);
    fill_table(s);
#if OTHERS > 0
    s->chosen = -1;
#endif
    *made = s;
    return 0;
}

int MODEL(create)(const strata_options *options, STATE **state) {
    return make_state(options, NULL, state);
}

#if IS_OTHER
int MODEL(create_beside)(const strata_options *options, const unsigned char *weights,
                         STATE **made);
int MODEL(create_beside)(const strata_options *options, const unsigned char *weights,
                         STATE **made) {
    return make_state(options, weights, made);
}
#endif

void MODEL(destroy)(STATE *s) {
    if (s == NULL) return;
    destroy_others(s);
    release_blocks(s);
    if (s->team != NULL) end_team(s->team);
    release(s, s->team);
    release(s, s->arena);
    for (int32_t k = 0; k < OUTPUTS; k++) release(s, s->owned[k]);
    close_weights(s->weights, s->mapped);
    release(s, s->copy);
    s->allocator.release(s->allocator.context, s);
}

int MODEL(set_threads)(STATE *s, int32_t threads) {
    if (s == NULL) return STRATA_BAD_ARGUMENT;
    if (enter(s)) return STRATA_BUSY;
    int status = set_threads(s, threads);
    return leave(s, status == 0 ? set_threads_of_others(s) : status);
}
