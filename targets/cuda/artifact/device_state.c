/* What a state of a model on a GPU is. The CUDA driver is loaded with the first state: programs that
   link a model do not link the driver. */

typedef uint64_t device_address;

/* CUgraphEdgeData. */
typedef struct edge {
    unsigned char source_port, target_port, kind, reserved[5];
} edge;

/* CUDA_KERNEL_NODE_PARAMS. Older drivers do not read `kernel` and `context`. */
typedef struct kernel_node {
    void *function;
    unsigned grid[3], block[3], shared;
    void **parameters, **extra;
    void *kernel, *context;
} kernel_node;

/* CUDA_MEMCPY3D, and its source or target. */
typedef struct copy_end {
    size_t x, y, z, level;
    int32_t kind;
    const void *host;
    device_address device;
    void *array, *reserved;
    size_t pitch, height;
} copy_end;
typedef struct copy_node {
    copy_end source, target;
    size_t width, height, depth;
} copy_node;

/* The functions of the driver that are called, in the order of `driver_names`. */
typedef struct driver {
    void *library;
    int (*init)(unsigned);
    int (*device_get)(int *, int);
    int (*attribute)(int *, int, int);
    int (*context_of)(void **);
    int (*device_of)(int *);
    int (*set_context)(void *);
    int (*retain)(void **, int);
    int (*release_context)(int);
    int (*load)(void **, const void *);
    int (*unload)(void *);
    int (*function)(void **, void *, const char *);
    int (*set_function)(void *, int, int);
    int (*allocate)(device_address *, size_t);
    int (*release)(device_address);
    int (*upload)(device_address, const void *, size_t);
    int (*download)(void *, device_address, size_t, void *);
    int (*to_device)(device_address, const void *, size_t, void *);
    int (*copy)(device_address, device_address, size_t, void *);
    int (*synchronize)(void *);
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                  void *, void **, void **);
    int (*error_name)(int, const char **);
    int (*encode)(void *, int, uint32_t, void *, const uint64_t *, const uint64_t *,
                  const uint32_t *, const uint32_t *, int, int, int, int);
    int (*is_capturing)(void *, int *);
    int (*graph_create)(void **, unsigned);
    int (*add_kernel)(void **, void *, void *const *, size_t, const kernel_node *);
    int (*add_copy)(void **, void *, void *const *, size_t, const copy_node *, void *);
    int (*add_edges)(void *, void *const *, void *const *, const edge *, size_t);
    int (*instantiate)(void **, void *, uint64_t);
    int (*graph_destroy)(void *);
    int (*exec_destroy)(void *);
    int (*graph_launch)(void *, void *);
} driver;

static const char *const driver_names[] = {
    "cuInit", "cuDeviceGet", "cuDeviceGetAttribute", "cuCtxGetCurrent", "cuCtxGetDevice",
    "cuCtxSetCurrent", "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2",
    "cuModuleLoadData", "cuModuleUnload", "cuModuleGetFunction", "cuFuncSetAttribute",
    "cuMemAlloc_v2", "cuMemFree_v2", "cuMemcpyHtoD_v2", "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoDAsync_v2", "cuStreamSynchronize", "cuLaunchKernel", "cuGetErrorName", "cuTensorMapEncodeTiled",
    "cuStreamIsCapturing", "cuGraphCreate", "cuGraphAddKernelNode", "cuGraphAddMemcpyNode",
    "cuGraphAddDependencies_v2", "cuGraphInstantiateWithFlags", "cuGraphDestroy",
    "cuGraphExecDestroy", "cuGraphLaunch"};

#define DRIVER_FUNCTIONS (sizeof driver_names / sizeof *driver_names)
#define MOST_PARAMETERS 256
#define MOST_MAPS 8

/* A buffer that is passed as a tensor map: which one, where its sizes are among those of all buffers,
   how many, bytes per element, and what the hardware is told of it. */
typedef struct descriptor {
    int32_t place, first, rank, item, kind, swizzle;
    uint32_t box[5];
} descriptor;

/* A compiled kernel. `divisible`: the bits of the sizes that must be multiples of 16. `waits`:
   whether it waits for the launch before it in its own code. `widths`: of its parameters, in bytes.
   */
typedef struct variant {
    uint64_t start, divisible;
    const char *entry;
    int32_t module, shared, threads, groups, row_axis, stays, waits, parameters, maps;
    const unsigned char *widths;
    const descriptor *descriptors;
} variant;

typedef struct kernel {
    const char *name;
    int32_t buffers, sizes, axes, first, variants;
    const unsigned char *writes; /* for each buffer, whether the kernel writes it */
} kernel;

/* What a step reads and writes: bytes of memory that may change, none of constants. */
typedef struct accesses {
    int32_t count;
    const uint64_t *start, *bytes;
    const unsigned char *writes;
} accesses;

typedef struct graph graph;

struct STATE {
    int32_t variant; /* the first field, by which a library finds it */
    call call;
    slot table[TABLE_WORDS + 1]; /* of addresses on the device */
    int64_t sizes[SIZES + 1];
    int64_t words[ENTRY_SIZES + 1];
    strata_tensor *outputs;
    void *owned[OUTPUTS + 1]; /* memory of outputs on the device, and its size */
    size_t owned_bytes[OUTPUTS + 1];
    char is_lent[OUTPUTS + 1];
    void *arena;
    size_t arena_bytes;
    device_address constants;
    strata_allocator allocator;
    driver driver;
    int32_t device, processors, is_retained;
    void *context, *before, *stream;
    void *modules[MODULES + 1];
    void *functions[VARIANTS + 1];
    void *graph;        /* of what is bound, from the second run on */
    int32_t is_known;   /* whether what is bound has run before: these addresses and sizes */
    slot known[TABLE_WORDS + 1];
    int64_t known_sizes[SIZES + 1];
    void *known_arena;
    atomic_int busy, cancels;
    char message[MESSAGE_BYTES];
};
