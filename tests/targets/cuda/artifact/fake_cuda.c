/* A driver without a device: memory is the host's, and kernels are written down, not run.

   FAKE_CUDA: the file that says what was called. FAKE_WIDTHS: for each kernel the widths of its
   parameters, `entry:8,8,4;`. FAKE_ARCH: two digits. FAKE_FAILS: the function that fails.
   FAKE_DEVICE: the number of the device whose context the caller has made current. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long address;

static void say(const char *format, ...) {
    FILE *file = fopen(getenv("FAKE_CUDA"), "a");
    va_list arguments;
    va_start(arguments, format);
    vfprintf(file, format, arguments);
    va_end(arguments);
    fclose(file);
}

static int primary;
static void *current;

static int result(const char *name) {
    const char *fails = getenv("FAKE_FAILS");
    return fails != NULL && strcmp(fails, name) == 0 ? 2 : 0;
}

/* Most functions need a context, and some are to fail. */
#define CHECKED(name) if (current == NULL) return 201; if (result(name)) return 2

int cuInit(unsigned flags) {
    static int own;
    if (getenv("FAKE_DEVICE") != NULL) current = &own;
    return (int)flags;
}
int cuCtxGetDevice(int *device) {
    if (current == NULL) return 201;
    *device = atoi(getenv("FAKE_DEVICE"));
    return 0;
}
int cuDeviceGet(int *device, int number) { return *device = number; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    const char *arch = getenv("FAKE_ARCH");
    if (device > 0) say("device %d\n", device);
    *value = attribute == 75 ? arch[0] - '0' : attribute == 76 ? arch[1] - '0' : 7;
    return 0;
}
int cuCtxGetCurrent(void **context) { *context = current; return 0; }
int cuCtxSetCurrent(void *context) { current = context; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) {
    (void)device;
    *context = &primary;
    say("retain\n");
    return 0;
}
int cuDevicePrimaryCtxRelease_v2(int device) { say("release context\n"); return device; }
int cuModuleLoadData(void **module, const void *image) {
    CHECKED("cuModuleLoadData");
    if (memcmp(image, "\177ELF", 4) != 0) return 200;
    *module = malloc(1);
    say("module\n");
    return 0;
}
int cuModuleUnload(void *module) { free(module); say("unload\n"); return 0; }
int cuModuleGetFunction(void **function, void *module, const char *name) {
    (void)module;
    *function = (void *)(uintptr_t)name;
    return 0;
}
int cuFuncSetAttribute(void *function, int attribute, int value) {
    say("attribute %s %d %d\n", (char *)function, attribute, value);
    return 0;
}
int cuMemAlloc_v2(address *found, size_t bytes) {
    CHECKED("cuMemAlloc_v2");
    void *memory = aligned_alloc(256, (bytes + 255) / 256 * 256);
    *found = (address)(uintptr_t)memory;
    say("allocate %llu %zu\n", *found, bytes);
    return 0;
}
int cuMemFree_v2(address memory) {
    CHECKED("cuMemFree_v2");
    say("free %llu\n", memory);
    free((void *)(uintptr_t)memory);
    return 0;
}
int cuMemcpyHtoD_v2(address target, const void *source, size_t bytes) {
    CHECKED("cuMemcpyHtoD_v2");
    memcpy((void *)(uintptr_t)target, source, bytes);
    return 0;
}
int cuMemcpyDtoHAsync_v2(void *target, address source, size_t bytes, void *stream) {
    (void)stream;
    CHECKED("cuMemcpyDtoHAsync_v2");
    memcpy(target, (void *)(uintptr_t)source, bytes);
    return 0;
}
int cuMemcpyHtoDAsync_v2(address target, const void *source, size_t bytes, void *stream) {
    (void)stream;
    return cuMemcpyHtoD_v2(target, source, bytes);
}
int cuMemcpyDtoDAsync_v2(address target, address source, size_t bytes, void *stream) {
    CHECKED("cuMemcpyDtoDAsync_v2");
    say("copy %llu %llu %zu %llu\n", target, source, bytes, (address)(uintptr_t)stream);
    return 0;
}
int cuStreamSynchronize(void *stream) {
    (void)stream;
    CHECKED("cuStreamSynchronize");
    return 0;
}

static void say_parameters(const char *entry, void **parameters) {
    const char *all = getenv("FAKE_WIDTHS"), *widths = all;
    size_t length = strlen(entry);
    while ((widths = strstr(widths, entry)) != NULL &&
           ((widths > all && widths[-1] != ';') || widths[length] != ':'))
        widths++; /* a part of another name */
    if (widths == NULL) return;
    widths += length + 1;
    for (int k = 0; *widths >= '0' && *widths <= '9'; k++) {
        long width = strtol(widths, (char **)&widths, 10);
        uint64_t value = 0;
        if (width <= 8) memcpy(&value, parameters[k], (size_t)width);
        say(" %llu", (address)value);
        if (*widths == ',') widths++;
    }
}

