/* tflite_read.c - the file and its tensors; see tflite_read.h. */
#include "program/tflite/tflite_read.h"
#include "core/base/fail.h"

#ifdef FL_HAVE_TFLITE
#include "core/base/files.h"
#include "core/base/memory.h"
#include "core/base/shown.h"
#include "program/tflite/tflite_reader.h"
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* --- the file ----------------------------------------------------------------------------------------------------- */

static tensor_status read_bytes(int file, unsigned char *bytes, size_t size) {
    size_t done = 0;
    while (done < size) {
        const ssize_t got = read(file, bytes + done, size - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fl_fail(TENSOR_E_IO, "cannot be read: %s", strerror(errno));
        if (got == 0)
            return fl_fail(TENSOR_E_DATA, "ends at byte %zu, expected %zu", done, size);
        done += (size_t)got;
    }
    return TENSOR_OK;
}

/* The bytes of a file; fl_free them. */
static tensor_status read_file(const char *path, unsigned char **bytes, size_t *size) {
    struct stat about;
    const char *kind;
    const int file = fl_file_open(path, &about, &kind);
    if (kind)
        return fl_fail(TENSOR_E_IO, "is %s, expected a regular file", kind);
    if (file < 0)
        return fl_fail(errno == ENOMEM ? TENSOR_E_MEMORY : TENSOR_E_IO, "cannot be opened: %s", strerror(errno));
    tensor_status status = TENSOR_OK;
    *bytes = NULL;
    if (about.st_size < 8 || about.st_size >= INT_MAX)
        status = fl_fail(TENSOR_E_DATA, "has %lld bytes, expected 8 to 2^31 - 2", (long long)about.st_size);
    *size = (size_t)about.st_size;
    if (!status && !(*bytes = fl_alloc(*size)))
        status = fl_fail(TENSOR_E_MEMORY, "no memory for its %zu bytes", *size);
    if (!status)
        status = read_bytes(file, *bytes, *size);
    close(file);
    return status;
}

tensor_status fl_tflite_take(struct fl_tflite_reader *r, uint64_t bytes) {
    const uint64_t limit = 4 * (uint64_t)r->size; /* writers may store equal lists once */
    if (bytes > limit - r->taken)
        return fl_fail(TENSOR_E_DATA,
                       "its tables name more than %llu bytes, four times its size: they must not name the same ones "
                       "over and over",
                       (unsigned long long)limit);
    r->taken += bytes;
    return TENSOR_OK;
}

/* --- tensors ------------------------------------------------------------------------------------------------------ */

/* By the numbers of the format's TensorType; 0: those that the library does not know, text and complex ones among
 * them. */
static tensor_type type_of(int type) {
    static const tensor_type types[] = {
        [0] = TENSOR_TYPE_F32,  [1] = TENSOR_TYPE_F16,  [2] = TENSOR_TYPE_I32,  [3] = TENSOR_TYPE_U8,
        [4] = TENSOR_TYPE_I64,  [6] = TENSOR_TYPE_BOOL, [7] = TENSOR_TYPE_I16,  [9] = TENSOR_TYPE_I8,
        [10] = TENSOR_TYPE_F64, [12] = TENSOR_TYPE_U64, [15] = TENSOR_TYPE_U32, [16] = TENSOR_TYPE_U16,
        [17] = TENSOR_TYPE_I8,  [18] = TENSOR_TYPE_BF16};
    return type < 0 || type >= (int)(sizeof types / sizeof types[0]) ? (tensor_type)0 : types[type];
}

static tensor_status read_shape(const struct fl_tflite_tensor *t, struct fl_net_value *v) {
    int64_t count = 1;
    if (t->shape.count > FL_ARRAY_DIMS)
        return fl_fail(TENSOR_E_DATA, "%u dimensions, expected at most %d", t->shape.count, FL_ARRAY_DIMS);
    if (t->signature.count && t->signature.count != t->shape.count)
        return fl_fail(TENSOR_E_DATA, "%u dimensions in its signature, expected %u as in its shape", t->signature.count,
                       t->shape.count);
    v->ndim = (int)t->shape.count;
    for (int i = 0; i < v->ndim; i++) {
        const int32_t dim = t->shape.at[i], open = t->signature.count ? t->signature.at[i] : dim;
        if (dim < 0 || (dim && count > ((int64_t)1 << 40) / dim))
            return fl_fail(TENSOR_E_DATA, "dimension %d is %d, expected 0 or more, and 2^40 elements in all", i, dim);
        if (open != dim && open != -1)
            return fl_fail(TENSOR_E_DATA, "dimension %d is %d in its signature, expected %d as in its shape, or -1", i,
                           open, dim);
        v->dim[i] = dim;
        count *= dim;
    }
    return TENSOR_OK;
}

static tensor_status read_quantisation(struct fl_tflite_reader *r, const struct fl_tflite_tensor *t,
                                       struct fl_net_value *v) {
    static const struct {
        int64_t least, largest;
    } ranges[] = {[TENSOR_TYPE_I8] = {INT8_MIN, INT8_MAX},
                  [TENSOR_TYPE_U8] = {0, UINT8_MAX},
                  [TENSOR_TYPE_I16] = {INT16_MIN, INT16_MAX},
                  [TENSOR_TYPE_I32] = {INT32_MIN, INT32_MAX},
                  [TENSOR_TYPE_I64] = {0, 0}}; /* sums of an int16 network */
    const size_t known = sizeof ranges / sizeof ranges[0];
    const bool sum = v->type == TENSOR_TYPE_I32 || v->type == TENSOR_TYPE_I64;
    if (t->other_quantisation)
        return fl_fail(TENSOR_E_UNSUPPORTED, "a quantisation with rules of its own, expected scales and zero points");
    if (!t->scale_count || (size_t)v->type >= known || (v->type != TENSOR_TYPE_I64 && !ranges[v->type].largest))
        return TENSOR_OK; /* what floats have was noted by a trainer */
    if (t->zero_count && t->zero_count != t->scale_count)
        return fl_fail(TENSOR_E_DATA, "%u zero points, expected %u as there are scales", t->zero_count, t->scale_count);
    if (t->scale_count > 1) {
        if (t->axis < 0 || t->axis >= v->ndim)
            return fl_fail(TENSOR_E_DATA, "scales along dimension %d, expected 0 to %d", t->axis, v->ndim - 1);
        if (t->scale_count != (uint64_t)v->dim[t->axis])
            return fl_fail(TENSOR_E_DATA, "%u scales along dimension %d, expected 1 or %lld", t->scale_count, t->axis,
                           (long long)v->dim[t->axis]);
    }
    TRY(fl_tflite_take(r, 12 * (uint64_t)t->scale_count));
    struct fl_quantisation *const q = fl_net_memory(r->n, sizeof *q);
    if (!q)
        return TENSOR_E_MEMORY;
    q->count = (int)t->scale_count;
    q->axis = t->scale_count > 1 ? t->axis : 0;
    q->scale = fl_net_memory(r->n, t->scale_count * sizeof *q->scale);
    q->zero = fl_net_memory(r->n, t->scale_count * sizeof *q->zero);
    if (!q->scale || !q->zero)
        return TENSOR_E_MEMORY;
    for (uint32_t i = 0; i < t->scale_count; i++) {
        int64_t zero = 0;
        if (t->zero_count)
            memcpy(&zero, t->zero + i * sizeof zero, sizeof zero);
        /* the scale of a sum is a product, and may be too small for a float */
        if (!isfinite(t->scale[i]) || t->scale[i] < 0 || (t->scale[i] == 0 && !sum))
            return fl_fail(TENSOR_E_DATA, "scale %u is %g, expected a positive number", i, (double)t->scale[i]);
        if (zero < ranges[v->type].least || zero > ranges[v->type].largest)
            return fl_fail(TENSOR_E_DATA, "zero point %u is %lld, expected %lld to %lld as its type is %s", i,
                           (long long)zero, (long long)ranges[v->type].least, (long long)ranges[v->type].largest,
                           fl_type_name(v->type));
        q->scale[i] = t->scale[i];
        q->zero[i] = (int32_t)zero;
    }
    v->quantisation = q;
    return TENSOR_OK;
}

/* The bytes of a buffer; NULL: it is empty. */
static tensor_status find_buffer(struct fl_tflite_reader *r, uint32_t i, const unsigned char **bytes, uint64_t *count) {
    struct fl_tflite_buffer b;
    *bytes = NULL;
    *count = 0;
    if (i >= r->model.buffers && i) /* 0: none, even where there is none */
        return fl_fail(TENSOR_E_DATA, "buffer %u, expected less than %u", i, r->model.buffers);
    if (i >= r->model.buffers)
        return TENSOR_OK;
    fl_tflite_get_buffer(&r->model, i, &b);
    *bytes = b.bytes;
    *count = b.count;
    if (b.bytes || b.offset < 2) /* 0 and 1: not set */
        return TENSOR_OK;
    if (b.offset > r->size || b.size > r->size - b.offset)
        return fl_fail(TENSOR_E_DATA, "buffer %u at byte %llu, %llu bytes long: the file ends at %zu", i,
                       (unsigned long long)b.offset, (unsigned long long)b.size, r->size);
    *bytes = r->bytes + b.offset;
    *count = b.size;
    return TENSOR_OK;
}

enum { INT4 = 17 };

/* Tensors whose buffer has bytes are constants, and those without an element that nobody computes. */
static tensor_status read_constant(struct fl_tflite_reader *r, const struct fl_tflite_tensor *t, bool made,
                                   struct fl_net_value *v) {
    const unsigned char *bytes;
    uint64_t count, expected;
    struct fl_array a = {.type = v->type, .ndim = v->ndim, .count = 1};
    TRY(find_buffer(r, t->buffer, &bytes, &count));
    for (int i = 0; i < v->ndim; i++)
        a.count *= a.dim[i] = v->dim[i];
    if (made || (!count && a.count))
        return TENSOR_OK;
    if (!v->type)
        return TENSOR_OK; /* an error where an operator reads it */
    expected = (uint64_t)a.count * fl_type_bytes(v->type);
    v->four_bits = t->type == INT4;
    if (v->four_bits)
        expected = (expected + 1) / 2;
    if (count != expected)
        return fl_fail(TENSOR_E_DATA, "buffer %u has %llu bytes, expected %llu for its shape and type", t->buffer,
                       (unsigned long long)count, (unsigned long long)expected);
    if (v->four_bits) { /* its own copy: other tensors of the buffer may have other types */
        TRY(fl_tflite_take(r, (uint64_t)a.count));
        TRY(fl_net_array(r->n, &v->constant, v->type, v->ndim, v->dim));
        if (a.count)
            fl_net_spread(v->constant, bytes);
        return TENSOR_OK;
    }
    if (count && !r->copies[t->buffer]) {
        TRY(fl_tflite_take(r, count));
        r->copies[t->buffer] = fl_net_memory(r->n, count);
        if (!r->copies[t->buffer])
            return TENSOR_E_MEMORY;
        memcpy(r->copies[t->buffer], bytes, count);
    }
    a.data = count ? r->copies[t->buffer] : NULL;
    v->constant = fl_net_memory(r->n, sizeof *v->constant);
    if (!v->constant)
        return TENSOR_E_MEMORY;
    *v->constant = a;
    for (uint64_t i = 0; v->type == TENSOR_TYPE_BOOL && i < count; i++)
        if (bytes[i] > 1)
            return fl_fail(TENSOR_E_DATA, "a bool is %d, expected 0 or 1", bytes[i]);
    return TENSOR_OK;
}

/* A text ends at its first zero in C, and files that the network is written to want UTF-8. */
static bool is_text(const struct fl_tflite_text *text) {
    size_t length;
    for (size_t i = 0; i < text->length; i += length)
        if (!text->at[i] || !(length = fl_utf8_length((const unsigned char *)text->at + i, text->length - i)))
            return false;
    return true;
}

static tensor_status read_tensor(struct fl_tflite_reader *r, uint32_t i) {
    struct fl_tflite_tensor t;
    char number[32];
    fl_tflite_get_tensor(&r->model, i, &t);
    snprintf(number, sizeof number, "tensor %u", i);
    if (!is_text(&t.name))
        return fl_fail(TENSOR_E_DATA, "the name of tensor %u is not UTF-8, or has a zero byte", i);
    TRY(fl_tflite_take(r, t.name.length));
    const int value = fl_net_add_value(r->n, t.name.length ? t.name.at : number);
    if (value < 0)
        return TENSOR_E_MEMORY;
    struct fl_net_value *const v = &r->n->values[value];
    v->type = type_of(t.type);
    tensor_status status = read_shape(&t, v);
    if (!status && t.sparse)
        status = fl_fail(TENSOR_E_UNSUPPORTED, "it is stored as a sparse tensor, expected all its elements");
    if (!status && t.variable)
        status = fl_fail(TENSOR_E_UNSUPPORTED, "it is a variable, which stays between runs");
    if (!status)
        status = read_quantisation(r, &t, v);
    if (!status)
        status = read_constant(r, &t, r->made[i], v);
    if (t.type == INT4 && !v->constant)
        v->type = (tensor_type)0; /* weights alone */
    return status ? fl_fail(status, "tensor %u (%s): %s", i, v->name, tensor_error()) : TENSOR_OK;
}

/* --- the model ---------------------------------------------------------------------------------------------------- */

/* Operands and results of all operators are tensors of the model, and each is computed once; so no operator can be
 * named twice. */
static tensor_status check_indices(struct fl_tflite_reader *r) {
    const struct {
        const struct fl_tflite_ints *list;
        const char *what;
    } ends[] = {{&r->model.inputs, "input"}, {&r->model.outputs, "output"}};
    for (int e = 0; e < 2; e++) {
        TRY(fl_tflite_take(r, 4 * (uint64_t)ends[e].list->count));
        for (uint32_t k = 0; k < ends[e].list->count; k++) {
            const int32_t t = ends[e].list->at[k];
            if (t < 0 || (uint32_t)t >= r->model.tensors)
                return fl_fail(TENSOR_E_DATA, "%s %u is tensor %d, expected 0 to %u", ends[e].what, k, t,
                               r->model.tensors - 1);
            r->made[t] |= e == 0;
        }
    }
    for (uint32_t i = 0; i < r->model.operators; i++) {
        struct fl_tflite_operator op;
        fl_tflite_get_operator(&r->model, i, &op);
        TRY(fl_tflite_take(r, 4 * ((uint64_t)op.inputs.count + op.outputs.count)));
        if (op.code < 0)
            return fl_fail(TENSOR_E_DATA, "operator %u: its code is not among those of the file", i);
        if (!op.outputs.count)
            return fl_fail(TENSOR_E_DATA, "operator %u (%s): no result", i, op.name);
        for (uint32_t k = 0; k < op.inputs.count; k++)
            if (op.inputs.at[k] < -1 || op.inputs.at[k] >= (int64_t)r->model.tensors)
                return fl_fail(TENSOR_E_DATA, "operator %u (%s): operand %u is tensor %d, expected -1 to %u", i,
                               op.name, k, op.inputs.at[k], r->model.tensors - 1);
        for (uint32_t k = 0; k < op.outputs.count; k++) {
            const int32_t t = op.outputs.at[k];
            if (t < 0 || (uint32_t)t >= r->model.tensors)
                return fl_fail(TENSOR_E_DATA, "operator %u (%s): result %u is tensor %d, expected 0 to %u", i, op.name,
                               k, t, r->model.tensors - 1);
            if (r->made[t])
                return fl_fail(TENSOR_E_DATA,
                               "operator %u (%s) computes tensor %d, which is an input or computed already", i, op.name,
                               t);
            r->made[t] = true;
        }
    }
    return TENSOR_OK;
}

static tensor_status copy_ends(struct fl_network *n, const struct fl_tflite_ints *list, int **values, int *count) {
    *values = fl_net_memory(n, list->count * sizeof **values);
    if (!*values)
        return TENSOR_E_MEMORY;
    for (uint32_t k = 0; k < list->count; k++)
        (*values)[k] = list->at[k];
    *count = (int)list->count;
    return TENSOR_OK;
}

static tensor_status read_model(struct fl_tflite_reader *r) {
    struct fl_network *const n = r->n;
    if (memcmp(r->bytes + 4, "TFL3", 4))
        return fl_fail(TENSOR_E_DATA, "is not a .tflite file: expected TFL3 at byte 4");
    if (!fl_tflite_verify(r->bytes, r->size))
        return fl_fail(TENSOR_E_DATA, "is truncated or damaged: a table, list or text reaches beyond it");
    fl_tflite_get_model(r->bytes, &r->model);
    if (r->model.version != 3)
        return fl_fail(TENSOR_E_UNSUPPORTED, "version %u of the format, expected 3", r->model.version);
    if (r->model.graphs != 1)
        return fl_fail(r->model.graphs ? TENSOR_E_UNSUPPORTED : TENSOR_E_DATA, "%u sub-graphs, expected 1",
                       r->model.graphs);
    if (!r->model.tensors || r->model.tensors > INT_MAX / 8)
        return fl_fail(TENSOR_E_DATA, "%u tensors, expected 1 to %d", r->model.tensors, INT_MAX / 8);
    if (!is_text(&r->model.description))
        return fl_fail(TENSOR_E_DATA, "the description of the model is not UTF-8, or has a zero byte");
    r->copies = fl_net_memory(n, r->model.buffers * sizeof *r->copies);
    r->made = fl_net_memory(n, r->model.tensors * sizeof *r->made);
    r->depthwise = fl_net_memory(n, r->model.tensors * sizeof *r->depthwise);
    n->producer = fl_net_text(n, r->model.description.at, r->model.description.length);
    if (!r->copies || !r->made || !r->depthwise || !n->producer)
        return TENSOR_E_MEMORY;
    TRY(check_indices(r));
    for (uint32_t i = 0; i < r->model.tensors; i++)
        TRY(read_tensor(r, i));
    TRY(fl_tflite_survey(r));
    TRY(copy_ends(n, &r->model.inputs, &n->graph.inputs, &n->graph.input_count));
    TRY(copy_ends(n, &r->model.outputs, &n->graph.outputs, &n->graph.output_count));
    for (uint32_t i = 0; i < r->model.operators; i++)
        TRY(fl_tflite_add_node(r, i));
    TRY(fl_net_check(n));
    return fl_tflite_open_batch(r);
}

tensor_status fl_tflite_read(struct fl_network **network, const char *path) {
    const uint16_t one = 1;
    struct fl_tflite_reader r = {0};
    unsigned char *bytes = NULL;
    tensor_status status = TENSOR_OK;
    if (!*(const unsigned char *)&one)
        status = fl_fail(TENSOR_E_UNSUPPORTED, "the numbers of this machine are not little-endian");
    if (!status)
        status = read_file(path, &bytes, &r.size);
    r.bytes = bytes;
    if (!status && !(r.n = fl_network_new(FL_NET_TFLITE)))
        status = TENSOR_E_MEMORY;
    if (!status)
        status = read_model(&r);
    fl_free(bytes);
    if (status) {
        fl_network_free(r.n);
        return fl_fail(status, "tflite: %s: %s", path, tensor_error());
    }
    *network = r.n;
    return TENSOR_OK;
}

#else

tensor_status fl_tflite_read(struct fl_network **network, const char *path) {
    (void)network;
    return fl_fail(TENSOR_E_UNSUPPORTED,
                   "tflite: %s: this library was built without FlatBuffers (packages libflatbuffers-dev and "
                   "flatbuffers-compiler)",
                   path);
}
#endif
