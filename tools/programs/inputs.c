/* inputs.c - see inputs.h. */
#include "programs/inputs.h"
#include "base/text.h"
#include "flexlab/data.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { BATCH = -1 };

static void begin(struct inputs *in, const struct network *n) {
    const size_t room = (size_t)n->input_count + 1;
    *in = (struct inputs){.count = n->input_count,
                          .array = text_alloc(room, sizeof *in->array),
                          .read = text_alloc(room, sizeof *in->read),
                          .shapes = text_alloc(room, sizeof *in->shapes),
                          .own = text_alloc(room, sizeof *in->own)};
}

void inputs_free(struct inputs *in) {
    for (int i = 0; i < in->count; i++) {
        data_array_free(&in->read[i]);
        free(in->own[i]);
    }
    free(in->array);
    free(in->read);
    free(in->shapes);
    free(in->own);
    *in = (struct inputs){0};
}

/* --- which file is which port ------------------------------------------------------------------------------------- */

int inputs_split(const struct network *n, const char *option, const char *word, const program_port *ports, int count,
                 int *port, const char **path) {
    const char *const equals = strchr(word, '=');
    *port = -1;
    *path = word;
    for (int i = 0; equals && i < count; i++)
        if (strlen(ports[i].name) == (size_t)(equals - word) &&
            !strncmp(ports[i].name, word, (size_t)(equals - word))) {
            *port = i;
            *path = equals + 1;
            return **path ? STATUS_OK : text_usage("--%s '%s': expected a file after '='", option, word);
        }
    struct stat about;
    if (!equals || !stat(word, &about))
        return STATUS_OK;
    char *names = text_format("%s", count ? ports[0].name : "none");
    for (int i = 1; i < count; i++) {
        char *const longer = text_format("%s, %s", names, ports[i].name);
        free(names);
        names = longer;
    }
    const int status =
        text_usage("--%s '%s': %s has no such %s, expected one of %s", option, word, n->path, option, names);
    free(names);
    return status;
}

static int read_input(struct inputs *in, const struct network *n, const char *word) {
    const char *path;
    int port, status = inputs_split(n, "input", word, n->inputs, n->input_count, &port, &path);
    if (status != STATUS_OK)
        return status;
    if (port >= 0 && in->read[port].type)
        return text_usage("--input '%s': the input '%s' is given twice", word, n->inputs[port].name);
    const bool all = port < 0 && network_is_archive(path);
    for (int i = 0; i < n->input_count && port < 0; i++)
        port = in->read[i].type ? -1 : i;
    if (port < 0)
        return text_usage("--input '%s': %s has no further input", word, n->path);
    if (!network_is_archive(path))
        return data_array_read(&in->read[port], path, NULL) ? text_failed("--input '%s': %s", word, tensor_error())
                                                            : STATUS_OK;
    status = network_read_member(&in->read[port], n, "input", port, path);
    for (int i = port + 1; all && i < n->input_count && status == STATUS_OK; i++)
        if (!in->read[i].type)
            status = network_read_member(&in->read[i], n, "input", i, path);
    return status;
}

/* The input of a port: the array as it was read; of float64 and float16 rounded to float32, which networks of floats
 * take. */
static void bring_to_port(struct inputs *in, const struct network *n, int i) {
    const program_array *const from = &in->read[i];
    in->array[i] = *from;
    if (n->inputs[i].type != TENSOR_TYPE_F32 || (from->type != TENSOR_TYPE_F64 && from->type != TENSOR_TYPE_F16))
        return;
    const int64_t count = network_elements(from);
    float *const floats = text_alloc((size_t)count + 1, sizeof *floats);
    for (int64_t k = 0; k < count; k++)
        floats[k] = (float)network_number(from, k);
    in->own[i] = floats;
    in->array[i].type = TENSOR_TYPE_F32;
    in->array[i].data = floats;
}

/* Whether the network fixes a first size of all inputs, of which program_run then takes a multiple. */
static bool has_batch(const struct network *n) {
    bool all = true;
    for (int i = 0; i < n->input_count; i++)
        all &= n->inputs[i].ndim > 0 && n->inputs[i].shape[0] > 0;
    return all;
}

static bool size_fits(const struct network *n, const program_port *port, int d, int64_t size) {
    const int64_t fixed = port->shape[d];
    return fixed < 0 || size == fixed || (d == 0 && has_batch(n) && size % fixed == 0);
}

/* "[2, 4], or a multiple of 2 as its first size", to be freed. */
static char *accepted_shape(const struct network *n, const program_port *port) {
    char *const shape = network_port_shape(port);
    if (!has_batch(n))
        return shape;
    char *const text = port->shape[0] == 1 ? text_format("%s, or any other first size", shape)
                                           : text_format("%s, or a multiple of %lld as its first size", shape,
                                                         (long long)port->shape[0]);
    free(shape);
    return text;
}

int inputs_check(const struct network *n, int i, const program_array *a) {
    const program_port *const port = &n->inputs[i];
    bool fits = port->ndim < 0 || a->ndim == port->ndim;
    for (int d = 0; d < a->ndim && fits; d++)
        fits = a->shape[d] > 0 && (port->ndim < 0 || size_fits(n, port, d, a->shape[d]));
    if (fits && a->type == port->type)
        return STATUS_OK;
    char *const expected = accepted_shape(n, port), *const given = text_shape(a->ndim, a->shape);
    const int status = text_failed("--input: '%s' is given %s %s, expected %s %s", port->name,
                                   network_type_name(a->type), given, network_type_name(port->type), expected);
    free(expected);
    free(given);
    return status;
}

