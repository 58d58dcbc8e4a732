/* What `threads.c` offers, for systems of which we use one thread. */

typedef struct team {
    int32_t places;
    struct helper {
        int32_t number;
    } helper[];
} team;

#define LINE 128
#define MOST_THREADS 1

/* The state whose code runs. */
typedef struct seat {
    team *team;
    uint32_t number, members;
    struct STATE *state;
} seat;

static _Thread_local seat own;

static void wait_for_all(void) {}
static int32_t thread_number(void) { return 0; }
static int32_t thread_count(void) { return 1; }

static void run_region(void (*task)(void *), void *context, int32_t wanted, int32_t flags) {
    (void)wanted, (void)flags;
    task(context);
}

static int32_t members_of(team *t, int32_t wanted) {
    (void)t, (void)wanted;
    return 1;
}

static int32_t usable_processors(void) { return 1; }

static void start_team(team *t, int32_t threads) { t->places = threads; }

static void end_team(team *t) { (void)t; }
