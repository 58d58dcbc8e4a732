/* Arguments: what is checked of inputs and outputs before a run, and where they are bound. */

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
            return refuse(s, STRATA_BAD_SHAPE,
                          "dim %d of input '%s' is %lld but must be from 0 to %lld", d, port->name,
                          (long long)t->shape[d], (long long)MOST_SIZE);
    int64_t bytes = bytes_of(t->rank, t->shape, port->dtype);
    if (bytes == INT64_MAX)
        return refuse(s, STRATA_BAD_SHAPE, "no memory holds input '%s'", port->name);
    if (has_data && t->bytes != 0 && t->bytes < (size_t)bytes)
        return refuse(s, STRATA_TOO_SMALL, "input '%s' has %lld bytes, and its memory %zu",
                      port->name, (long long)bytes, t->bytes);
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

static int overlap(const void *a, int64_t a_bytes, const void *b, int64_t b_bytes) {
    uintptr_t first = (uintptr_t)a, second = (uintptr_t)b;
    return first < second + (uintptr_t)b_bytes && second < first + (uintptr_t)a_bytes &&
           a_bytes > 0 && b_bytes > 0;
}

/* Refuse an output in the memory of an input or of another output: code may write what it has yet
   to read. `bytes`: those of the outputs, 0 for those that only the run knows. */
static int check_apart(STATE *s, const strata_tensor *in, const strata_tensor *out,
                       const int64_t *bytes) {
    for (int32_t k = 0; k < OUTPUTS; k++) {
        for (int32_t j = 0; j < INPUTS; j++)
            if (overlap(out[k].data, bytes[k], in[j].data,
                        bytes_of(in[j].rank, in[j].shape, in[j].dtype)))
                return refuse(s, STRATA_BAD_ARGUMENT,
                              "the memory of output '%s' overlaps that of input '%s'",
                              outputs[k].name, inputs[j].name);
        for (int32_t j = 0; j < k; j++)
            if (overlap(out[k].data, bytes[k], out[j].data, bytes[j]))
                return refuse(s, STRATA_BAD_ARGUMENT,
                              "the memory of output '%s' overlaps that of output '%s'",
                              outputs[k].name, outputs[j].name);
    }
    return 0;
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

static int bind_outputs(STATE *s, const strata_tensor *in, strata_tensor *given) {
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
    return status == 0 ? check_apart(s, in, given, bytes) : status;
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
    if (status == 0) status = bind_outputs(s, in, out);
    if (status != 0) return status;
    for (int32_t k = 0; k < ENTRY_SIZES; k++)
        s->words[k] = entry_sizes[k] < 0 ? 0 : s->sizes[entry_sizes[k]];
    s->call.arena.at = s->arena;
    s->outputs = out;
    return 0;
}
