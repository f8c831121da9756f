/* onnx_wire.c - the bytes of an ONNX file as protobuf-c's structs. protobuf-c descends as deep as messages are nested
 * and takes each length for granted until it copies; so all lengths, texts and the depth are checked first, and what it
 * allocates is bounded by the size of the file.
 *
 * The encoding: protobuf.dev/programming-guides/encoding. */
#include "program/onnx/onnx_internal.h"
#ifdef FL_HAVE_ONNX
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/base/shown.h"
#include <string.h>

enum { VARINT, FIXED64, LENGTH, FIXED32 = 5 }; /* wire types */
/* Graphs within each other are three messages apart; network.c tells the limit of those. */
enum { MESSAGE_DEPTH = 64 };

struct scan {
    const uint8_t *start, *at, *end;
};

static tensor_status truncated(const struct scan *s, const char *message) {
    return fl_fail(TENSOR_E_DATA, "byte %td, in a %s: the file is no ONNX model, or it is truncated", s->at - s->start,
                   message);
}

static bool take_varint(struct scan *s, uint64_t *value, int most) {
    *value = 0;
    for (int i = 0; i < most && s->at < s->end; i++) {
        const uint8_t byte = *s->at++;
        *value |= (uint64_t)(byte & 0x7f) << 7 * i;
        if (byte < 0x80)
            return true;
    }
    return false;
}

static bool fits(const ProtobufCFieldDescriptor *field, int wire) {
    const bool packed = field->label == PROTOBUF_C_LABEL_REPEATED && wire == LENGTH;
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE:
        return wire == LENGTH;
    case PROTOBUF_C_TYPE_FLOAT:
        return wire == FIXED32 || packed;
    case PROTOBUF_C_TYPE_DOUBLE:
        return wire == FIXED64 || packed;
    default:
        return wire == VARINT || packed;
    }
}

/* A text ends at its first zero in C, and messages show it: it has none, and is UTF-8, as protobuf wants it. */
static tensor_status check_text(const struct scan *s, size_t size, const ProtobufCFieldDescriptor *field) {
    for (size_t i = 0, length; i < size; i += length) {
        length = fl_utf8_length(s->at + i, size - i);
        if (!length || !s->at[i])
            return fl_fail(TENSOR_E_DATA, "byte %td: the text of field %s is not UTF-8, or has a zero byte",
                           s->at + i - s->start, field->name);
    }
    return TENSOR_OK;
}

