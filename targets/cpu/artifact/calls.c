/* Calls: arguments and results around one run of the compiled code. */

/* ------------------------------------------------------------------ calls */
static int check_tensor(STATE *s, const char *what, const strata_port *port, const strata_tensor *t,
                        int64_t bytes) {
    int64_t element = dtype_bytes[port->dtype];
    if (t->data == NULL && bytes > 0)
        return refuse(s, STRATA_BAD_ARGUMENT, "the data of %s '%s' are null", what, port->name);
    if ((uintptr_t)t->data % (uintptr_t)element != 0)
        return refuse(s, STRATA_BAD_ALIGNMENT, "%s '%s' must be aligned to %lld bytes", what,
                      port->name, (long long)element);
    return 0;
}

/* `(2, 3)`, as Python shows shapes. */
static int refuse_rank(STATE *s, const strata_port *port, const strata_tensor *t) {
    char text[256];
    int32_t rank = t->rank < 0 ? 0 : t->rank > STRATA_MOST_DIMS ? STRATA_MOST_DIMS : t->rank;
    size_t used = 0;
    for (int32_t d = 0; d < rank && used < sizeof text; d++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%lld%s", d ? ", " : "",
                                 (long long)t->shape[d], rank == 1 ? "," : "");
    text[used < sizeof text ? used : sizeof text - 1] = 0;
    return refuse(s, STRATA_BAD_SHAPE, "input '%s' must have %d dims, %s, not (%s)", port->name,
                  port->rank, port->type, text);
}

static int check_input(STATE *s, const strata_port *port, const strata_tensor *t, int has_data) {
    if (t->dtype != port->dtype)
        return refuse(s, STRATA_BAD_DTYPE, "input '%s' must be %s, not %s", port->name,
                      dtype_name(port->dtype), dtype_name(t->dtype));
    if (t->rank != port->rank) return refuse_rank(s, port, t);
    for (int32_t d = 0; d < t->rank; d++)
        if (t->shape[d] < 0 || t->shape[d] > MOST_SIZE)
            return refuse(s, STRATA_BAD_SHAPE, "dim %d of input '%s' is %lld", d, port->name,
                          (long long)t->shape[d]);
    int64_t bytes = bytes_of(t->rank, t->shape, port->dtype);
    if (bytes == INT64_MAX)
        return refuse(s, STRATA_BAD_SHAPE, "no memory holds input '%s'", port->name);
    return has_data ? check_tensor(s, "input", port, t, bytes) : 0;
}

/* Give an output that is known before the run its shape and memory. */
static int place_output(STATE *s, int32_t k, strata_tensor *t, int64_t bytes) {
    const strata_port *port = &outputs[k];
    if (t->data == NULL) {
        int status = grow(s, &s->owned[k], &s->owned_bytes[k], (size_t)bytes);
        t->data = s->owned[k];
        t->bytes = s->owned_bytes[k];
        return status;
    }
    if (t->bytes < (size_t)bytes)
        return refuse(s, STRATA_TOO_SMALL, "output '%s' has %lld bytes, and its memory %zu",
                      port->name, (long long)bytes, t->bytes);
    return check_tensor(s, "output", port, t, bytes);
}

/* Describe the outputs for the sizes that are bound. Returns the bytes of each, 0 for those that
   only the run knows. */
static int describe_outputs(STATE *s, strata_tensor *given, int64_t *bytes) {
    for (int32_t k = 0; k < OUTPUTS; k++) {
        strata_tensor *t = &given[k];
        if (t->dtype != STRATA_ANY && t->dtype != outputs[k].dtype)
            return refuse(s, STRATA_BAD_DTYPE, "output '%s' is %s, not %s", outputs[k].name,
                          dtype_name(outputs[k].dtype), dtype_name(t->dtype));
        t->dtype = outputs[k].dtype;
        t->rank = outputs[k].rank;
        memcpy(t->shape, outputs[k].shape, sizeof t->shape);
        if (late_words[k] < 0) output_shape(k, s->sizes, t->shape);
        bytes[k] = late_words[k] < 0 ? bytes_of(t->rank, t->shape, t->dtype) : 0;
    }
    return 0;
}

