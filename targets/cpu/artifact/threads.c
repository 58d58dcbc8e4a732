/* The threads of one state: the four functions of GCC's OpenMP runtime that compiled code calls.

   Every state has helpers of its own, which start at its first parallel region and end with it. A
   region and a barrier are numbers that go up. Whoever waits for one looks at it for a while, and
   then sleeps. */

#define LOOKS 10000      /* how often a thread looks before it sleeps: for some tenths of a ms */
#define FEW_LOOKS 100    /* the same if there are more threads than processors */
#define MOST_THREADS 1024
#define STACK_BYTES (8u << 20)
#define LINE 128

typedef struct team {
    _Alignas(LINE) _Atomic uint64_t region; /* its number, times 65536, plus its members */
    _Alignas(LINE) _Atomic uint64_t phase;
    _Alignas(LINE) _Atomic uint32_t arrived;
    _Alignas(LINE) _Atomic uint32_t sleepers;
    void (*task)(void *);
    void *context;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int32_t looks;
    int32_t places;  /* how many threads there may be, with the calling one */
    int32_t helpers; /* how many others there are */
    pid_t process;   /* the one that has started them */
    _Atomic int ends;
    struct helper {
        struct team *team;
        pthread_t thread;
        uint32_t number;
        uint64_t region; /* the one that was over when it started */
    } helper[];
} team;

/* A thread's place in a region. Compiled code calls functions without arguments. */
typedef struct seat {
    team *team;
    uint32_t number, members;
    struct STATE *state; /* on the calling thread */
} seat;

static _Thread_local seat own;

static void pause_briefly(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Wait until `word` is no longer `old`. */
static uint64_t await_change(team *t, _Atomic uint64_t *word, uint64_t old) {
    uint64_t found;
    for (int32_t k = 0; k < t->looks; k++) {
        if ((found = atomic_load_explicit(word, memory_order_acquire)) != old) return found;
        pause_briefly();
    }
    pthread_mutex_lock(&t->mutex);
    atomic_fetch_add(&t->sleepers, 1);
    while ((found = atomic_load(word)) == old) pthread_cond_wait(&t->changed, &t->mutex);
    atomic_fetch_sub(&t->sleepers, 1);
    pthread_mutex_unlock(&t->mutex);
    return found;
}

/* Change `word`, and wake who sleeps. */
static void change(team *t, _Atomic uint64_t *word, uint64_t value) {
    atomic_store(word, value);
    if (atomic_load(&t->sleepers) == 0) return;
    pthread_mutex_lock(&t->mutex);
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->mutex);
}

static void wait_for_all(void) {
    team *t = own.team;
    if (own.members < 2) return;
    uint64_t phase = atomic_load_explicit(&t->phase, memory_order_acquire);
    uint32_t before = atomic_fetch_add_explicit(&t->arrived, 1, memory_order_acq_rel);
    if (before + 1 == own.members) {
        atomic_store_explicit(&t->arrived, 0, memory_order_relaxed);
        change(t, &t->phase, phase + 1);
    } else {
        await_change(t, &t->phase, phase);
    }
}

static int32_t thread_number(void) { return (int32_t)own.number; }
static int32_t thread_count(void) { return (int32_t)own.members; }

static void *help(void *argument) {
    struct helper *self = argument;
    team *t = self->team;
    uint64_t region = self->region;
    for (;;) {
        region = await_change(t, &t->region, region);
        if (atomic_load(&t->ends)) return NULL;
        uint32_t members = (uint32_t)(region & 0xFFFF);
        if (self->number >= members) continue;
        own = (seat){t, self->number, members, NULL};
        t->task(t->context);
        wait_for_all();
    }
}

static int start_helper(team *t) {
    struct helper *next = &t->helper[t->helpers];
    next->team = t;
    next->number = (uint32_t)t->helpers + 1;
    next->region = atomic_load(&t->region);
    pthread_attr_t attributes;
    sigset_t all, before;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the program's own threads */
    int failed = pthread_create(&next->thread, &attributes, help, next);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    t->helpers += !failed;
    return !failed;
}

/* Run a task on as many threads as asked for; the calling thread is number 0. */
static void run_region(void (*task)(void *), void *context, int32_t wanted, int32_t flags) {
    (void)flags;
    team *t = own.team;
    t->task = task;
    t->context = context;
    own.members = (uint32_t)wanted;
    uint64_t number = (atomic_load_explicit(&t->region, memory_order_relaxed) >> 16) + 1;
    change(t, &t->region, number << 16 | (uint64_t)wanted);
    task(context);
    wait_for_all();
    own.members = 1;
}

/* How many of `wanted` threads a region may have now. A child made by `fork` has no helpers. */
static int32_t members_of(team *t, int32_t wanted) {
    if (wanted < 2) return 1;
    if (t->process == 0) t->process = getpid();
    if (t->process != getpid()) return 1;
    while (t->helpers + 1 < wanted && start_helper(t)) {
    }
    return t->helpers + 1 < wanted ? t->helpers + 1 : wanted;
}

/* The processors that this process may use, and that its control group grants. */
static int32_t usable_processors(void) {
    long count = sysconf(_SC_NPROCESSORS_ONLN);
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) count = CPU_COUNT(&set);
    FILE *file = fopen("/sys/fs/cgroup/cpu.max", "r");
    long quota, period;
    if (file != NULL) {
        if (fscanf(file, "%ld %ld", &quota, &period) == 2 && period > 0 && quota / period < count)
            count = quota / period;
        fclose(file);
    }
#endif
    return count < 1 ? 1 : count > MOST_THREADS ? MOST_THREADS : (int32_t)count;
}

static void start_team(team *t, int32_t threads) {
    pthread_mutex_init(&t->mutex, NULL);
    pthread_cond_init(&t->changed, NULL);
    t->places = threads;
    t->looks = threads > usable_processors() ? FEW_LOOKS : LOOKS;
}

static void end_team(team *t) {
    if (t->process == getpid()) {
        atomic_store(&t->ends, 1);
        change(t, &t->region, atomic_load(&t->region) + (1u << 16));
        for (int32_t k = 0; k < t->helpers; k++) pthread_join(t->helper[k].thread, NULL);
    }
    if (t->process == 0 || t->process == getpid()) {
        pthread_cond_destroy(&t->changed);
        pthread_mutex_destroy(&t->mutex);
    }
}
