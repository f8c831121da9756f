/* mutate_network.c - one change of a network's file that leaves its form whole (mutate_network.h).
 *
 * ONNX: a message of protocol buffers is taken apart by the fields of src/program/onnx/onnx.proto, one of its parts is
 * changed, and the lengths around it follow. This library's files: a number, text or list in the JSON of the network
 * changes, and the length of the header follows. TensorFlow Lite: an aligned word of the FlatBuffer changes in place.
 *
 * Source: protobuf.dev/programming-guides/encoding, flatbuffers.dev/internals. */
#include "mutate_network.h"
#include "fuzz.h"

static size_t below(uint64_t *seed, size_t limit) {
    return (size_t)(next_random(seed) % limit);
}

static int64_t some_number(uint64_t *seed, int64_t old) {
    static const int64_t edges[] = {-129,
                                    -128,
                                    -2,
                                    -1,
                                    0,
                                    1,
                                    2,
                                    3,
                                    4,
                                    7,
                                    8,
                                    16,
                                    127,
                                    128,
                                    255,
                                    256,
                                    32767,
                                    65536,
                                    1 << 20,
                                    INT_MAX,
                                    INT_MIN,
                                    INT64_MAX,
                                    INT64_MIN,
                                    (int64_t)1 << 31,
                                    (int64_t)1 << 40};
    switch (below(seed, 4)) {
    case 0:
        return (int64_t)((uint64_t)old + below(seed, 5) - 2);
    case 1:
        return (int64_t)(-(uint64_t)old);
    case 2:
        return (int64_t)below(seed, 24); /* types of elements, small sizes */
    default:
        return edges[below(seed, sizeof edges / sizeof edges[0])];
    }
}

static float some_float(uint64_t *seed, float old) {
    static const float edges[] = {0,       -0.0f,   1,        -1,  0.5f,  1e-45f,   1e-38f,
                                  1.5e-5f, 3.4e38f, -3.4e38f, 127, 1e10f, 0x1p-20f, 0x1p30f};
    static const uint32_t bits[] = {0x7f800000u, 0xff800000u, 0x7fc00000u}; /* infinities and no number */
    float f = 0;
    switch (below(seed, 5)) {
    case 0:
        return old * 2;
    case 1:
        return -old;
    case 2:
        memcpy(&f, &bits[below(seed, 3)], sizeof f);
        return f;
    default:
        return edges[below(seed, sizeof edges / sizeof edges[0])];
    }
}

/* Replaces `old` bytes at `at` by `count` others. The new size of the file; 0: it has no memory for them. */
static size_t replace(uint8_t *file, size_t size, size_t most, size_t at, size_t old, const void *bytes, size_t count) {
    if (size - old + count > most)
        return 0;
    memmove(file + at + count, file + at + old, size - at - old);
    if (count)
        memcpy(file + at, bytes, count);
    return size - old + count;
}

/* A word of 32 bits, as a number or as a float. */
static void change_word(uint8_t *at, uint64_t *seed) {
    int32_t i;
    float f;
    memcpy(&i, at, sizeof i);
    memcpy(&f, at, sizeof f);
    const int64_t number = some_number(seed, i);
    f = some_float(seed, f);
    i = (int32_t)(uint32_t)(uint64_t)number;
    if (below(seed, 2))
        memcpy(at, &f, sizeof f);
    else
        memcpy(at, &i, sizeof i);
}

/* --- protocol buffers ----------------------------------------------------------------------------------------------
 */

enum kind {
    OTHER,
    MODEL,
    OPSET,
    GRAPH,
    NODE,
    ATTRIBUTE,
    TENSOR,
    PAIR,
    VALUE,
    TYPE,
    TENSOR_KIND,
    SHAPE,
    DIMENSION,
    TEXT,
    NUMBERS
};

