/* One run of the compiled code, its errors, and the outputs that it allocates. */

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
    case CHECK_DIVISOR:
        return refuse(s, STRATA_BAD_DIVISOR, "an integer is divided by zero at node '%s'", c->node);
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

/* Large results are stored past the caches, which needs whole lines: memory of the state takes the
   place of a caller's that starts elsewhere. With `back`, copy from there after a run. */
static int align_outputs(STATE *s, int back) {
    int32_t place = FIRST_OUTPUT;
    for (int32_t k = 0; k < OUTPUTS; k++) {
        if (late_words[k] >= 0) continue;
        strata_tensor *t = &s->outputs[k];
        int64_t bytes = bytes_of(t->rank, t->shape, t->dtype);
        int32_t at = place++;
        if (t->data == NULL || bytes < LARGE || (uintptr_t)t->data % ALIGNMENT == 0) continue;
        if (back) {
            memcpy(t->data, s->owned[k], (size_t)bytes);
            continue;
        }
        int status = grow(s, &s->owned[k], &s->owned_bytes[k], (size_t)bytes);
        if (status != 0) return status;
        s->table[at].at = s->owned[k];
    }
    return 0;
}

static int run_bound(STATE *s) {
    if (s->outputs == NULL) return refuse(s, STRATA_NOT_BOUND, "nothing is bound to the state");
    release_blocks(s);
    int unaligned = align_outputs(s, 0);
    if (unaligned != 0) return unaligned;
    if (POISONS) poison(s);
    atomic_store(&s->cancels, 0);
    seat before = own;
    own = (seat){s->team, 0, 1, s};
    s->call.threads = s->team == NULL ? 1 : members_of(s->team, s->threads);
    int status = run_code(s);
    own = before;
    if (status == 0) {
        align_outputs(s, 1);
        return fetch_outputs(s);
    }
    status = failed(s);
    release_blocks(s);
    return status;
}
