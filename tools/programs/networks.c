/* networks.c - programs of files as the commands see them. */
#include "programs/networks.h"
#include "base/input.h"
#include "base/table.h"
#include "base/text.h"
#include "flexlab/nn.h"
#include "options/options.h"
#include "flexlab/data.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The library's message, with the file's name before it unless it is in it. */
static int failed(const char *path) {
    return strstr(tensor_error(), path) ? text_failed("%s", tensor_error())
                                        : text_failed("%s: %s", path, tensor_error());
}

/* "HxW", or a length. */
static int read_image_size(program_weight_file *how, const char *text) {
    char rest;
    if (!text)
        return STATUS_OK;
    if (sscanf(text, "%5dx%5d%c", &how->height, &how->width, &rest) == 2 && how->height > 0 && how->width > 0)
        return STATUS_OK;
    how->height = 0;
    return sscanf(text, "%5d%c", &how->width, &rest) == 1 && how->width > 0
               ? STATUS_OK
               : text_usage("--image '%s': expected height and width such as 32x32, or the length of a text", text);
}

/* The numbers of a note with commas between them; NULL: there is none. */
static char *read_numbers(const char *path, const char *key) {
    char text[200];
    if (nn_checkpoint_note(text, sizeof text, path, key) || !*text)
        return NULL;
    for (char *space; (space = strchr(text, ' '));)
        *space = ',';
    return text_format("%s", text);
}

/* Weights, or a network that says itself what it is. */
static int read_file(struct network *n, const char *path, const struct settings *s) {
    program_weight_file how = {.model = s->network_model, .layout = s->weight_layout};
    char model[100];
    int64_t dim[8];
    int ndim;
    const int status = read_image_size(&how, s->image_size);
    if (status != STATUS_OK)
        return status;
    const bool checkpoint = !nn_checkpoint_note(model, sizeof model, path, "training.model");
    if (checkpoint && !how.model) {
        n->mean = read_numbers(path, "training.mean");
        n->deviation = read_numbers(path, "training.deviation");
    }
    if (how.model || checkpoint)
        return program_read_weights(&n->p, path, &how) ? failed(path) : STATUS_OK;
    if (how.layout || how.width)
        return text_usage("--%s: only with --model, for a file of weights", how.layout ? "weight-layout" : "image");
    if (!program_read(&n->p, path))
        return STATUS_OK;
    char *const why = text_format("%s", tensor_error());
    const bool weights = !nn_checkpoint_shape(&ndim, dim, path, "") &&
                         nn_checkpoint_note(model, sizeof model, path, "flexlab.program") == TENSOR_E_DATA;
    const int failure = weights ? text_failed("%s: a safetensors file, which is no program; weights of a model need "
                                              "--model NAME ('flexlab info models')",
                                              path)
                        : strstr(why, path) ? text_failed("%s", why)
                                            : text_failed("%s: %s", path, why);
    free(why);
    return failure;
}

static int read_rounded(struct network *n) {
    const int status = read_file(n, n->path, n->settings);
    return status == STATUS_OK && n->settings->rounding && program_set_rounding(n->p, n->settings->rounding)
               ? failed(n->path)
               : status;
}

/* Of the program, to which their names belong. */
static int read_ports(struct network *n) {
    n->input_count = program_input_count(n->p);
    n->output_count = program_output_count(n->p);
    free(n->inputs);
    free(n->outputs);
    n->inputs = text_alloc((size_t)n->input_count + 1, sizeof *n->inputs);
    n->outputs = text_alloc((size_t)n->output_count + 1, sizeof *n->outputs);
    for (int i = 0; i < n->input_count; i++)
        if (program_input_at(&n->inputs[i], n->p, i))
            return failed(n->path);
    for (int i = 0; i < n->output_count; i++)
        if (program_output_at(&n->outputs[i], n->p, i))
            return failed(n->path);
    return STATUS_OK;
}

int network_open(struct network *n, const char *path, const struct settings *s) {
    const char *why;
    FILE *const file = input_open(path, &why);
    *n = (struct network){.path = path, .settings = s};
    if (!file)
        return text_failed("cannot read %s: %s", path, why);
    fclose(file);
    const int status = read_rounded(n);
    if (status != STATUS_OK)
        return status;
    return read_ports(n);
}

void network_close(struct network *n) {
    program_free(n->p);
    free(n->mean);
    free(n->deviation);
    free(n->inputs);
    free(n->outputs);
    *n = (struct network){0};
}

/* Whether 8-bit integers of some port stand for real numbers. */
static bool any_scale(const program_port *ports, int count) {
    for (int i = 0; i < count; i++)
        if (ports[i].scale > 0)
            return true;
    return false;
}