/* What is in the fields with a length; all others are numbers. */
static const struct field {
    enum kind in;
    unsigned number;
    enum kind has;
} fields[] = {
    {MODEL, 7, GRAPH},       {MODEL, 8, OPSET},     {MODEL, 14, PAIR},      {OPSET, 1, TEXT},
    {GRAPH, 1, NODE},        {GRAPH, 5, TENSOR},    {GRAPH, 11, VALUE},     {GRAPH, 12, VALUE},
    {GRAPH, 13, VALUE},      {NODE, 1, TEXT},       {NODE, 2, TEXT},        {NODE, 3, TEXT},
    {NODE, 4, TEXT},         {NODE, 5, ATTRIBUTE},  {NODE, 7, TEXT},        {NODE, 9, PAIR},
    {ATTRIBUTE, 1, TEXT},    {ATTRIBUTE, 4, TEXT},  {ATTRIBUTE, 5, TENSOR}, {ATTRIBUTE, 6, GRAPH},
    {ATTRIBUTE, 8, OTHER},   {ATTRIBUTE, 9, TEXT},  {TENSOR, 4, NUMBERS},   {TENSOR, 8, TEXT},
    {TENSOR, 9, NUMBERS},    {TENSOR, 10, NUMBERS}, {TENSOR, 13, PAIR},     {PAIR, 1, TEXT},
    {PAIR, 2, TEXT},         {VALUE, 1, TEXT},      {VALUE, 2, TYPE},       {TYPE, 1, TENSOR_KIND},
    {TENSOR_KIND, 2, SHAPE}, {SHAPE, 1, DIMENSION}, {DIMENSION, 2, TEXT},
};

enum { PARTS = 2048, DEPTH = 16 };

/* A part of the file: from its key to its end. */
struct part {
    size_t begin, body, end; /* of the key, of what follows key and length */
    unsigned number, wire;
    enum kind in, has;
    int around; /* the part that this is in; -1: none */
};
struct parts {
    struct part list[PARTS];
    int count;
};

/* False: it goes past the end. */
static bool read_varint(const uint8_t *file, size_t *at, size_t end, uint64_t *value) {
    *value = 0;
    for (int shift = 0; shift < 70 && *at < end; shift += 7) {
        const uint8_t byte = file[(*at)++];
        *value |= shift < 64 ? (uint64_t)(byte & 127) << shift : 0;
        if (byte < 128)
            return true;
    }
    return false;
}

static size_t write_varint(uint8_t *to, uint64_t value) {
    size_t count = 0;
    for (; value >= 128; value >>= 7)
        to[count++] = (uint8_t)(value | 128);
    to[count++] = (uint8_t)value;
    return count;
}

static enum kind kind_of(enum kind in, unsigned number) {
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (fields[i].in == in && fields[i].number == number)
            return fields[i].has;
    return OTHER;
}

static void take_apart(struct parts *p, const uint8_t *file, size_t at, size_t end, enum kind in, int around,
                       int depth) {
    uint64_t key, length = 0;
    while (at < end && p->count < PARTS && depth < DEPTH) {
        struct part one = {.begin = at, .in = in, .around = around};
        if (!read_varint(file, &at, end, &key))
            return;
        one.wire = (unsigned)key & 7;
        one.number = (unsigned)(key >> 3);
        one.body = at;
        if ((one.wire == 0 && !read_varint(file, &at, end, &length)) ||
            (one.wire == 2 && !read_varint(file, &at, end, &length)))
            return;
        if (one.wire == 2)
            one.body = at;
        const uint64_t bytes = one.wire == 2 ? length : one.wire == 1 ? 8 : one.wire == 5 ? 4 : 0;
        if (bytes > end - at || (one.wire > 2 && one.wire != 5))
            return;
        at += (size_t)bytes;
        one.end = at;
        one.has = one.wire == 2 ? kind_of(in, one.number) : OTHER;
        const int own = p->count;
        p->list[p->count++] = one;
        if (one.has != OTHER && one.has != TEXT && one.has != NUMBERS)
            take_apart(p, file, one.body, one.end, one.has, own, depth + 1);
    }
}

/* The lengths of the parts around one that grew by `grown` bytes, from the inside. */
static size_t mend_lengths(const struct parts *p, uint8_t *file, size_t size, size_t most, int around, int64_t grown) {
    for (int i = around; i >= 0 && size; i = p->list[i].around) {
        const struct part *const one = &p->list[i];
        uint8_t bytes[16];
        uint64_t key;
        size_t at = one->begin;
        read_varint(file, &at, one->body, &key);
        const size_t count = write_varint(bytes, (uint64_t)((int64_t)(one->end - one->body) + grown));
        grown += (int64_t)count - (int64_t)(one->body - at);
        size = replace(file, size, most, at, one->body - at, bytes, count);
    }
    return size;
}