int inputs_read(struct inputs *in, const struct network *n, const struct word_list *words) {
    int status = STATUS_OK;
    begin(in, n);
    for (int i = 0; i < words->count && status == STATUS_OK; i++)
        status = read_input(in, n, words->word[i]);
    for (int i = 0; i < n->input_count && status == STATUS_OK; i++) {
        const program_port *const port = &n->inputs[i];
        char *const shape = accepted_shape(n, port);
        if (!in->read[i].type)
            status = text_usage("the input '%s' is not given, expected --input %s=FILE with %s %s", port->name,
                                port->name, network_type_name(port->type), shape);
        if (status == STATUS_OK) {
            bring_to_port(in, n, i);
            status = inputs_check(n, i, &in->array[i]);
        }
        free(shape);
    }
    return status;
}

/* --- shapes ------------------------------------------------------------------------------------------------------- */

/* "Nx3x48x320". */
static bool read_sizes(program_array *shape, const char *text) {
    char *copy = text_format("%s", text), *rest = copy, *word;
    bool good = true;
    shape->ndim = 0;
    while (good && (word = strsep(&rest, "x"))) {
        int64_t *const size = &shape->shape[shape->ndim < PROGRAM_MAX_DIMS ? shape->ndim++ : 0];
        good = !strcmp(word, "N") || text_whole(word, 1, INT_MAX, size);
        if (good && !strcmp(word, "N"))
            *size = BATCH;
    }
    free(copy);
    return good;
}

static int read_shape(struct inputs *in, const struct network *n, const char *word) {
    const char *const equals = strrchr(word, '=');
    for (int i = 0; equals && i < n->input_count; i++) {
        const program_port *const port = &n->inputs[i];
        if (strlen(port->name) != (size_t)(equals - word) || strncmp(port->name, word, (size_t)(equals - word)) != 0)
            continue;
        bool good = read_sizes(&in->shapes[i], equals + 1) && (port->ndim < 0 || in->shapes[i].ndim == port->ndim);
        for (int d = 0; good && port->ndim >= 0 && d < port->ndim; d++)
            good = size_fits(n, port, d, in->shapes[i].shape[d]);
        if (good)
            return STATUS_OK;
        char *const shape = accepted_shape(n, port);
        const int status = text_usage(
            "--shape '%s': expected sizes such as 1x3x32x32, with N for the batch, that suit %s", word, shape);
        free(shape);
        return status;
    }
    return text_usage("--shape '%s': expected the name of an input of %s, '=' and sizes such as Nx3x32x32", word,
                      n->path);
}

/* Sizes that the network leaves open: the first is the batch, others must be given. */
int inputs_shapes(struct inputs *in, const struct network *n, const struct word_list *words) {
    int status = STATUS_OK;
    begin(in, n);
    for (int i = 0; i < n->input_count; i++)
        in->shapes[i].ndim = -1;
    for (int w = 0; w < words->count && status == STATUS_OK; w++)
        status = read_shape(in, n, words->word[w]);
    for (int i = 0; i < n->input_count && status == STATUS_OK; i++) {
        const program_port *const port = &n->inputs[i];
        if (in->shapes[i].ndim < 0) {
            bool known = port->ndim >= 0;
            in->shapes[i].ndim = port->ndim;
            for (int d = 0; d < port->ndim; d++) {
                in->shapes[i].shape[d] = port->shape[d] < 0 ? BATCH : port->shape[d];
                known &= d == 0 || port->shape[d] >= 0;
            }
            if (!known) {
                char *const shape = network_port_shape(port);
                status = text_usage("the input '%s' has %s, expected --shape %s=SIZES, such as Nx3x48x320 with N for "
                                    "the batch",
                                    port->name, shape, port->name);
                free(shape);
            }
        }
        for (int d = 0; d < in->shapes[i].ndim; d++)
            in->batched |= in->shapes[i].shape[d] == BATCH;
    }
    return status;
}

/* --- random numbers ---------------------------------------------------------------------------------------------- */

/* Steele, Lea and Flood 2014, SplitMix64. */
static uint64_t mixed(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Floats from -1 to 1; bytes of any value; wider integers, which may be indices, 0 or 1. */
static void fill(program_array *a, uint64_t key) {
    const int64_t count = network_elements(a);
    const size_t bytes = network_type_bytes(a->type);
    a->data = text_alloc((size_t)count, bytes);
    for (int64_t i = 0; i < count; i++) {
        const uint64_t draw = mixed(key << 40 ^ (uint64_t)i);
        if (a->type == TENSOR_TYPE_F32)
            ((float *)a->data)[i] = (float)(draw >> 40) * 0x1p-23f - 1;
        else if (a->type == TENSOR_TYPE_I8 || a->type == TENSOR_TYPE_U8)
            ((uint8_t *)a->data)[i] = (uint8_t)draw;
        else
            ((uint8_t *)a->data)[(size_t)i * bytes] = draw & 1; /* the low byte */
    }
}

void inputs_random(struct inputs *in, const struct network *n, int64_t batch) {
    for (int i = 0; i < n->input_count; i++) {
        program_array *const a = &in->array[i];
        free(in->own[i]);
        *a = in->shapes[i];
        a->type = n->inputs[i].type;
        for (int d = 0; d < a->ndim; d++)
            a->shape[d] = a->shape[d] == BATCH ? batch : a->shape[d];
        fill(a, (uint64_t)i);
        in->own[i] = a->data;
    }
}