static void add_ports(struct table *t, const char *kind, const program_port *ports, int count, bool scales) {
    for (int i = 0; i < count; i++) {
        table_cell(t, "%s", kind);
        table_take(t, text_shown(ports[i].name));
        table_cell(t, "%s", network_type_name(ports[i].type));
        table_take(t, network_port_shape(&ports[i]));
        if (scales && ports[i].scale > 0) {
            table_cell(t, "%.9g", (double)ports[i].scale);
            table_cell(t, "%d", ports[i].zero);
        } else if (scales) {
            table_cell(t, "-");
            table_cell(t, "-");
        }
    }
}

void network_print_ports(const struct network *n) {
    const bool scales = any_scale(n->inputs, n->input_count) || any_scale(n->outputs, n->output_count);
    struct table *t = table_new(scales ? "llllrr" : "llll");
    table_cell(t, "port");
    table_cell(t, "name");
    table_cell(t, "type");
    table_cell(t, "shape");
    if (scales) {
        table_cell(t, "scale");
        table_cell(t, "zero point");
    }
    add_ports(t, "input", n->inputs, n->input_count, scales);
    add_ports(t, "output", n->outputs, n->output_count, scales);
    table_print(t, stdout, 0, 0);
    table_free(t);
}

int network_run(const struct network *n, program_array *outputs, const program_array *inputs) {
    return program_run(n->p, outputs, inputs) ? failed(n->path) : STATUS_OK;
}

int network_freeze(const struct network *n, const program_array *inputs) {
    return program_calibrate(n->p, inputs) || program_freeze(n->p, 0) ? failed(n->path) : STATUS_OK;
}

int network_format(const struct network *n, tensor_format format) {
    return program_set_format(n->p, format, NULL, NULL) ? failed(n->path) : STATUS_OK;
}

int network_reopen(struct network *n) {
    program_free(n->p);
    free(n->mean);
    free(n->deviation);
    n->mean = n->deviation = NULL;
    n->p = NULL;
    const int status = read_rounded(n);
    return status == STATUS_OK ? read_ports(n) : status;
}

int network_scales(const struct network *n, const char *path) {
    return program_scales_read(n->p, path) ? text_failed("--scales '%s': %s", path, tensor_error()) : STATUS_OK;
}

bool network_has_formats(const struct network *n) {
    program_node node;
    for (int i = 0; i < program_node_count(n->p); i++)
        if (!program_node_at(&node, n->p, i) && !node.quantised && node.format != FMT_FP32)
            return true;
    return false;
}

static bool is_operator(const program_node *a, const program_node *b) {
    return !strcmp(a->op, b->op) && !strcmp(a->domain, b->domain);
}

/* "Softmax, 2 Resize" */
static char *float_operators(const struct network *n) {
    char *text = text_format("%s", "");
    for (int i = 0; i < program_node_count(n->p); i++) {
        program_node node, other;
        int count = 0;
        bool first = !program_node_at(&node, n->p, i) && !node.quantised && !node.border;
        for (int k = 0; first && k < program_node_count(n->p); k++)
            if (!program_node_at(&other, n->p, k) && !other.quantised && is_operator(&node, &other)) {
                first = k >= i;
                count++;
            }
        if (!first)
            continue;
        char *const number = count > 1 ? text_format("%d ", count) : text_format("%s", "");
        char *const longer =
            text_format("%s%s%s%s%s%s", text, *text ? ", " : "", number, node.domain, *node.domain ? "." : "", node.op);
        free(number);
        free(text);
        text = longer;
    }
    return text;
}

void network_take_census(struct network_census *c, const struct network *n) {
    *c = (struct network_census){.operators = float_operators(n)};
    for (int i = 0; i < program_node_count(n->p); i++) {
        program_node node;
        if (program_node_at(&node, n->p, i))
            continue;
        c->integers += node.quantised;
        c->conversions += node.border;
        c->floats += !node.quantised && !node.border;
    }
}

char *network_integers(const struct network *n) {
    struct network_census c;
    network_take_census(&c, n);
    char *const text = !c.integers ? NULL
                       : c.floats + c.conversions
                           ? text_format("%d node%s in 8-bit integers, %d in floats%s%s%s, %d conversion%s "
                                         "between them",
                                         c.integers, c.integers == 1 ? "" : "s", c.floats, c.floats ? " (" : "",
                                         c.operators, c.floats ? ")" : "", c.conversions, c.conversions == 1 ? "" : "s")
                           : text_format("all %d nodes in 8-bit integers", c.integers);
    free(c.operators);
    return text;
}

bool network_is_own(const struct network *n) {
    struct network_census c;
    network_take_census(&c, n);
    free(c.operators);
    return c.integers || network_has_formats(n);
}

/* --- formats ------------------------------------------------------------------------------------------------------ */

