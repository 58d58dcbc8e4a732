/* States of a model on a GPU: the driver, device memory, kernels and constants. */

static int failed_call(STATE *s, const char *what, int error) {
    const char *name = "unknown";
    if (s->driver.error_name != NULL) s->driver.error_name(error, &name);
    return refuse(s, error == 2 ? STRATA_NO_MEMORY : STRATA_DEVICE, "%s failed on the GPU: %s (%d)",
                  what, name == NULL ? "unknown" : name, error);
}

/* Make the state's context current; `leave_context` makes that of the caller current again. */
static int use_context(STATE *s) {
    s->before = NULL;
    int error = s->driver.context_of(&s->before);
    if (error == 0 && s->before != s->context) error = s->driver.set_context(s->context);
    return error == 0 ? 0 : failed_call(s, "choosing the device", error);
}

static void leave_context(STATE *s) {
    if (s->before != s->context) s->driver.set_context(s->before);
}

/* ------------------------------------------------------------------ memory */
static void release(STATE *s, void *memory) {
    if (memory != NULL) s->driver.release((device_address)(uintptr_t)memory);
}

/* Memory of the device that grows when it must; its contents are not kept. Work on the stream may
   still use what is released. Callers need not have chosen the device. */
static int grow(STATE *s, void **memory, size_t *bytes, size_t wanted) {
    device_address found = 0;
    if (*memory != NULL && *bytes >= wanted) return 0;
    int status = use_context(s);
    if (status != 0) return status;
    if (*memory != NULL) s->driver.synchronize(s->stream);
    release(s, *memory);
    *memory = NULL;
    *bytes = 0;
    int error = s->driver.allocate(&found, wanted < 1 ? 1 : wanted);
    leave_context(s);
    if (error != 0) return failed_call(s, "allocating memory", error);
    *memory = (void *)(uintptr_t)found;
    *bytes = wanted;
    return 0;
}

static int check_memory(STATE *s, int64_t results, int64_t arena) {
    if (results >= 0 && arena >= 0 && sum_of(results, arena) < MOST_BYTES) return 0;
    return refuse(s, STRATA_NO_MEMORY, "a call needs %lld bytes for results and %lld bytes for "
                  "intermediate values; no device has that", (long long)results, (long long)arena);
}

int MODEL(allocate)(STATE *s, size_t bytes, void **memory) {
    size_t none = 0;
    if (s == NULL || memory == NULL) return STRATA_BAD_ARGUMENT;
    *memory = NULL;
    return grow(s, memory, &none, bytes);
}

void MODEL(release)(STATE *s, void *memory) {
    if (s == NULL || use_context(s) != 0) return;
    release(s, memory);
    leave_context(s);
}

static int transferred(STATE *s, const char *what, int error) {
    if (error == 0) error = s->driver.synchronize(s->stream);
    leave_context(s);
    return error == 0 ? 0 : failed_call(s, what, error);
}

int MODEL(upload)(STATE *s, void *target, const void *source, size_t bytes) {
    if (s == NULL || (bytes > 0 && (target == NULL || source == NULL))) return STRATA_BAD_ARGUMENT;
    if (use_context(s) != 0) return STRATA_DEVICE;
    return transferred(s, "copying to the device", bytes == 0 ? 0 : s->driver.to_device(
        (device_address)(uintptr_t)target, source, bytes, s->stream));
}

int MODEL(download)(STATE *s, void *target, const void *source, size_t bytes) {
    if (s == NULL || (bytes > 0 && (target == NULL || source == NULL))) return STRATA_BAD_ARGUMENT;
    if (use_context(s) != 0) return STRATA_DEVICE;
    return transferred(s, "copying from the device", bytes == 0 ? 0 : s->driver.download(
        target, (device_address)(uintptr_t)source, bytes, s->stream));
}

int MODEL(synchronize)(STATE *s) {
    if (s == NULL) return STRATA_BAD_ARGUMENT;
    if (use_context(s) != 0) return STRATA_DEVICE;
    return transferred(s, "a kernel", 0);
}

int MODEL(set_stream)(STATE *s, void *stream) {
    if (s == NULL) return STRATA_BAD_ARGUMENT;
    s->stream = stream;
    return STRATA_OK;
}

/* ------------------------------------------------------------------ states */
/* Functions that older drivers lack, without which libraries run all the same. */
static int is_optional(const char *name) {
    return strcmp(name, "cuTensorMapEncodeTiled") == 0 ||
           strcmp(name, "cuGraphAddDependencies_v2") == 0;
}

static int load_driver(STATE *s) {
    s->driver.library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (s->driver.library == NULL) return STRATA_NO_PROCESSOR;
    void **places = &s->driver.library + 1;
    for (size_t k = 0; k < DRIVER_FUNCTIONS; k++) {
        places[k] = dlsym(s->driver.library, driver_names[k]);
        if (places[k] == NULL && !is_optional(driver_names[k])) return STRATA_NO_PROCESSOR;
    }
    void *newer = dlsym(s->driver.library, "cuGraphAddKernelNode_v2");
    if (newer != NULL) memcpy(&s->driver.add_kernel, &newer, sizeof newer);
    return s->driver.init(0) == 0 ? 0 : STRATA_NO_PROCESSOR;
}

