/* The structures of one model, between its sizes (which the compiler wrote) and its tables. */

#define FIRST_OUTPUT (FIRST_ARGUMENT + INPUTS)
#define FIRST_CONSTANT (FIRST_OUTPUT + GIVEN_OUTPUTS)
#define TABLE_WORDS (FIRST_CONSTANT + CONSTANTS)
#define ALIGNMENT 64
#define LARGE_PAGE (2u << 20)
#define MESSAGE_BYTES 1024

/* Where a size comes from: a dim of an input, as messages name it. */
typedef struct place {
    int32_t input, dim, is_open;
    const char *text, *symbol;
} place;

/* `left <= right` or `left == right`, for `values` of the named sizes. `other`: whether other code
   fits values that break it; null if none does. `places`: where the sizes are among those of the
   inputs, or -1. */
typedef struct assumption {
    void (*sides)(const int64_t *values, int64_t *left, int64_t *right);
    int (*other)(const int64_t *values);
    const char *node, *claim;
    int32_t excludes, is_limit, is_equality, symbols;
    const char *const *names;
    const int32_t *places;
} assumption;

enum { CHECK_SIZE, CHECK_ASSUMPTION, CHECK_INDEX, CHECK_ACCESS, CHECK_MEMORY, CHECK_STACK,
       CHECK_SIGNAL, CHECK_DIVISOR };

/* A check that compiled code makes. It records its number and a few values. */
typedef struct check {
    int32_t kind;
    const char *node, *label;
    const assumption *assumption;
    int32_t texts;
    const char *const *text;
} check;

/* An address, in eight bytes on every machine. */
typedef union slot {
    void *at;
    int64_t word;
} slot;

typedef struct call {
    slot arena, table, sizes;
    int32_t threads;
} call;