int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned a, unsigned b,
                   unsigned c, unsigned shared, void *stream, void **parameters, void **extra) {
    CHECKED("cuLaunchKernel");
    if (y != 1 || z != 1 || b != 1 || c != 1 || extra != NULL) return 1;
    say("launch %s %u %u %u %llu", (char *)function, x, a, shared, (address)(uintptr_t)stream);
    say_parameters(function, parameters);
    say("\n");
    return 0;
}
int cuGetErrorName(int error, const char **name) {
    *name = error == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_UNKNOWN";
    return 0;
}
int cuTensorMapEncodeTiled(void *map, int kind, uint32_t rank, void *start, const uint64_t *sizes,
                           const uint64_t *pitches, const uint32_t *box, const uint32_t *ones,
                           int interleave, int swizzle, int promotion, int fill) {
    (void)ones;
    if ((uintptr_t)map % 64 != 0 || interleave != 0 || promotion != 2 || fill != 0) return 1;
    say("map %llu %d %u %d", (address)(uintptr_t)start, kind, rank, swizzle);
    for (uint32_t k = 0; k < rank; k++)
        say(" %llu/%llu/%u", (address)sizes[k], k ? (address)pitches[k - 1] : 0ull, box[k]);
    say("\n");
    return 0;
}
int cuStreamIsCapturing(void *stream, int *found) { (void)stream; *found = 0; return 0; }

/* Nodes are numbered from 1 in the order in which they are added. */
static uintptr_t nodes;

static void say_node(void **node, void *const *before, size_t count) {
    *node = (void *)++nodes;
    say("node %llu", (address)nodes);
    for (size_t k = 0; k < count; k++) say(" %llu", (address)(uintptr_t)before[k]);
    say("\n");
}

int cuGraphCreate(void **graph, unsigned flags) {
    CHECKED("cuGraphCreate");
    nodes = 0;
    *graph = malloc(1);
    say("begin\n");
    return (int)flags;
}

typedef struct {
    void *function;
    unsigned grid[3], block[3], shared;
    void **parameters, **extra;
    void *kernel, *context;
} kernel_node;

int cuGraphAddKernelNode(void **node, void *graph, void *const *before, size_t count,
                         const kernel_node *p) {
    (void)graph;
    CHECKED("cuGraphAddKernelNode");
    if (p->kernel != NULL || p->context != NULL) return 1;
    int error = cuLaunchKernel(p->function, p->grid[0], p->grid[1], p->grid[2], p->block[0],
                               p->block[1], p->block[2], p->shared, NULL, p->parameters, p->extra);
    say_node(node, before, count);
    return error;
}

typedef struct {
    struct {
        size_t x, y, z, level;
        int kind;
        const void *host;
        address device;
        void *array, *reserved;
        size_t pitch, height;
    } ends[2];
    size_t width, height, depth;
} copy_node;

int cuGraphAddMemcpyNode(void **node, void *graph, void *const *before, size_t count,
                         const copy_node *p, void *context) {
    (void)graph;
    CHECKED("cuGraphAddMemcpyNode");
    if (context != current || p->height != 1 || p->depth != 1) return 1;
    for (int k = 0; k < 2; k++)
        if (p->ends[k].kind != 2 || p->ends[k].pitch != p->width || p->ends[k].height != 1) return 1;
    int error = cuMemcpyDtoDAsync_v2(p->ends[1].device, p->ends[0].device, p->width, NULL);
    say_node(node, before, count);
    return error;
}

#ifndef OLD
int cuGraphAddKernelNode_v2(void **node, void *graph, void *const *before, size_t count,
                            const kernel_node *p) {
    return cuGraphAddKernelNode(node, graph, before, count, p);
}
int cuGraphAddDependencies_v2(void *graph, void *const *before, void *const *node,
                              const unsigned char *edge, size_t count) {
    (void)graph;
    if (edge[0] != 1 || edge[1] != 0 || edge[2] != 1) return 1;
    for (size_t k = 0; k < count; k++)
        say("early %llu %llu\n", (address)(uintptr_t)node[k], (address)(uintptr_t)before[k]);
    return 0;
}
#endif

int cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags) {
    (void)graph;
    *exec = malloc(1);
    return (int)flags;
}
int cuGraphDestroy(void *graph) { free(graph); return 0; }
int cuGraphExecDestroy(void *exec) { free(exec); say("drop\n"); return 0; }
int cuGraphLaunch(void *exec, void *stream) {
    (void)exec;
    CHECKED("cuGraphLaunch");
    say("graph %llu\n", (address)(uintptr_t)stream);
    return 0;
}
