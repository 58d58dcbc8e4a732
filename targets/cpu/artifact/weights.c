/* Where constants are: in a file of their own, or in the library. */

#if HAS_WEIGHTS_FILE
/* The file of weights starts with its mark, its size, and what identifies its contents. */
static int is_right(const unsigned char *start, size_t bytes) {
    uint64_t size;
    if (bytes < WEIGHTS_HEAD || memcmp(start, WEIGHTS_MARK, 8) != 0) return 0;
    memcpy(&size, start + 8, sizeof size);
    return size == bytes && size == CONSTANTS_BYTES && memcmp(start + 16, weights_identity, 32) == 0;
}

static int open_weights(const char *path, const unsigned char **start, size_t *mapped) {
    struct stat found;
    int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return STRATA_NO_WEIGHTS;
    void *memory = MAP_FAILED;
    if (fstat(file, &found) == 0 && found.st_size >= WEIGHTS_HEAD)
        memory = mmap(NULL, (size_t)found.st_size, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED) return STRATA_NO_WEIGHTS;
    *start = memory;
    *mapped = (size_t)found.st_size;
    return is_right(memory, *mapped) ? 0 : STRATA_NO_WEIGHTS;
}

static void close_weights(const unsigned char *start, size_t mapped) {
    if (mapped > 0) munmap((void *)(uintptr_t)start, mapped);
}
#else
extern const unsigned char CONSTANTS_SYMBOL[];

static int open_weights(const char *path, const unsigned char **start, size_t *mapped) {
    (void)path, (void)mapped;
    *start = CONSTANTS_SYMBOL;
    return 0;
}

static void close_weights(const unsigned char *start, size_t mapped) { (void)start, (void)mapped; }
#endif
