/* Other programs of the model, each for some sizes: the first that takes the sizes of a call runs. */

#if OTHERS > 0
/* The state of another program, which is made when it is first asked; null if that fails. */
static void *other_state(STATE *s, int32_t k) {
    void *found = atomic_load(&s->others[k]);
    if (found != NULL) return found;
    strata_options options = {sizeof options, s->threads, &s->allocator, NULL, s->interrupt,
                              s->interrupt_context, 0, 0};
    if (other_create(k, &options, s->weights, &found) != 0) return NULL;
    if (s->signals[0] != NULL) s->raised[k] = other_set_signals(k, found, s->signals);
    atomic_store(&s->others[k], found);
    return found;
}

static int is_declined(int status) {
    return status == STRATA_BAD_SHAPE || status == STRATA_BAD_SIZES || status == STRATA_OTHER_CODE;
}

/* Take over what another program says about a call. */
static int heard(STATE *s, int32_t k, int status) {
    void *state = atomic_load(&s->others[k]);
    if (status != 0) snprintf(s->message, sizeof s->message, "%s", other_message(k, state));
    if (status == STRATA_CANCELLED && s->raised[k] != NULL)
        memcpy(&s->heap[HEAP_RAISED], s->raised[k], 3 * sizeof *s->heap);
    return status;
}

/* Bind the arrays to the first program that takes them, or ask it for shapes. Returns -1 if none
   does. */
static int ask_others(STATE *s, const strata_tensor *in, int32_t in_count, strata_tensor *out,
                      int32_t out_count, int binds) {
    s->chosen = -1;
    s->outputs = NULL;
    for (int32_t k = 0; k < OTHERS; k++) {
        void *state = other_state(s, k);
        if (state == NULL) continue;
        int status = binds ? other_bind(k, state, in, in_count, out, out_count)
                           : other_shapes(k, state, in, in_count, out, out_count);
        if (is_declined(status)) continue;
        if (status == 0 && binds) {
            s->chosen = k;
            s->outputs = out;
            for (int32_t n = 0; n < SIZES; n++) s->sizes[n] = other_size(k, state, n);
        }
        return heard(s, k, status);
    }
    return -1;
}

static int run_chosen(STATE *s, void *const *data) {
    int32_t k = s->chosen;
    void *state = atomic_load(&s->others[k]);
    return heard(s, k, data == NULL ? other_run_bound(k, state) : other_run_at(k, state, data));
}

static void cancel_others(STATE *s) {
    for (int32_t k = 0; k < OTHERS; k++) {
        void *state = atomic_load(&s->others[k]);
        if (state != NULL) other_cancel(k, state);
    }
}

static void destroy_others(STATE *s) {
    for (int32_t k = 0; k < OTHERS; k++) other_destroy(k, atomic_load(&s->others[k]));
}

static int set_threads_of_others(STATE *s) {
    int status = 0;
    for (int32_t k = 0; k < OTHERS && status == 0; k++) {
        void *state = atomic_load(&s->others[k]);
        if (state != NULL) status = heard(s, k, other_set_threads(k, state, s->threads));
    }
    return status;
}

static void keep_signals(STATE *s, void *const *functions) {
    memcpy(s->signals, functions, sizeof s->signals);
    for (int32_t k = 0; k < OTHERS; k++) {
        void *state = atomic_load(&s->others[k]);
        if (state != NULL) s->raised[k] = other_set_signals(k, state, functions);
    }
}

static int is_chosen(const STATE *s) { return s->chosen >= 0; }
#else
static int ask_others(STATE *s, const strata_tensor *in, int32_t in_count, strata_tensor *out,
                      int32_t out_count, int binds) {
    (void)s, (void)in, (void)in_count, (void)out, (void)out_count, (void)binds;
    return -1;
}
static int run_chosen(STATE *s, void *const *data) { return (void)s, (void)data, 0; }
static void cancel_others(STATE *s) { (void)s; }
static void destroy_others(STATE *s) { (void)s; }
static int set_threads_of_others(STATE *s) { return (void)s, 0; }
static void keep_signals(STATE *s, void *const *functions) { (void)s, (void)functions; }
static int is_chosen(const STATE *s) { return (void)s, 0; }
#endif
