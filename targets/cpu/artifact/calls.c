/* Calls, and questions about a model. */

int MODEL(shapes)(STATE *s, const strata_tensor *in, int32_t in_count, strata_tensor *out,
                  int32_t out_count) {
    int64_t bytes[OUTPUTS + 1];
    if (s == NULL) return STRATA_BAD_ARGUMENT;
    if (enter(s)) return STRATA_BUSY;
    int status = ask_others(s, in, in_count, out, out_count, 0);
    if (status >= 0) return leave(s, status);
    status = bind_inputs(s, in, in_count, out, out_count, 0);
    if (status == 0) status = describe_outputs(s, out, bytes);
    for (int32_t k = 0; k < OUTPUTS && status == 0; k++)
        out[k].bytes = late_words[k] < 0 ? (size_t)bytes[k] : SIZE_MAX;
    return leave(s, status);
}

/* Bind arrays to the program that fits them. */
static int bind_any(STATE *s, const strata_tensor *in, int32_t in_count, strata_tensor *out,
                    int32_t out_count) {
    memset(s->is_lent, 0, sizeof s->is_lent);
    int status = ask_others(s, in, in_count, out, out_count, 1);
    return status >= 0 ? status : bind(s, in, in_count, out, out_count);
}

static int run_any(STATE *s) { return is_chosen(s) ? run_chosen(s, NULL) : run_bound(s); }

int MODEL(bind)(STATE *s, const strata_tensor *in, int32_t in_count, strata_tensor *out,
                int32_t out_count) {
    if (s == NULL) return STRATA_BAD_ARGUMENT;
    if (enter(s)) return STRATA_BUSY;
    return leave(s, bind_any(s, in, in_count, out, out_count));
}

int MODEL(run_bound)(STATE *s) {
    if (s == NULL) return STRATA_BAD_ARGUMENT;
    if (enter(s)) return STRATA_BUSY;
    return leave(s, run_any(s));
}

int MODEL(call)(STATE *s, const strata_tensor *in, int32_t in_count, strata_tensor *out,
                int32_t out_count) {
    if (s == NULL) return STRATA_BAD_ARGUMENT;
    if (enter(s)) return STRATA_BUSY;
    int status = bind_any(s, in, in_count, out, out_count);
    return leave(s, status == 0 ? run_any(s) : status);
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
    if (is_chosen(s)) return leave(s, run_chosen(s, data));
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