/* Another text: of a part like this one, of any, or with a few letters changed. */
static size_t some_text(const struct parts *p, const uint8_t *file, const struct part *one, uint8_t *text, size_t room,
                        uint64_t *seed) {
    static const char *const words[] = {"QuantizeLinear",
                                        "DequantizeLinear",
                                        "Conv",
                                        "Relu",
                                        "Add",
                                        "Mul",
                                        "MatMul",
                                        "Clip",
                                        "Concat",
                                        "Softmax",
                                        "Reshape",
                                        "Identity",
                                        "BatchNormalization",
                                        "Transpose",
                                        "AveragePool",
                                        "MaxPool",
                                        "Gemm",
                                        "If",
                                        "Cast",
                                        "QLinearConv",
                                        "Flatten",
                                        "GlobalAveragePool",
                                        "Squeeze",
                                        "Sub",
                                        "Div",
                                        "Sigmoid",
                                        "Pad",
                                        "com.microsoft",
                                        "flexlab.part",
                                        "operand",
                                        "result",
                                        "constant",
                                        "mask",
                                        "residual",
                                        "activation",
                                        "flexlab.format",
                                        "flex16+5",
                                        "fp16",
                                        "flexlab.exponents",
                                        "o0=12",
                                        "flexlab.layout",
                                        "nhwc",
                                        "flexlab.operator",
                                        "Swish",
                                        "flexlab.rounding",
                                        "exact",
                                        "axis",
                                        "perm",
                                        "to",
                                        "group",
                                        "transB",
                                        "block_size",
                                        "pads",
                                        "strides",
                                        ""};
    const bool same = below(seed, 4) > 0;
    for (int tries = 0; tries < 64; tries++) {
        const struct part *const other = &p->list[below(seed, (size_t)p->count)];
        if (other->has != TEXT || (same && (other->in != one->in || other->number != one->number)) ||
            other->end - other->body > room)
            continue;
        memcpy(text, file + other->body, other->end - other->body);
        return other->end - other->body;
    }
    const char *const word = words[below(seed, sizeof words / sizeof words[0])];
    memcpy(text, word, strlen(word));
    return strlen(word);
}

/* Changes what one part has in it. Sizes are those before; *grown: by how much the part's own grew. */
static size_t change_part(const struct parts *p, uint8_t *file, size_t size, size_t most, int which, uint64_t *seed,
                          int64_t *grown) {
    static uint8_t text[4096];
    const struct part *const one = &p->list[which];
    uint8_t bytes[16];
    size_t at = one->body, count;
    uint64_t value;
    if (one->wire == 5) {
        change_word(file + one->body, seed);
        return size;
    }
    if (one->wire == 0) {
        read_varint(file, &at, one->end, &value);
        count = write_varint(bytes, (uint64_t)some_number(seed, (int64_t)value));
        *grown = (int64_t)count - (int64_t)(one->end - one->body);
        return replace(file, size, most, one->body, one->end - one->body, bytes, count);
    }
    if (one->has == TEXT || one->in == OPSET || one->in == PAIR) {
        count = some_text(p, file, one, text, sizeof text, seed);
        *grown = (int64_t)count - (int64_t)(one->end - one->body);
        return replace(file, size, most, one->body, one->end - one->body, text, count);
    }
    if (one->end > one->body) { /* numbers: a word, a byte, or fewer of them */
        const size_t length = one->end - one->body, where = below(seed, length);
        if (length >= 4 && below(seed, 2))
            change_word(file + one->body + where / 4 * 4 - (where / 4 * 4 + 4 > length ? 4u : 0u), seed);
        else
            file[one->body + where] = (uint8_t)next_random(seed);
    }
    return size;
}

static size_t mutate_message(uint8_t *file, size_t size, size_t most, uint64_t *seed) {
    static struct parts p;
    static uint8_t copy[4096 + 16];
    int64_t grown = 0;
    p.count = 0;
    take_apart(&p, file, 0, size, MODEL, -1, 0);
    if (!p.count)
        return 0;
    const int which = (int)below(seed, (size_t)p.count);
    const struct part *const one = &p.list[which], *const other = &p.list[below(seed, (size_t)p.count)];
    const size_t bytes = one->end - one->begin;
    size_t more = 0;
    const size_t choice = below(seed, 12);
    if (choice == 0) { /* one part fewer */
        more = replace(file, size, most, one->begin, bytes, NULL, 0);
        return mend_lengths(&p, file, more, most, one->around, -(int64_t)bytes);
    }
    if (choice < 3) { /* one more: the same again, or another one of those that are in such a part */
        const struct part *const from = other->in == one->in ? other : one;
        const size_t length = from->end - from->begin;
        if (length > sizeof copy)
            return 0;
        memcpy(copy, file + from->begin, length);
        more = replace(file, size, most, one->begin, 0, copy, length);
        return mend_lengths(&p, file, more, most, one->around, (int64_t)length);
    }
    if (choice == 3 && other->in == one->in && other->number == one->number &&
        other->end - other->begin <= sizeof copy) {
        const size_t length = other->end - other->begin; /* another one of its kind in its place */
        memcpy(copy, file + other->begin, length);
        more = replace(file, size, most, one->begin, bytes, copy, length);
        return mend_lengths(&p, file, more, most, one->around, (int64_t)length - (int64_t)bytes);
    }
    int leaf = which; /* messages have nothing of their own to change: a part in them does */
    while (leaf < p.count && p.list[leaf].wire == 2 && p.list[leaf].has != TEXT && p.list[leaf].has != NUMBERS &&
           p.list[leaf].has != OTHER)
        leaf++;
    if (leaf == p.count)
        return 0;
    more = change_part(&p, file, size, most, leaf, seed, &grown);
    return mend_lengths(&p, file, more, most, p.list[leaf].wire == 2 ? leaf : p.list[leaf].around, grown);
}

