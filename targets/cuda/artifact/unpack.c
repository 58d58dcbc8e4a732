/* Unpacks what was packed by "deflate" (RFC 1951). */

#define LONGEST 15 /* bits of a code */

/* Bits of a stream, the first of a byte being its lowest; zeros behind its end. */
typedef struct bits {
    const unsigned char *data;
    size_t next, bytes;
    uint64_t held;
    int32_t count;
} bits;

/* For each value of the next LONGEST bits the symbol that they start with, and how many bits it has;
   0 for none. */
typedef struct codes {
    uint16_t literals[1 << LONGEST], distances[1 << LONGEST];
} codes;

static void fill(bits *b) {
    for (; b->count <= 56; b->count += 8, b->next++)
        if (b->next < b->bytes) b->held |= (uint64_t)b->data[b->next] << b->count;
}

static uint32_t take(bits *b, int32_t count) {
    fill(b);
    uint32_t found = (uint32_t)b->held & ((1u << count) - 1);
    b->held >>= count;
    b->count -= count;
    return found;
}

static int32_t take_symbol(bits *b, const uint16_t *entries) {
    fill(b);
    uint16_t entry = entries[b->held & ((1u << LONGEST) - 1)];
    b->held >>= entry & 15;
    b->count -= entry & 15;
    return entry == 0 ? -1 : entry >> 4;
}

/* The codes of symbols with these lengths: of equal ones in the symbols' order, shorter ones first.
   Returns whether there are enough codes. */
static int make_codes(uint16_t *entries, const unsigned char *lengths, uint32_t symbols) {
    uint32_t counts[LONGEST + 1] = {0}, next[LONGEST + 1] = {0};
    memset(entries, 0, sizeof(uint16_t) << LONGEST);
    for (uint32_t k = 0; k < symbols; k++) counts[lengths[k]]++;
    counts[0] = 0;
    for (uint32_t n = 1; n <= LONGEST; n++) next[n] = (next[n - 1] + counts[n - 1]) << 1;
    for (uint32_t k = 0; k < symbols; k++) {
        uint32_t length = lengths[k], code = length ? next[length]++ : 0, turned = 0;
        if (length == 0) continue;
        if (code >> length) return 0;
        for (uint32_t n = 0; n < length; n++) turned |= (code >> n & 1) << (length - 1 - n);
        for (; turned < 1u << LONGEST; turned += 1u << length)
            entries[turned] = (uint16_t)(k << 4 | length);
    }
    return 1;
}

/* Read the lengths of a block's codes, which have codes themselves. */
static int read_codes(bits *b, codes *c) {
    static const unsigned char order[] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14,
                                          1, 15};
    unsigned char lengths[288 + 32 + 138] = {0}, own[19] = {0};
    uint32_t literals = take(b, 5) + 257, distances = take(b, 5) + 1, count = take(b, 4) + 4;
    for (uint32_t k = 0; k < count; k++) own[order[k]] = (unsigned char)take(b, 3);
    if (!make_codes(c->literals, own, 19)) return 0;
    for (uint32_t k = 0; k < literals + distances;) {
        int32_t symbol = take_symbol(b, c->literals);
        if (symbol < 0 || (symbol == 16 && k == 0)) return 0;
        uint32_t times = symbol < 16 ? 1 : symbol == 16 ? 3 + take(b, 2) :
            symbol == 17 ? 3 + take(b, 3) : 11 + take(b, 7);
        int32_t length = symbol < 16 ? symbol : symbol == 16 ? lengths[k - 1] : 0;
        for (; times > 0; times--) lengths[k++] = (unsigned char)length;
    }
    return make_codes(c->literals, lengths, literals) &&
        make_codes(c->distances, lengths + literals, distances);
}

static int fixed_codes(codes *c) {
    unsigned char lengths[288];
    for (int32_t k = 0; k < 288; k++)
        lengths[k] = k < 144 ? 8 : k < 256 ? 9 : k < 280 ? 7 : 8;
    int fits = make_codes(c->literals, lengths, 288);
    memset(lengths, 5, 30);
    return fits && make_codes(c->distances, lengths, 30);
}

/* A length or a distance: `extra` more bits after every `each` symbols, from `plain` on. */
static uint32_t take_number(bits *b, uint32_t symbol, uint32_t each, uint32_t plain,
                            uint32_t least) {
    if (symbol < plain) return least + symbol;
    uint32_t extra = (symbol - plain) / each + 1, step = (symbol - plain) % each;
    return least + ((each + step) << extra) + take(b, (int32_t)extra);
}

/* The block that follows. Returns where the output ends then; beyond `wanted` for damage. */
static size_t unpack_block(bits *b, const codes *c, unsigned char *out, size_t at, size_t wanted) {
    for (;;) {
        int32_t symbol = take_symbol(b, c->literals);
        if (symbol == 256) return at;
        if (symbol < 0 || symbol > 285 || at >= wanted) return wanted + 1;
        if (symbol < 256) {
            out[at++] = (unsigned char)symbol;
            continue;
        }
        uint32_t length = symbol == 285 ? 258 : take_number(b, (uint32_t)symbol - 257, 4, 8, 3);
        int32_t far = take_symbol(b, c->distances);
        if (far < 0 || far > 29) return wanted + 1;
        size_t distance = take_number(b, (uint32_t)far, 2, 4, 1);
        if (distance > at || length > wanted - at) return wanted + 1;
        for (; length > 0; length--, at++) out[at] = out[at - distance];
    }
}

/* Bytes that are stored as they are. */
static size_t copy_block(bits *b, unsigned char *out, size_t at, size_t wanted) {
    take(b, b->count % 8);
    uint32_t length = take(b, 16), check = take(b, 16);
    if ((length ^ 0xFFFF) != check || length > wanted - at) return wanted + 1;
    for (; length > 0; length--) out[at++] = (unsigned char)take(b, 8);
    return at;
}

/* Whether all of `packed` gave the `wanted` bytes. */
static int unpack(const unsigned char *packed, size_t bytes, unsigned char *out, size_t wanted,
                  codes *c) {
    bits b = {packed, 0, bytes, 0, 0};
    size_t at = 0;
    for (uint32_t is_last = 0; !is_last;) {
        is_last = take(&b, 1);
        uint32_t kind = take(&b, 2);
        if (kind == 0) at = copy_block(&b, out, at, wanted);
        else if (kind < 3 && (kind == 1 ? fixed_codes(c) : read_codes(&b, c)))
            at = unpack_block(&b, c, out, at, wanted);
        else return 0;
        if (at > wanted || b.next - (size_t)b.count / 8 > bytes) return 0;
    }
    return at == wanted;
}