/* The caller's context, else that of the first device; and whether the code is for it. */
static int choose_device(STATE *s) {
    int major = 0, minor = 0, processors = 0;
    void *context = NULL;
    if (s->driver.context_of(&context) != 0) context = NULL;
    if ((context == NULL ? s->driver.device_get(&s->device, 0)
                         : s->driver.device_of(&s->device)) != 0)
        return STRATA_NO_PROCESSOR;
    if (s->driver.attribute(&major, 75, s->device) != 0 ||
        s->driver.attribute(&minor, 76, s->device) != 0 ||
        s->driver.attribute(&processors, 16, s->device) != 0)
        return STRATA_NO_PROCESSOR;
    if (major != ARCH_MAJOR || (ARCH_MAJOR >= 9 ? minor != ARCH_MINOR : minor < ARCH_MINOR))
        return STRATA_NO_PROCESSOR;
    s->processors = processors;
    if (context == NULL) {
        if (s->driver.retain(&context, s->device) != 0) return STRATA_DEVICE;
        s->is_retained = 1;
    }
    s->context = context;
    return 0;
}

/* Load all cubins, which are packed as one text. */
static int load_modules(STATE *s) {
    size_t bytes = (size_t)module_starts[MODULES], space = bytes + ALIGNMENT;
    strata_allocator *a = &s->allocator;
    codes *table = a->allocate(a->context, ALIGNMENT, sizeof *table);
    unsigned char *text = a->allocate(a->context, ALIGNMENT, space - space % ALIGNMENT);
    int status = 0;
    if (table == NULL || text == NULL)
        status = refuse(s, STRATA_NO_MEMORY, "there is not enough memory for %zu bytes", bytes);
    else if (!unpack(KERNELS_SYMBOL, PACKED_BYTES, text, bytes, table) ||
             checksum(text, bytes) != KERNELS_SUM)
        status = refuse(s, STRATA_DEVICE, "the code of the kernels is damaged");
    for (int32_t k = 0; k < MODULES && status == 0; k++) {
        int error = s->driver.load(&s->modules[k], text + module_starts[k]);
        if (error != 0) status = failed_call(s, "loading a kernel", error);
    }
    if (table != NULL) a->release(a->context, table);
    if (text != NULL) a->release(a->context, text);
    return status;
}

static int load_kernels(STATE *s) {
    int status = MODULES > 0 ? load_modules(s) : 0;
    if (status != 0) return status;
    for (int32_t k = 0; k < VARIANTS; k++) {
        const variant *v = &variants[k];
        int error = s->driver.function(&s->functions[k], s->modules[v->module], v->entry);
        if (error == 0 && v->shared > 48 * 1024)
            error = s->driver.set_function(s->functions[k], 8, v->shared);
        if (error != 0) return failed_call(s, "loading a kernel", error);
    }
    return 0;
}

static int load_constants(STATE *s, const strata_options *options) {
    const unsigned char *start = NULL;
    size_t mapped = 0;
    int status = open_weights(options->weights, &start, &mapped);
    if (status == 0 && options->verify) status = verify_constants(start);
    if (status == 0 && CONSTANTS_BYTES > 0) {
        int error = s->driver.allocate(&s->constants, CONSTANTS_BYTES);
        if (error == 0) error = s->driver.upload(s->constants, start, CONSTANTS_BYTES);
        if (error != 0) status = failed_call(s, "copying constants", error);
    }
    if (start != NULL) close_weights(start, mapped);
    return status;
}

static int start(STATE *s, const strata_options *options) {
    int status = load_driver(s);
    if (status == 0) status = choose_device(s);
    if (status == 0) status = use_context(s);
    if (status != 0) return status;
    status = load_kernels(s);
    if (status == 0) status = load_constants(s, options);
    leave_context(s);
    for (int32_t k = 0; k < CONSTANTS; k++)
        s->table[FIRST_CONSTANT + k].at = (void *)(uintptr_t)(s->constants + constants[k]);
    return status;
}

int MODEL(create)(const strata_options *given, STATE **made) {
    strata_options options;
    STATE *s = NULL;
    if (made == NULL) return STRATA_BAD_ARGUMENT;
    *made = NULL;
    int status = read_options(given, &options);
    if (status == 0) status = new_state(&options, &s);
    if (status != 0) return status;
    status = start(s, &options);
    if (status != 0) {
        MODEL(destroy)(s);
        return status;
    }
    *made = s;
    return 0;
}

static void drop_graph(STATE *s) {
    if (s->graph != NULL) s->driver.exec_destroy(s->graph);
    s->graph = NULL;
    s->is_known = 0;
}

void MODEL(destroy)(STATE *s) {
    if (s == NULL) return;
    if (s->context != NULL && use_context(s) == 0) {
        s->driver.synchronize(s->stream);
        drop_graph(s);
        for (int32_t k = 0; k < OUTPUTS; k++) release(s, s->owned[k]);
        release(s, s->arena);
        release(s, (void *)(uintptr_t)s->constants);
        for (int32_t k = 0; k < MODULES; k++)
            if (s->modules[k] != NULL) s->driver.unload(s->modules[k]);
        leave_context(s);
        if (s->is_retained) s->driver.release_context(s->device);
    }
    if (s->driver.library != NULL) dlclose(s->driver.library);
    s->allocator.release(s->allocator.context, s);
}

/* Of code for processors; a GPU has no threads to choose, and its runs do not end early. */
int MODEL(set_threads)(STATE *s, int32_t threads) {
    return s == NULL || threads < 0 ? STRATA_BAD_ARGUMENT : STRATA_OK;
}

void MODEL(cancel)(STATE *s) { (void)s; }

int64_t *MODEL(set_signals)(STATE *s, void *const *functions) {
    (void)s, (void)functions;
    return NULL;
}
