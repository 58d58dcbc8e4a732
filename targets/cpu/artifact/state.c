/* What a state of compiled code is. */

struct STATE {
    int32_t variant; /* the first field, by which a library finds it */
    call call;
    slot table[TABLE_WORDS + 1];
    int64_t heap[HEAP_WORDS];
    int64_t sizes[SIZES + 1];        /* of all symbols */
    int64_t words[ENTRY_SIZES + 1];  /* those that the code reads, and the step that runs */
    strata_tensor *outputs;          /* the caller's; null while nothing is bound */
    void *owned[OUTPUTS + 1];        /* memory of outputs, and its size */
    size_t owned_bytes[OUTPUTS + 1];
    char is_lent[OUTPUTS + 1];        /* whether a late output is memory of the state */
    void *arena;
    size_t arena_bytes;
    strata_allocator allocator;
    const unsigned char *weights;
    size_t mapped;
    void *copy; /* of the constants, if one is wanted */
    team *team;
    int32_t threads;
    atomic_int busy, cancels;
    int (*interrupt)(void *context);
    void *interrupt_context;
    char message[MESSAGE_BYTES];
#if OTHERS > 0
    _Atomic(void *) others[OTHERS]; /* states of other programs; null until they are asked */
    int32_t chosen;                 /* the one that is bound, or -1 */
    void *signals[4];
    int64_t *raised[OTHERS];
#endif
};