static const char *format_name(int i) {
    const tensor_format format = tensor_format_at(i);
    return format ? tensor_format_name(format) : NULL;
}

/* The same with int8 and int8:tensor behind them. */
static const char *format_or_int8(int i) {
    int count = 0;
    while (tensor_format_at(count))
        count++;
    return i < count ? format_name(i) : i == count ? "int8" : i == count + 1 ? "int8:tensor" : NULL;
}

static int add_format(struct format_list *list, const char *option, const char *name, bool int8) {
    const bool per_tensor = !strcmp(name, "int8:tensor");
    tensor_format format = PROGRAM_INT8;
    const bool integers = per_tensor || !strcmp(name, "int8");
    if (integers && !int8)
        return text_usage(
            "--%s '%s': 8-bit integers need calibration: 'flexlab transpile FILE --to int8' writes a file "
            "that computes them",
            option, name);
    if (!integers && tensor_format_find(&format, name))
        return text_refuse_name(text_format("--%s '%s'", option, name), name, int8 ? format_or_int8 : format_name);
    for (int i = 0; i < list->count; i++)
        if (list->format[i] == format && list->per_tensor[i] == per_tensor)
            return text_usage("--%s: '%s' is named twice", option, name);
    if (list->count == MOST_FORMATS)
        return text_usage("--%s: expected at most %d formats", option, MOST_FORMATS);
    list->per_tensor[list->count] = per_tensor;
    list->format[list->count++] = format;
    return STATUS_OK;
}

const char *network_format_name(const struct format_list *list, int i) {
    return list->format[i] != PROGRAM_INT8 ? tensor_format_name(list->format[i])
           : list->per_tensor[i]           ? "int8:tensor"
                                           : "int8";
}

int network_formats(struct format_list *list, const char *option, const char *text, bool int8) {
    char *copy = text_format("%s", text ? text : "fp32,fp16,bf16,flex16+5,dfp16"), *rest = copy, *name;
    int status = STATUS_OK;
    *list = (struct format_list){0};
    while (status == STATUS_OK && (name = strsep(&rest, ",")))
        status = add_format(list, option, name, int8);
    free(copy);
    return status;
}

int network_refuse_formats(const struct network *n, const char *formats) {
    return formats && program_is_quantised(n->p)
               ? text_usage("--formats '%s': all nodes of %s compute 8-bit integers, which no format changes", formats,
                            n->path)
               : STATUS_OK;
}

bool network_formats_shared(const struct format_list *list) {
    bool shared = false;
    for (int i = 0; i < list->count; i++)
        shared |= list->format[i] != PROGRAM_INT8 && tensor_format_is_shared(list->format[i]);
    return shared;
}

/* --- arrays ------------------------------------------------------------------------------------------------------- */

static const struct type_row {
    const char *name;
    size_t bytes;
} types[] = {
    [TENSOR_TYPE_BOOL] = {"bool", 1},   [TENSOR_TYPE_I8] = {"int8", 1},       [TENSOR_TYPE_U8] = {"uint8", 1},
    [TENSOR_TYPE_I16] = {"int16", 2},   [TENSOR_TYPE_U16] = {"uint16", 2},    [TENSOR_TYPE_I32] = {"int32", 4},
    [TENSOR_TYPE_U32] = {"uint32", 4},  [TENSOR_TYPE_I64] = {"int64", 8},     [TENSOR_TYPE_U64] = {"uint64", 8},
    [TENSOR_TYPE_F16] = {"float16", 2}, [TENSOR_TYPE_BF16] = {"bfloat16", 2}, [TENSOR_TYPE_F32] = {"float32", 4},
    [TENSOR_TYPE_F64] = {"float64", 8}};

const char *network_type_name(tensor_type type) {
    return types[type].name;
}

size_t network_type_bytes(tensor_type type) {
    return types[type].bytes;
}

int64_t network_elements(const program_array *a) {
    int64_t count = 1;
    for (int d = 0; d < a->ndim; d++)
        count *= a->shape[d];
    return count;
}

/* binary16: a sign, 5 bits of exponent, 10 of the fraction. */
static double half_number(uint16_t h) {
    const int exponent = h >> 10 & 31, fraction = h & 0x3ff;
    const double magnitude = exponent == 31 ? fraction ? NAN : INFINITY
                             : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                            : ldexp(fraction, -24);
    return h >> 15 ? -magnitude : magnitude;
}

