/* Runs on a GPU: launches on the caller's stream. What is bound twice becomes a CUDA graph. */

/* Whether a variant's code holds for these sizes. */
static int fits(const variant *v, int32_t count, const int64_t *sizes) {
    for (int32_t k = 0; k < count; k++)
        if ((v->divisible >> k & 1) && sizes[k] % 16 != 0) return 0;
    return 1;
}

/* How many programs a variant has: groups of rows share one, and persistent kernels have at most as
   many as there are processors. */
static int64_t programs_of(STATE *s, const variant *v, int32_t axes, const int64_t *extents) {
    int64_t total = 1;
    for (int32_t k = 0; k < axes; k++) {
        int64_t extent = extents[k] < 0 ? 0 : extents[k];
        if (v->groups > 0 && k == v->row_axis) extent = (extent + v->groups - 1) / v->groups;
        total = product_of(total, extent);
    }
    return v->stays && total > s->processors ? s->processors : total;
}

/* A matrix as the hardware that copies tiles sees it. */
static int encode(STATE *s, const descriptor *d, void *map, uint64_t address, const int64_t *shape,
                  int64_t *strides) {
    uint64_t sizes[5], pitches[5];
    uint32_t ones[5] = {1, 1, 1, 1, 1}, box[5];
    int64_t stride = 1;
    for (int32_t k = d->rank - 1; k >= 0; k--) {
        strides[k] = stride;
        stride *= shape[k];
    }
    for (int32_t k = 0; k < d->rank; k++) {
        sizes[k] = (uint64_t)shape[d->rank - 1 - k];
        box[k] = d->box[d->rank - 1 - k];
        if (k > 0) pitches[k - 1] = (uint64_t)(strides[d->rank - 1 - k] * d->item);
    }
    return s->driver.encode(map, d->kind, (uint32_t)d->rank, (void *)(uintptr_t)address, sizes,
                            pitches, box, ones, 0, d->swizzle, 2, 0);
}

/* Launch a kernel on a stream, or add the launch to a graph. `bytes`: of its buffers, none of
   constants. `extents`: of its grid, over its `sizes`. `shapes`: of all its buffers, one after
   another, if some are passed as tensor maps. */
static int launch(STATE *s, const kernel *k, const uint64_t *addresses, const uint64_t *bytes,
                  const int64_t *sizes, const int64_t *extents, const int64_t *shapes, void *stream,
                  graph *made) {
    const variant *v = &variants[k->first];
    for (int32_t n = 0; n < k->sizes; n++)
        if (sizes[n] > INT32_MAX)
            return refuse(s, STRATA_BAD_SIZES, "a size of kernel %s is %lld, which is larger than "
                          "kernels on CUDA can count", k->name, (long long)sizes[n]);
    for (int32_t n = 1; n < k->variants && !fits(v, k->sizes, sizes); n++) v++;
    int64_t programs = programs_of(s, v, k->axes, extents);
    if (programs == 0) return 0;
    if (programs > INT32_MAX)
        return refuse(s, STRATA_BAD_SIZES, "kernel %s would need %lld programs", k->name,
                      (long long)programs);
    _Alignas(64) unsigned char maps[MOST_MAPS][128];
    int64_t strides[MOST_MAPS][5];
    uint64_t cells[MOST_PARAMETERS];
    int32_t dims[MOST_MAPS][5];
    void *parameters[MOST_PARAMETERS];
    int32_t at = 0, map = 0;
    memset(cells, 0, sizeof cells);
    for (int32_t n = 0; n < k->buffers + k->sizes; n++) {
        const descriptor *d = map < v->maps ? &v->descriptors[map] : NULL;
        if (d != NULL && d->place == n) {
            const int64_t *shape = shapes + d->first;
            int error = encode(s, d, maps[map], addresses[n], shape, strides[map]);
            if (error != 0) return failed_call(s, "describing a matrix", error);
            parameters[at++] = maps[map];
            for (int32_t i = 0; i < d->rank; i++) {
                dims[map][i] = (int32_t)shape[i];
                parameters[at++] = &dims[map][i];
            }
            for (int32_t i = 0; i < d->rank; i++) parameters[at++] = &strides[map][i];
            map++;
            continue;
        }
        cells[at] = n < k->buffers ? addresses[n] : (uint64_t)sizes[n - k->buffers];
        parameters[at] = &cells[at];
        at++;
    }
    for (; at < v->parameters; at++) parameters[at] = &cells[at]; /* memory that we do not use */
    int error;
    if (made != NULL) {
        const accesses touched = {k->buffers, addresses, bytes, k->writes};
        const kernel_node node = {s->functions[v - variants], {(unsigned)programs, 1, 1},
                                  {(unsigned)v->threads, 1, 1}, (unsigned)v->shared, parameters,
                                  NULL, NULL, NULL};
        error = add_node(s, made, &touched, &node, NULL, v->waits);
    } else {
        error = s->driver.launch(s->functions[v - variants], (unsigned)programs, 1, 1,
                                 (unsigned)v->threads, 1, 1, (unsigned)v->shared, stream,
                                 parameters, NULL);
    }
    return error == 0 ? 0 : failed_call(s, k->name, error);
}

static int copy(STATE *s, const uint64_t *ends, const uint64_t *bytes, int64_t size, void *stream,
                graph *made) {
    static const unsigned char writes[] = {0, 1};
    int error = 0;
    if (size <= 0) return 0;
    if (made != NULL) {
        const accesses touched = {2, ends, bytes, writes};
        copy_node node;
        memset(&node, 0, sizeof node);
        node.source.kind = node.target.kind = 2; /* memory of the device */
        node.source.device = ends[0];
        node.target.device = ends[1];
        node.source.pitch = node.target.pitch = node.width = (size_t)size;
        node.source.height = node.target.height = node.height = node.depth = 1;
        error = add_node(s, made, &touched, NULL, &node, 0);
    } else {
        error = s->driver.copy(ends[1], ends[0], (size_t)size, stream);
    }
    return error == 0 ? 0 : failed_call(s, "a copy", error);
}


/* Whether the last run had the same addresses and sizes; they are known from now on. */
static int is_same(STATE *s) {
    size_t addresses = (FIRST_CONSTANT) * sizeof *s->table, sizes = SIZES * sizeof *s->sizes;
    if (s->known_arena == s->arena && memcmp(s->known, s->table, addresses) == 0 &&
        memcmp(s->known_sizes, s->sizes, sizes) == 0)
        return 1;
    memcpy(s->known, s->table, addresses);
    memcpy(s->known_sizes, s->sizes, sizes);
    s->known_arena = s->arena;
    return 0;
}

static int run_bound(STATE *s) {
    int capturing = 0, status;
    if (s->outputs == NULL) return refuse(s, STRATA_NOT_BOUND, "nothing is bound to the state");
    if ((status = use_context(s)) != 0) return status;
    if (!is_same(s)) drop_graph(s);
    if (s->driver.is_capturing(s->stream, &capturing) != 0) capturing = 0;
    if (!capturing && s->is_known && s->graph == NULL) status = make_graph(s);
    if (status == 0 && s->graph != NULL && !capturing) {
        int error = s->driver.graph_launch(s->graph, s->stream);
        if (error != 0) status = failed_call(s, "launching a graph", error);
    } else if (status == 0) {
        status = run_steps(s, s->stream, NULL);
    }
    s->is_known = status == 0;
    leave_context(s);
    return status;
}
