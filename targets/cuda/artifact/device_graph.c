/* CUDA graphs of what is bound: a node for each launch and copy, as in the compiler's own process.

   A node depends on the earlier ones that access the same bytes, where one of the two writes. At
   most GRAPH_LANES chains of nodes run at once, since the host spends time on each node that begins
   one. A kernel that waits for the one before it in its own code may start before that one ends. */

typedef struct range {
    uint64_t start, end;
    int32_t node, writes;
} range;

/* A graph that is being made. `before`: for each node all that precede it, as bits. `ends`: the
   last node of each chain, the oldest first. */
struct graph {
    void *graph;
    int32_t count, ranges, chains, ends[GRAPH_LANES];
    void *nodes[GRAPH_NODES + 1], *after[GRAPH_NODES + 1];
    unsigned char is_launch[GRAPH_NODES + 1];
    uint64_t before[GRAPH_NODES + 1][NODE_WORDS];
    range touched[GRAPH_RANGES + 1];
};

static int is_in(const uint64_t *bits, int32_t k) { return (int)(bits[k / 64] >> (k % 64) & 1); }

static void put(uint64_t *bits, int32_t k) { bits[k / 64] |= UINT64_C(1) << (k % 64); }

static void unite(uint64_t *bits, const uint64_t *others) {
    for (int32_t w = 0; w < NODE_WORDS; w++) bits[w] |= others[w];
}

/* All nodes that precede those in `found`. */
static void all_before(const graph *g, const uint64_t *found, uint64_t *bits) {
    memset(bits, 0, sizeof g->before[0]);
    for (int32_t k = 0; k < g->count; k++)
        if (is_in(found, k)) unite(bits, g->before[k]);
}

/* Note that the next node accesses bytes, and find the earlier nodes that it must wait for. */
static void note_accesses(graph *g, const accesses *t, uint64_t *found) {
    memset(found, 0, sizeof g->before[0]);
    for (int32_t n = 0; n < t->count; n++)
        for (int32_t k = 0; k < g->ranges; k++) {
            const range *r = &g->touched[k];
            if (r->start < t->start[n] + t->bytes[n] && t->start[n] < r->end &&
                (r->writes || t->writes[n]))
                put(found, r->node);
        }
    for (int32_t n = 0; n < t->count; n++) {
        range own = {t->start[n], t->start[n] + t->bytes[n], g->count, t->writes[n]};
        int32_t kept = 0;
        if (own.start == own.end) continue;
        for (int32_t k = 0; k < g->ranges; k++)
            if (!own.writes || g->touched[k].start < own.start || own.end < g->touched[k].end)
                g->touched[kept++] = g->touched[k];
        g->touched[kept] = own;
        g->ranges = kept + 1;
    }
}

/* Let the next node follow one of the chains, or begin one. */
static void follow(graph *g, uint64_t *found) {
    uint64_t *bits = g->before[g->count];
    int32_t chain = -1;
    all_before(g, found, bits);
    unite(bits, found);
    for (int32_t k = 0; k < g->chains; k++)
        if (is_in(bits, g->ends[k])) chain = k;
    if (chain < 0 && g->chains == GRAPH_LANES) {
        chain = 0;
        put(found, g->ends[0]);
        put(bits, g->ends[0]);
        unite(bits, g->before[g->ends[0]]);
    }
    if (chain >= 0) {
        g->chains--;
        memmove(&g->ends[chain], &g->ends[chain + 1],
                (size_t)(g->chains - chain) * sizeof *g->ends);
    }
    g->ends[g->chains++] = g->count;
}

/* Add the next node: a launch, or a copy if `launched` is null. `waits`: whether its kernel waits. */
static int add_node(STATE *s, graph *g, const accesses *t, const kernel_node *launched,
               const copy_node *copied, int waits) {
    uint64_t found[NODE_WORDS], passed[NODE_WORDS];
    size_t count = 0;
    void **own = &g->nodes[g->count];
    const edge early = {1, 0, 1, {0}}; /* both ends are programmatic */
    int error = 0;
    note_accesses(g, t, found);
    follow(g, found);
    all_before(g, found, passed);
    for (int32_t w = 0; w < NODE_WORDS; w++) found[w] &= ~passed[w];
    for (int32_t k = 0; k < g->count; k++) {
        if (!is_in(found, k)) continue;
        if (waits && g->is_launch[k] && s->driver.add_edges != NULL) continue;
        g->after[count++] = g->nodes[k];
        found[k / 64] &= ~(UINT64_C(1) << (k % 64));
    }
    if (launched != NULL)
        error = s->driver.add_kernel(own, g->graph, g->after, count, launched);
    else
        error = s->driver.add_copy(own, g->graph, g->after, count, copied, s->context);
    for (int32_t k = 0; k < g->count && error == 0; k++)
        if (is_in(found, k)) error = s->driver.add_edges(g->graph, &g->nodes[k], own, &early, 1);
    g->is_launch[g->count++] = launched != NULL;
    return error;
}

/* Make a graph of what is bound. */
static int make_graph(STATE *s) {
    strata_allocator *a = &s->allocator;
    graph *g = a->allocate(a->context, ALIGNMENT, sizeof *g);
    if (g == NULL)
        return refuse(s, STRATA_NO_MEMORY, "there is not enough memory for %zu bytes", sizeof *g);
    g->graph = NULL;
    g->count = g->ranges = g->chains = 0;
    int status = 0, error = s->driver.graph_create(&g->graph, 0);
    if (error == 0) status = run_steps(s, NULL, g);
    if (error == 0 && status == 0) error = s->driver.instantiate(&s->graph, g->graph, 0);
    if (g->graph != NULL) s->driver.graph_destroy(g->graph);
    a->release(a->context, g);
    return status != 0 || error == 0 ? status : failed_call(s, "making a graph", error);
}
