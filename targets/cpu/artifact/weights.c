/* Where constants are: in a file of their own, or in the library. */

/* CRC-32, as zlib computes it, of eight bytes at a time. */
static uint32_t checksum(const unsigned char *data, size_t bytes) {
    uint32_t tables[8][256], sum = UINT32_MAX;
    for (uint32_t k = 0; k < 256; k++) {
        uint32_t word = k;
        for (int bit = 0; bit < 8; bit++) word = word >> 1 ^ (word & 1 ? 0xEDB88320u : 0);
        tables[0][k] = word;
    }
    for (uint32_t k = 0; k < 256; k++)
        for (int t = 1; t < 8; t++)
            tables[t][k] = tables[t - 1][k] >> 8 ^ tables[0][tables[t - 1][k] & 0xFF];
    for (; bytes >= 8; bytes -= 8, data += 8) {
        uint32_t low, high, found = 0;
        memcpy(&low, data, 4);
        memcpy(&high, data + 4, 4);
        low ^= sum;
        for (int t = 0; t < 4; t++)
            found ^= tables[7 - t][low >> 8 * t & 0xFF] ^ tables[3 - t][high >> 8 * t & 0xFF];
        sum = found;
    }
    for (; bytes > 0; bytes--) sum = sum >> 8 ^ tables[0][(sum ^ *data++) & 0xFF];
    return ~sum;
}

static int verify_constants(const unsigned char *start) {
    return checksum(start, CONSTANTS_BYTES) == CONSTANTS_SUM ? 0 : STRATA_DAMAGED;
}

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
    int is_known = fstat(file, &found) == 0;
    if (is_known && found.st_size >= WEIGHTS_HEAD)
        memory = mmap(NULL, (size_t)found.st_size, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED)
        return is_known && found.st_size < WEIGHTS_HEAD ? STRATA_OTHER_WEIGHTS : STRATA_NO_WEIGHTS;
    *start = memory;
    *mapped = (size_t)found.st_size;
    return is_right(memory, *mapped) ? 0 : STRATA_OTHER_WEIGHTS;
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