static int bind_outputs(STATE *s, strata_tensor *given) {
    int64_t results = 0, bytes[OUTPUTS + 1], arena = arena_bytes(s->sizes);
    int status = describe_outputs(s, given, bytes);
    if (status != 0) return status;
    for (int32_t k = 0; k < OUTPUTS; k++) results = sum_of(results, bytes[k]);
    status = check_memory(s, results, arena);
    if (status == 0) status = grow(s, &s->arena, &s->arena_bytes, (size_t)arena);
    for (int32_t k = 0, place = FIRST_OUTPUT; k < OUTPUTS && status == 0; k++) {
        if (late_words[k] >= 0) continue;
        status = place_output(s, k, &given[k], bytes[k]);
        s->table[place++].at = given[k].data == NULL ? (void *)(uintptr_t)nothing : given[k].data;
    }
    return status;
}

static int check_assumptions(STATE *s) {
    int64_t values[MOST_SYMBOLS + 1];
    for (int32_t k = 0; k < ASSUMPTIONS; k++)
        if (read_sizes(s, &assumptions[k], values) && !holds(&assumptions[k], values))
            return broken(s, &assumptions[k], values);
    return 0;
}

static int bind_inputs(STATE *s, const strata_tensor *in, int32_t in_count,
                       const strata_tensor *out, int32_t out_count, int has_data) {
    s->outputs = NULL;
    if (in_count != INPUTS || out_count != OUTPUTS)
        return refuse(s, STRATA_BAD_COUNT, "the model has %d inputs and %d outputs, not %d and %d",
                      INPUTS, OUTPUTS, in_count, out_count);
    if ((in == NULL && INPUTS > 0) || (out == NULL && OUTPUTS > 0))
        return refuse(s, STRATA_BAD_ARGUMENT, "the inputs or the outputs are null");
    for (int32_t k = 0; k < INPUTS; k++) {
        int status = check_input(s, &inputs[k], &in[k], has_data);
        if (status != 0) return status;
        s->table[FIRST_ARGUMENT + k].at =
            in[k].data == NULL ? (void *)(uintptr_t)nothing : in[k].data;
    }
    int status = bind_sizes(s, in, s->sizes);
    return status == 0 ? check_assumptions(s) : status;
}

static int bind(STATE *s, const strata_tensor *in, int32_t in_count, strata_tensor *out,
                int32_t out_count) {
    int status = bind_inputs(s, in, in_count, out, out_count, 1);
    if (status == 0) status = bind_outputs(s, out);
    if (status != 0) return status;
    for (int32_t k = 0; k < ENTRY_SIZES; k++)
        s->words[k] = entry_sizes[k] < 0 ? 0 : s->sizes[entry_sizes[k]];
    s->call.arena.at = s->arena;
    s->outputs = out;
    return 0;
}