double network_number(const program_array *a, int64_t i) {
    switch (a->type) {
    case TENSOR_TYPE_BOOL:
    case TENSOR_TYPE_U8:
        return ((const uint8_t *)a->data)[i];
    case TENSOR_TYPE_I8:
        return ((const int8_t *)a->data)[i];
    case TENSOR_TYPE_I16:
        return ((const int16_t *)a->data)[i];
    case TENSOR_TYPE_U16:
        return ((const uint16_t *)a->data)[i];
    case TENSOR_TYPE_I32:
        return ((const int32_t *)a->data)[i];
    case TENSOR_TYPE_U32:
        return ((const uint32_t *)a->data)[i];
    case TENSOR_TYPE_I64:
        return (double)((const int64_t *)a->data)[i];
    case TENSOR_TYPE_U64:
        return (double)((const uint64_t *)a->data)[i];
    case TENSOR_TYPE_F16:
        return half_number(((const uint16_t *)a->data)[i]);
    case TENSOR_TYPE_F64:
        return ((const double *)a->data)[i];
    default:
        return (double)((const float *)a->data)[i];
    }
}

size_t network_name_length(const char *value) {
    const size_t length = strlen(value);
    return length > 5 && !strcmp(value + length - 5, ".int8") ? length - 5 : length;
}

void network_reals(float *to, const program_array *from, const program_port *port) {
    for (int64_t i = 0; i < network_elements(from); i++) {
        const double number = network_number(from, i);
        to[i] = (float)(port->scale > 0 ? (double)port->scale * (number - port->zero) : number);
    }
}

bool network_takes_reals(const program_port *port) {
    return port->type == TENSOR_TYPE_F32 || port->scale > 0;
}

void network_from_reals(program_array *to, const float *from, const program_port *port) {
    const int least = port->type == TENSOR_TYPE_I8 ? -128 : 0, most = least + 255;
    for (int64_t i = 0; i < network_elements(to); i++) {
        if (port->type == TENSOR_TYPE_F32) {
            ((float *)to->data)[i] = from[i];
            continue;
        }
        const double q = nearbyint((double)from[i] / (double)port->scale) + port->zero;
        ((uint8_t *)to->data)[i] = (uint8_t)(int)(q > most ? most : q > least ? q : least); /* an int8 is its byte */
    }
}

char *network_port_shape(const program_port *port) {
    if (port->ndim < 0)
        return text_format("any shape");
    char *text = text_format("[");
    for (int d = 0; d < port->ndim; d++) {
        char *const longer = port->shape[d] < 0
                                 ? text_format("%s%s?", text, d ? ", " : "")
                                 : text_format("%s%s%lld", text, d ? ", " : "", (long long)port->shape[d]);
        free(text);
        text = longer;
    }
    char *const whole = text_format("%s]", text);
    free(text);
    return whole;
}

bool network_is_archive(const char *path) {
    return text_ends(path, ".npz");
}

int network_read_member(program_array *a, const struct network *n, const char *option, int port, const char *path) {
    const char *const name = n->inputs[port].name;
    char *const prefixed = text_format("input:%s", name);
    const char *const members[] = {name, prefixed, "input", "arr_0"};
    const int count = n->input_count == 1 ? 4 : 2;
    tensor_status status = TENSOR_E_ARGUMENT;
    for (int i = 0; i < count && status == TENSOR_E_ARGUMENT; i++)
        status = data_array_read(a, path, members[i]);
    free(prefixed);
    if (status == TENSOR_E_ARGUMENT)
        return text_failed("--%s '%s': it has no member '%s' or 'input:%s'%s, for the input '%s'", option, path, name,
                           name, count == 4 ? ", 'input', 'arr_0'" : "", name);
    return status ? text_failed("--%s '%s': %s", option, path, tensor_error()) : STATUS_OK;
}

int network_method(program_quantisation *how, const char *option, const char *text) {
    static const char *const names[] = {"minmax", "percentile", "mse", "entropy"};
    how->percentile = 99.999;
    for (int m = 0; text && m < 4; m++) {
        const size_t length = strlen(names[m]);
        if (strncasecmp(text, names[m], length) != 0)
            continue;
        how->method = (program_range_method)m;
        if (!text[length] || (m == PROGRAM_PERCENTILE && text[length] == ':' &&
                              text_real(text + length + 1, 50.001, 100, &how->percentile)))
            return STATUS_OK;
    }
    return text ? text_usage("--%s '%s': expected minmax, percentile:P with P above 50, at most 100, mse or entropy",
                             option, text)
                : STATUS_OK;
}

int network_numbers(struct number_list *list, const char *option, const char *text, int64_t high) {
    char *copy = text_format("%s", text), *rest = copy, *word;
    bool good = true;
    *list = (struct number_list){0};
    while (good && (word = strsep(&rest, ",")))
        good = list->count < MOST_NUMBERS && text_whole(word, 1, high, &list->number[list->count++]);
    free(copy);
    return good ? STATUS_OK
                : text_usage("--%s '%s': expected up to %d whole numbers from 1 to %lld with commas between them",
                             option, text, MOST_NUMBERS, (long long)high);
}
