/* What all models that Strata compiled have in common. Plain C99, also for C++. */
#ifndef STRATA_API_VERSION
#define STRATA_API_VERSION 1

#include <stddef.h>
#include <stdint.h>

#define STRATA_MOST_DIMS 16

/* What functions return. The text of a status is fixed; a state has a message with details. */
typedef enum strata_status {
    STRATA_OK = 0,
    STRATA_BAD_ARGUMENT = 1,   /* null, too small, too large, or memory of another array */
    STRATA_BAD_COUNT = 2,      /* another number of inputs or outputs */
    STRATA_BAD_DTYPE = 3,
    STRATA_BAD_SHAPE = 4,      /* another number of dims, or sizes that contradict each other */
    STRATA_BAD_ALIGNMENT = 5,  /* an address that its elements do not allow */
    STRATA_BAD_SIZES = 6,      /* sizes for which the model has no meaning */
    STRATA_OTHER_CODE = 7,     /* sizes for which the model must be compiled again */
    STRATA_BAD_INDEX = 8,      /* an index in the data is out of range */
    STRATA_BAD_ACCESS = 9,     /* an access to memory was out of bounds (only with --check) */
    STRATA_TOO_SMALL = 10,     /* the memory of an array is smaller than the array */
    STRATA_NO_MEMORY = 11,
    STRATA_NO_WEIGHTS = 12,    /* the file of weights cannot be opened and mapped */
    STRATA_NO_PROCESSOR = 13,  /* this processor lacks instructions that the code uses */
    STRATA_BUSY = 14,          /* another thread is using the state */
    STRATA_CANCELLED = 15,
    STRATA_NOT_BOUND = 16,
    STRATA_DEVICE = 17,        /* the GPU's driver reports an error */
    STRATA_BAD_DIVISOR = 18,   /* an integer in the data is divided by zero */
    STRATA_OTHER_WEIGHTS = 19, /* the file of weights is another model's, or was cut short */
    STRATA_DAMAGED = 20        /* the constants are not what was written (`verify`) */
} strata_status;

/* Element types. Types of less than a byte occupy one byte, of which the low bits count. */
typedef enum strata_dtype {
    STRATA_ANY = 0, /* of outputs, before a call */
@DTYPES@
} strata_dtype;

/* A C-contiguous array. `data` of an output may be null before a call: the state then provides
   memory, which is valid until its next call. `bytes` is the size of the memory; that of an input
   may be 0, if its shape is to be trusted. Outputs must be apart in memory from inputs and from
   each other, which is checked except by `run_at`. */
typedef struct strata_tensor {
    void *data;
    size_t bytes;
    int32_t dtype; /* a strata_dtype */
    int32_t rank;
    int64_t shape[STRATA_MOST_DIMS];
} strata_tensor;

/* An input or an output: `type` is a text such as "f32[batch, 3]". A size that is not a number
   before a call is -1 in `shape`. */
typedef struct strata_port {
    const char *name;
    const char *type;
    int32_t dtype;
    int32_t rank;
    int64_t shape[STRATA_MOST_DIMS];
} strata_port;

/* Where all memory of a state comes from. `allocate` may return null. */
typedef struct strata_allocator {
    void *(*allocate)(void *context, size_t alignment, size_t bytes);
    void (*release)(void *context, void *memory);
    void *context;
} strata_allocator;

/* The options of a state. Zeros are the defaults, except for `size`, which is sizeof(strata_options).
   `threads`: 0 for all processors that this process may use. `weights`: the path of the file of
   weights, for models that have one. `interrupt`: called now and then by loops, in the thread of the
   call; the call ends if it does not return 0. `copies`: not 0 to copy the constants into memory of
   the state, which has large pages; that is faster where a call does little but read them. `verify`:
   not 0 to compare the constants with their checksum first, which reads them all. */
typedef struct strata_options {
    size_t size;
    int32_t threads;
    const strata_allocator *allocator;
    const char *weights;
    int (*interrupt)(void *context);
    void *interrupt_context;
    int32_t copies;
    int32_t verify;
} strata_options;

#elif STRATA_API_VERSION != 1
#error "models of different versions of Strata's interface cannot be used in one source file"
#endif