/* The error of a check that failed during the run. */
static int failed(STATE *s) {
    const check *c = &checks[s->heap[HEAP_CHECK]];
    const int64_t *seen = &s->heap[HEAP_SEEN];
    int64_t values[MOST_SYMBOLS + 1];
    switch (c->kind) {
    case CHECK_ASSUMPTION:
        for (int32_t k = 0; k < ASSUMPTIONS; k++)
            if (assumptions[k].other != NULL && read_sizes(s, &assumptions[k], values) &&
                !holds(&assumptions[k], values))
                return broken(s, &assumptions[k], values);
        return broken(s, c->assumption, seen);
    case CHECK_INDEX:
        if (seen[1] >= seen[2])
            return refuse(s, STRATA_BAD_INDEX, "an index%s%s%s is %lld at node '%s'; there is "
                          "nothing to index", c->label[0] ? " of '" : "", c->label,
                          c->label[0] ? "'" : "", (long long)seen[0], c->node);
        return refuse(s, STRATA_BAD_INDEX, "an index%s%s%s is %lld at node '%s'; it must be from "
                      "%lld to %lld", c->label[0] ? " of '" : "", c->label, c->label[0] ? "'" : "",
                      (long long)seen[0], c->node, (long long)seen[1], (long long)seen[2] - 1);
    case CHECK_ACCESS:
        if (seen[0] < 1 || seen[0] > c->texts)
            return refuse(s, STRATA_BAD_ACCESS, "a check stored the unknown number %lld",
                          (long long)seen[0]);
        return refuse(s, STRATA_BAD_ACCESS, "%s", c->text[seen[0] - 1]);
    case CHECK_SIZE:
        return refuse(s, STRATA_BAD_SIZES, "a size computed at node '%s' is %lld; it must be from 0 "
                      "to %lld", c->node, (long long)seen[0], (long long)MOST_SIZE);
    case CHECK_STACK:
        return refuse(s, STRATA_BAD_SIZES, "the values that the loop at node '%s' stacks have "
                      "different shapes", c->node);
    case CHECK_SIGNAL:
        s->heap[HEAP_INTERRUPT] = 0;
        return refuse(s, STRATA_CANCELLED, "the call was cancelled in the loop at node '%s'",
                      c->node);
    default:
        if (seen[0] < 0 || seen[0] > MOST_BYTES)
            return refuse(s, STRATA_NO_MEMORY, "there is not enough memory at node '%s', which "
                          "needs too many bytes", c->node);
        return refuse(s, STRATA_NO_MEMORY, "there is not enough memory at node '%s', which needs "
                      "%lld bytes", c->node, (long long)seen[0]);
    }
}

/* Copy the outputs that the run allocated to the caller, or lend them until the next call. */
static int fetch_outputs(STATE *s) {
    for (int32_t k = 0; k < OUTPUTS; k++) {
        if (late_words[k] < 0) continue;
        strata_tensor *t = &s->outputs[k];
        const int64_t *words = &s->heap[HEAP_RESULTS + late_words[k]];
        memcpy(t->shape, words + 1, (size_t)t->rank * sizeof *words);
        int64_t bytes = bytes_of(t->rank, t->shape, t->dtype);
        void *found = (void *)(uintptr_t)words[0];
        if (t->data == NULL || s->is_lent[k]) {
            s->is_lent[k] = 1;
            t->data = found;
            t->bytes = (size_t)bytes;
            continue;
        }
        if (t->bytes < (size_t)bytes)
            return refuse(s, STRATA_TOO_SMALL, "output '%s' has %lld bytes, and its memory %zu",
                          outputs[k].name, (long long)bytes, t->bytes);
        memcpy(t->data, found, (size_t)bytes);
    }
    return 0;
}

static void poison(STATE *s) {
    memset(s->arena, 0xFF, s->arena_bytes);
    for (int32_t k = 0; k < OUTPUTS; k++)
        if (late_words[k] < 0 && s->outputs[k].data != NULL)
            memset(s->outputs[k].data, 0xFF, (size_t)bytes_of(
                s->outputs[k].rank, s->outputs[k].shape, s->outputs[k].dtype));
}

static int run_code(STATE *s) {
    if (STEPS == 0) return strata_entry(&s->call);
    for (int32_t step = 0; step < STEPS; step++) {
        s->words[ENTRY_SIZES] = step;
        if (strata_entry(&s->call)) return 1;
    }
    return 0;
}

static int run_bound(STATE *s) {
    if (s->outputs == NULL) return refuse(s, STRATA_NOT_BOUND, "nothing is bound to the state");
    release_blocks(s);
    if (POISONS) poison(s);
    atomic_store(&s->cancels, 0);
    seat before = own;
    own = (seat){s->team, 0, 1, s};
    s->call.threads = s->team == NULL ? 1 : members_of(s->team, s->threads);
    int status = run_code(s);
    own = before;
    if (status == 0) return fetch_outputs(s);
    status = failed(s);
    release_blocks(s);
    return status;
}

