/* Errors, sizes and assumptions: what is checked before compiled code runs, in the same words as in
   Python. */

/* ------------------------------------------------------------------ errors */
static int refuse(STATE *s, int status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(s->message, sizeof s->message, format, arguments);
    va_end(arguments);
    return status;
}

static const char *const status_texts[] = {
    "there was no error",
    "an argument is null, too small, too large, or overlaps another one",
    "the number of inputs or outputs is wrong",
    "a dtype is wrong",
    "a shape is wrong",
    "an address is not aligned to its elements",
    "the sizes do not fit each other",
    "the sizes need other code; compile the model for them",
    "an index in the data is out of range",
    "an access to memory was out of bounds",
    "the memory of an array is too small",
    "there is not enough memory",
    "the file of weights cannot be opened and mapped",
    "the processor lacks instructions that the model was compiled for",
    "another thread is using the state",
    "the call was cancelled",
    "nothing is bound to the state",
    "the GPU's driver reports an error",
    "an integer in the data is divided by zero",
    "the file of weights is that of another model, or was cut short",
    "the constants are damaged",
};

const char *MODEL(error_text)(int status) {
    int count = (int)(sizeof status_texts / sizeof *status_texts);
    return status < 0 || status >= count ? "there is no such status" : status_texts[status];
}

const char *MODEL(message)(const STATE *s) { return s == NULL ? "" : s->message; }

/* ------------------------------------------------------------------ sizes */
/* Arithmetic that saturates: every size is limited, so a saturated number fails its check. It is
   called, because a model with open sizes has thousands of these in one function, where copies of
   their branches would double a library's code and take a C compiler half a minute. */
#define CALLED __attribute__((noinline))
static CALLED int64_t sum_of(int64_t a, int64_t b) {
    int64_t found;
    return __builtin_add_overflow(a, b, &found) ? (a < 0 ? INT64_MIN : INT64_MAX) : found;
}

static int64_t difference_of(int64_t a, int64_t b) {
    int64_t found;
    return __builtin_sub_overflow(a, b, &found) ? (a < 0 ? INT64_MIN : INT64_MAX) : found;
}

static CALLED int64_t product_of(int64_t a, int64_t b) {
    int64_t found;
    return __builtin_mul_overflow(a, b, &found) ? ((a < 0) != (b < 0) ? INT64_MIN : INT64_MAX)
                                                : found;
}

static CALLED int64_t quotient_of(int64_t a, int64_t b) {
    if (b == 0 || (b == -1 && a == INT64_MIN)) return b == 0 ? 0 : INT64_MAX;
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static CALLED int64_t rest_of(int64_t a, int64_t b) {
    if (b == 0 || b == -1) return 0;
    int64_t rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

static int64_t larger_of(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t smaller_of(int64_t a, int64_t b) { return a < b ? a : b; }

/* `n = 3, m = 4`: the sizes that an assumption is about. */
static void write_sizes(const assumption *a, const int64_t *values, char *text, size_t bytes) {
    size_t used = 0;
    text[0] = 0;
    for (int32_t k = 0; k < a->symbols && used < bytes; k++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%s = %lld", k ? ", " : "",
                                 a->names[k], (long long)values[k]);
}

/* The error of an assumption that `values` break. */
static int broken(STATE *s, const assumption *a, const int64_t *values) {
    char text[MESSAGE_BYTES / 2];
    int64_t left, right;
    write_sizes(a, values, text, sizeof text);
    if (a->other != NULL && a->other(values))
        return refuse(s, STRATA_OTHER_CODE, "node '%s' was compiled for %s, and needs other code "
                      "for %s: compile the model with these sizes fixed (--dim), or for them as "
                      "well (--also)", a->node, a->claim, text);
    if (a->excludes)
        return refuse(s, STRATA_OTHER_CODE, "sizes do not fit each other at node '%s': %s must not "
                      "be %lld, for which other code is needed; compile the model with this size "
                      "fixed, for instance with --dim %s=%lld", a->node, a->names[0],
                      (long long)values[0], a->names[0], (long long)values[0]);
    if (a->is_limit)
        return refuse(s, STRATA_BAD_SIZES, "sizes are too large at node '%s', which computes "
                      "numbers beyond 64 bits of %s", a->node, text);
    a->sides(values, &left, &right);
    return refuse(s, STRATA_BAD_SIZES, "sizes do not fit each other at node '%s': it needs %s, "
                  "which is %lld %s %lld with %s", a->node, a->claim, (long long)left,
                  a->is_equality ? "==" : "<=", (long long)right, text);
}

static int holds(const assumption *a, const int64_t *values) {
    int64_t left, right;
    a->sides(values, &left, &right);
    return a->is_equality ? left == right : left <= right;
}

/* The values of an assumption's sizes among those of the inputs. 0 if one of them is not known. */
static int read_sizes(const STATE *s, const assumption *a, int64_t *values) {
    for (int32_t k = 0; k < a->symbols; k++) {
        if (a->places[k] < 0) return 0;
        values[k] = s->sizes[a->places[k]];
    }
    return 1;
}

/* Check a dim of an input that is an expression over known sizes. */
static int expect(STATE *s, const place *p, int64_t size, int64_t wanted) {
    if (size == wanted) return 0;
    return refuse(s, STRATA_BAD_SHAPE, "dim %d of input '%s' is %lld but must be %lld%s%s%s", p->dim,
                  inputs[p->input].name, (long long)size, (long long)wanted,
                  p->is_open ? " (" : "", p->is_open ? p->text : "", p->is_open ? ")" : "");
}

/* Solve `factor * symbol + offset == size`, and check that the division has no rest. */
static int solve(STATE *s, const place *p, int64_t size, int64_t factor, int64_t offset,
                 int64_t *value) {
    const char *name = inputs[p->input].name;
    if (factor == 0)
        return refuse(s, STRATA_BAD_SHAPE, "dim %d of input '%s' does not determine the size %s",
                      p->dim, name, p->symbol);
    *value = quotient_of(difference_of(size, offset), factor);
    if (*value < 0)
        return refuse(s, STRATA_BAD_SHAPE, "dim %d of input '%s' is %lld, which %s is for no size "
                      "%s: that would be %lld", p->dim, name, (long long)size, p->text, p->symbol,
                      (long long)*value);
    if (*value > MOST_SIZE)
        return refuse(s, STRATA_BAD_SHAPE, "dim %d of input '%s' is %lld, so that %s is %lld; no "
                      "size may be more than %lld", p->dim, name, (long long)size, p->symbol,
                      (long long)*value, (long long)MOST_SIZE);
    return expect(s, p, size, sum_of(product_of(factor, *value), offset));
}

/* ------------------------------------------------------------------ the processor */
#if defined(__x86_64__)
/* Whether the processor has instructions (leaf, subleaf, register and bit of CPUID), and the system
   saves the registers of `state` (XCR0). Linux lends matrix registers to processes that ask. */
static int has_instructions(const uint32_t (*wanted)[4], int count, uint32_t state) {
    for (int k = 0; k < count; k++) {
        uint32_t found[4];
        if (!__get_cpuid_count(wanted[k][0], wanted[k][1], &found[0], &found[1], &found[2],
                               &found[3]) ||
            !(found[wanted[k][2]] >> wanted[k][3] & 1))
            return 0;
    }
    if (state == 0) return 1;
    uint32_t a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) return 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & state) != state) return 0;
#if defined(__linux__)
    if (state & 0x40000) return syscall(158, 0x1023, 18) == 0;
#endif
    return 1;
}
#endif