/* --- JSON ----------------------------------------------------------------------------------------------------------
 */

static bool in_number(uint8_t c) {
    return (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '+' || c == 'e';
}

/* A number, or a text between quotes, from `at` on; quotes of the network's own JSON have a backslash before them. */
struct token {
    size_t at, length;
    bool number;
};

static size_t tokens_of(struct token *list, size_t room, const uint8_t *text, size_t begin, size_t end) {
    size_t count = 0;
    for (size_t at = begin; at < end && count < room;) {
        struct token one = {.at = at};
        if (text[at] == '"') {
            one.at = ++at;
            while (at < end && text[at] != '"' && text[at] != '\\')
                at++;
            one.length = at - one.at;
            at += at < end && text[at] == '\\' ? 2 : 1;
            list[count++] = one;
        } else if (in_number(text[at]) && !(text[at] == 'e' || text[at] == '.' || text[at] == '+')) {
            while (at < end && in_number(text[at]))
                at++;
            one.length = at - one.at;
            one.number = true;
            list[count++] = one;
        } else {
            at++;
        }
    }
    return count;
}

static size_t mutate_json(uint8_t *file, size_t size, size_t most, uint64_t *seed) {
    static struct token list[4096];
    static char text[512];
    uint64_t header;
    memcpy(&header, file, sizeof header);
    if (size < 9 || header > size - 8)
        return 0;
    if (size > 8 + header && below(seed, 8) == 0) { /* numbers of tensors */
        const size_t at = 8 + (size_t)header + below(seed, size - 8 - (size_t)header);
        if (at / 4 * 4 + 4 <= size && at / 4 * 4 >= 8 + header)
            change_word(file + at / 4 * 4, seed);
        else
            file[at] = (uint8_t)next_random(seed);
        return size;
    }
    const size_t count = tokens_of(list, sizeof list / sizeof list[0], file, 8, 8 + (size_t)header);
    if (!count)
        return 0;
    const struct token *const one = &list[below(seed, count)];
    size_t length = 0;
    if (one->number && below(seed, 5)) {
        snprintf(text, sizeof text, "%.*s", (int)(one->length < 40 ? one->length : 40), (const char *)file + one->at);
        if (strchr(text, '.') || below(seed, 6) == 0) {
            const float f = some_float(seed, strtof(text, NULL));
            length = (size_t)snprintf(text, sizeof text, "%.9g", (double)f);
        } else {
            length = (size_t)snprintf(text, sizeof text, "%lld", (long long)some_number(seed, strtoll(text, NULL, 10)));
        }
    } else {
        const struct token *other = one;
        for (int tries = 0; tries < 32 && (other == one || other->number != one->number); tries++)
            other = &list[below(seed, count)];
        if (other->number != one->number || other->length > sizeof text)
            return 0;
        length = other->length;
        memcpy(text, file + other->at, length);
    }
    const uint64_t longer = header - one->length + length;
    const size_t more = replace(file, size, most, one->at, one->length, text, length);
    memcpy(file, &longer, sizeof longer);
    return more;
}

/* --- any of them ---------------------------------------------------------------------------------------------------
 */

size_t mutate_network(uint8_t *file, size_t size, size_t most, uint64_t *seed) {
    if (size > 9 && file[8] == '{')
        return mutate_json(file, size, most, seed);
    if (size >= 12 && !memcmp(file + 4, "TFL3", 4)) {
        change_word(file + 4 * (2 + below(seed, size / 4 - 2)), seed);
        return size;
    }
    return mutate_message(file, size, most, seed);
}