int MODEL(shapes)(STATE *s, const strata_tensor *in, int32_t in_count, strata_tensor *out,
                  int32_t out_count) {
    int64_t bytes[OUTPUTS + 1];
    if (s == NULL) return STRATA_BAD_ARGUMENT;
    if (enter(s)) return STRATA_BUSY;
    int status = bind_inputs(s, in, in_count, out, out_count, 0);
    if (status == 0) status = describe_outputs(s, out, bytes);
    for (int32_t k = 0; k < OUTPUTS && status == 0; k++)
        out[k].bytes = late_words[k] < 0 ? (size_t)bytes[k] : SIZE_MAX;
    return leave(s, status);
}

int MODEL(bind)(STATE *s, const strata_tensor *in, int32_t in_count, strata_tensor *out,
                int32_t out_count) {
    if (s == NULL) return STRATA_BAD_ARGUMENT;
    if (enter(s)) return STRATA_BUSY;
    memset(s->is_lent, 0, sizeof s->is_lent);
    return leave(s, bind(s, in, in_count, out, out_count));
}

int MODEL(run_bound)(STATE *s) {
    if (s == NULL) return STRATA_BAD_ARGUMENT;
    if (enter(s)) return STRATA_BUSY;
    return leave(s, run_bound(s));
}

int MODEL(call)(STATE *s, const strata_tensor *in, int32_t in_count, strata_tensor *out,
                int32_t out_count) {
    if (s == NULL) return STRATA_BAD_ARGUMENT;
    if (enter(s)) return STRATA_BUSY;
    memset(s->is_lent, 0, sizeof s->is_lent);
    int status = bind(s, in, in_count, out, out_count);
    return leave(s, status == 0 ? run_bound(s) : status);
}

/* Put other memory in the place of what is bound. */
static int replace(STATE *s, void *const *data) {
    if (s->outputs == NULL) return refuse(s, STRATA_NOT_BOUND, "nothing is bound to the state");
    for (int32_t k = 0, place = FIRST_ARGUMENT; k < INPUTS + OUTPUTS; k++) {
        int is_input = k < INPUTS;
        if (!is_input && late_words[k - INPUTS] >= 0) continue;
        const strata_port *port = is_input ? &inputs[k] : &outputs[k - INPUTS];
        if (data[k] == NULL || (uintptr_t)data[k] % (uintptr_t)dtype_bytes[port->dtype] != 0)
            return refuse(s, data[k] == NULL ? STRATA_BAD_ARGUMENT : STRATA_BAD_ALIGNMENT,
                          "the address of '%s' is null, or not aligned", port->name);
        if (!is_input) s->outputs[k - INPUTS].data = data[k];
        s->table[place++].at = data[k];
    }
    return 0;
}

int MODEL(run_at)(STATE *s, void *const *data) {
    if (s == NULL || (data == NULL && INPUTS + OUTPUTS > 0)) return STRATA_BAD_ARGUMENT;
    if (enter(s)) return STRATA_BUSY;
    int status = replace(s, data);
    return leave(s, status == 0 ? run_bound(s) : status);
}

/* ------------------------------------------------------------------ questions */
int32_t MODEL(input_count)(void) { return INPUTS; }
int32_t MODEL(output_count)(void) { return OUTPUTS; }
int32_t MODEL(size_count)(void) { return SIZES; }

const strata_port *MODEL(input)(int32_t k) { return k < 0 || k >= INPUTS ? NULL : &inputs[k]; }
const strata_port *MODEL(output)(int32_t k) { return k < 0 || k >= OUTPUTS ? NULL : &outputs[k]; }
const char *MODEL(size_name)(int32_t k) { return k < 0 || k >= SIZES ? NULL : size_names[k]; }

int64_t MODEL(size)(const STATE *s, int32_t k) {
    return s == NULL || s->outputs == NULL || k < 0 || k >= SIZES ? -1 : s->sizes[k];
}

const char *MODEL(version)(void) { return STRATA_VERSION; }
const char *MODEL(about)(void) { return about; }