static tensor_status check_message(struct scan *s, const ProtobufCMessageDescriptor *message, int depth) {
    uint64_t seen = 0; /* fields that are single messages */
    if (depth > MESSAGE_DEPTH)
        return fl_fail(TENSOR_E_DATA, "byte %td: messages are nested more than %d deep", s->at - s->start,
                       MESSAGE_DEPTH);
    while (s->at < s->end) {
        const ptrdiff_t begin = s->at - s->start;
        uint64_t tag, value;
        if (!take_varint(s, &tag, 5) || tag >> 3 == 0 || tag >> 3 > 0x1fffffff)
            return truncated(s, message->short_name);
        const int wire = (int)(tag & 7);
        const ProtobufCFieldDescriptor *const field =
            protobuf_c_message_descriptor_get_field(message, (unsigned)(tag >> 3));
        const size_t left = (size_t)(s->end - s->at);
        if (field && !fits(field, wire))
            return fl_fail(TENSOR_E_DATA, "byte %td: field %s of a %s has wire type %d, which is not one of its type",
                           begin, field->name, message->short_name, wire);
        if (wire == VARINT ? !take_varint(s, &value, 10) : wire == FIXED64 ? left < 8 : wire == FIXED32 && left < 4)
            return truncated(s, message->short_name);
        if (wire == FIXED64 || wire == FIXED32)
            s->at += wire == FIXED64 ? 8 : 4;
        if (wire == VARINT || wire == FIXED64 || wire == FIXED32)
            continue;
        if (wire != LENGTH || !take_varint(s, &value, 10))
            return truncated(s, message->short_name);
        if (value > (uint64_t)(s->end - s->at))
            return fl_fail(TENSOR_E_DATA, "byte %td: field %s of a %s has %llu bytes, of which the file has %td", begin,
                           field ? field->name : "unknown", message->short_name, (unsigned long long)value,
                           s->end - s->at);
        if (field && field->type == PROTOBUF_C_TYPE_STRING)
            TRY(check_text(s, (size_t)value, field));
        if (field && field->type == PROTOBUF_C_TYPE_MESSAGE) {
            const uint64_t bit = UINT64_C(1) << (field - message->fields);
            if (field->label != PROTOBUF_C_LABEL_REPEATED && seen & bit)
                return fl_fail(TENSOR_E_DATA, "byte %td: a %s has a second %s", begin, message->short_name,
                               field->name);
            seen |= bit;
            struct scan part = {s->start, s->at, s->at + value};
            TRY(check_message(&part, field->descriptor, depth + 1));
        }
        s->at += value;
    }
    return TENSOR_OK;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* Small blocks are pieces of chunks, which are freed in the end. Large ones are freed when protobuf-c frees them: its
 * notes of where the fields of a message are would else add up. The size of each lies before it. */
struct fl_onnx_block {
    struct fl_onnx_block *next, *previous;
    _Alignas(FL_ALIGNMENT) char head[FL_ALIGNMENT - sizeof(size_t)];
    size_t size;
    char bytes[];
};
enum { LARGE = 1024, CHUNK = 1 << 16, PER_BYTE = 64, AT_LEAST = 1 << 20 };

static struct fl_onnx_block *add_block(struct fl_onnx_memory *m, size_t size) {
    struct fl_onnx_block *const block = fl_alloc(sizeof *block + size);
    if (!block)
        return NULL;
    block->previous = NULL;
    block->next = m->blocks;
    block->size = size;
    if (m->blocks)
        m->blocks->previous = block;
    m->blocks = block;
    return block;
}

static void *allocate(void *context, size_t size) {
    struct fl_onnx_memory *const m = context;
    const size_t word = sizeof(size_t), want = (size + 2 * word - 1) / word * word; /* with its size */
    if (size > m->limit || m->used + want > m->limit) {
        m->over = true;
        return NULL;
    }
    if (size >= LARGE) {
        struct fl_onnx_block *const block = add_block(m, size);
        m->used += block ? want : 0;
        return block ? block->bytes : NULL;
    }
    if (m->piece_left < want) {
        struct fl_onnx_block *const chunk = add_block(m, CHUNK);
        if (!chunk)
            return NULL;
        m->piece = chunk->bytes;
        m->piece_left = CHUNK;
    }
    char *const piece = m->piece;
    memcpy(piece, &size, word);
    m->piece += want;
    m->piece_left -= want;
    m->used += want;
    return piece + word;
}

static void release(void *context, void *pointer) {
    struct fl_onnx_memory *const m = context;
    const size_t word = sizeof(size_t);
    size_t size = 0;
    if (pointer)
        memcpy(&size, (char *)pointer - word, word);
    if (size < LARGE)
        return;
    struct fl_onnx_block *const block =
        (struct fl_onnx_block *)((char *)pointer - offsetof(struct fl_onnx_block, bytes));
    if (block->next)
        block->next->previous = block->previous;
    *(block->previous ? &block->previous->next : &m->blocks) = block->next;
    m->used -= (size + 2 * word - 1) / word * word;
    fl_free(block);
}

tensor_status fl_onnx_unpack(struct fl_onnx_memory *m, ProtobufCMessage **message,
                             const ProtobufCMessageDescriptor *kind, const uint8_t *bytes, size_t size) {
    struct scan s = {bytes, bytes, bytes + size};
    *m = (struct fl_onnx_memory){.allocator = {.alloc = allocate, .free = release, .allocator_data = m},
                                 .limit = PER_BYTE * size + AT_LEAST};
    *message = NULL;
    TRY(check_message(&s, kind, 0));
    *message = protobuf_c_message_unpack(kind, &m->allocator, size, bytes);
    if (*message)
        return TENSOR_OK;
    if (m->over)
        return fl_fail(TENSOR_E_DATA, "its messages take more than %zu bytes of memory, %d for each byte of the file",
                       m->limit, PER_BYTE);
    return fl_fail(TENSOR_E_DATA, "protobuf-c cannot decode the file, or there is no memory for it");
}

void fl_onnx_release(struct fl_onnx_memory *m) {
    while (m->blocks) {
        struct fl_onnx_block *const block = m->blocks;
        m->blocks = block->next;
        fl_free(block);
    }
    *m = (struct fl_onnx_memory){0};
}
#endif
