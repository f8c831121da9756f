/* Programs written as ONNX files and read again: the same nodes, attributes, formats and exponents, the same bits of
 * every output, and the same bytes when they are written once more. Networks made here, and those that others trained
 * where FLEXLAB_DATA/networks has them.
 *
 *     test_program_export                everything
 *     test_program_export FILE RECORD    this network alone, with the inputs of that .npz file */
#include "flexlab/autoflex.h"
#include "flexlab/nn.h"
#include "network_parts.h"
#include "npz.h"
#include "program/passes/passes.h"
#include <limits.h>
#include <unistd.h>

enum { PORTS = 4 };
static char folder[] = "/tmp/flexlab-export-XXXXXX";

/* --- the same network ----------------------------------------------------------------------------------------------
 */

/* Two networks that are compared: to[v] is the value of the second that stands for value v of the first. */
struct pair {
    const char *what;
    const struct fl_network *a, *b;
    int *to;
    bool same_constants;
};

static bool same_array(const struct fl_array *a, const struct fl_array *b) {
    return a->type == b->type && a->ndim == b->ndim && !memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof *a->dim) &&
           (!a->count || !memcmp(a->data, b->data, (size_t)a->count * fl_type_bytes(a->type)));
}

static bool same_quantisation(const struct fl_quantisation *a, const struct fl_quantisation *b) {
    if (!a || !b)
        return a == b;
    return a->count == b->count && (a->count == 1 || a->axis == b->axis) &&
           !memcmp(a->scale, b->scale, (size_t)a->count * sizeof *a->scale) &&
           !memcmp(a->zero, b->zero, (size_t)a->count * sizeof *a->zero);
}

static void check_value(struct pair *p, const char *node, int a, int b) {
    CHECK((a < 0) == (b < 0), "%s: node %s: value %d became %d", p->what, node, a, b);
    if (a < 0 || b < 0)
        return;
    const struct fl_net_value *const v = &p->a->values[a], *const w = &p->b->values[b];
    if (v->constant || w->constant) {
        CHECK(v->constant && w->constant, "%s: node %s: %s is a constant in one network alone", p->what, node, v->name);
        if (v->constant && w->constant && p->same_constants)
            CHECK(same_array(v->constant, w->constant), "%s: node %s: another constant %s", p->what, node, v->name);
    } else {
        CHECK(p->to[a] == -1 || p->to[a] == b, "%s: node %s: %s is %s", p->what, node, v->name, w->name);
        p->to[a] = b;
    }
    CHECK(same_quantisation(v->quantisation, w->quantisation), "%s: node %s: another quantisation of %s", p->what, node,
          v->name);
}

static bool same_attribute(const struct fl_net_attribute *a, const struct fl_net_attribute *b) {
    if (!b || a->kind != b->kind || a->count != b->count)
        return false;
    switch (a->kind) {
    case FL_NET_INT:
        return a->i == b->i;
    case FL_NET_FLOAT:
        return a->f == b->f;
    case FL_NET_STRING:
        return !strcmp(a->s, b->s);
    case FL_NET_INTS:
        return !a->count || !memcmp(a->ints, b->ints, (size_t)a->count * sizeof *a->ints);
    case FL_NET_FLOATS:
        return !a->count || !memcmp(a->floats, b->floats, (size_t)a->count * sizeof *a->floats);
    case FL_NET_ARRAY:
        return same_array(a->array, b->array);
    default:
        return true;
    }
}

/* flex16+5 has exponents from 0 to 31. */
static bool same_exponent(const struct fl_range *a, const struct fl_range *b, tensor_format format) {
    const int e = format != FMT_FLEX16_5 ? a->exponent : a->exponent < 0 ? 0 : a->exponent > 31 ? 31 : a->exponent;
    return !a->frozen || (b->frozen && b->exponent == e);
}

/* ONNX wants one node of each name: the second "fc" is "fc.2". */
static bool same_name(const char *a, const char *b) {
    const size_t length = strlen(a);
    return !strncmp(a, b, length) && (!b[length] || (b[length] == '.' && strspn(b + length + 1, "0123456789") > 0));
}

static void check_graph(struct pair *p, const struct fl_net_graph *a, const struct fl_net_graph *b) {
    CHECK(a->node_count == b->node_count && a->input_count == b->input_count && a->output_count == b->output_count,
          "%s: %d nodes, expected %d", p->what, b->node_count, a->node_count);
    for (int i = 0; i < a->input_count && i < b->input_count; i++) {
        p->to[a->inputs[i]] = b->inputs[i];
        CHECK(!strcmp(p->a->values[a->inputs[i]].name, p->b->values[b->inputs[i]].name), "%s: another input %d",
              p->what, i);
    }
    for (int k = 0; k < a->node_count && k < b->node_count; k++) {
        const struct fl_net_node *const m = &a->nodes[k], *const n = &b->nodes[k];
        const bool same = !strcmp(m->op, n->op) && same_name(m->name, n->name) && m->output_count == n->output_count;
        CHECK(same, "%s: node %d is %s (%s), expected %s (%s)", p->what, k, n->name, n->op, m->name, m->op);
        if (!same)
            return;
        CHECK(m->channels_last == n->channels_last, "%s: node %s: another layout", p->what, m->name);
        CHECK((m->format ? m->format : FMT_FP32) == (n->format ? n->format : FMT_FP32), "%s: node %s: another format",
              p->what, m->name);
        for (int i = 0; i < m->input_count || i < n->input_count; i++)
            check_value(p, m->name, i < m->input_count ? m->inputs[i] : -1, i < n->input_count ? n->inputs[i] : -1);
        for (int i = 0; i < m->output_count; i++) {
            check_value(p, m->name, m->outputs[i], n->outputs[i]);
            if (m->outputs[i] < 0 || n->outputs[i] < 0)
                continue;
            const struct fl_range *const r = &p->a->values[m->outputs[i]].range, *const s =
                                                                                     &p->b->values[n->outputs[i]].range;
            CHECK(same_exponent(r, s, m->format), "%s: node %s: another exponent", p->what, m->name);
        }
        for (int i = 0; m->inner && i < FL_NODE_TEMPORARIES; i++)
            CHECK(n->inner ? same_exponent(&m->inner[i], &n->inner[i], m->format) : !m->inner[i].frozen,
                  "%s: node %s: another exponent inside", p->what, m->name);
        CHECK(m->attribute_count == n->attribute_count, "%s: node %s: %d attributes, expected %d", p->what, m->name,
              n->attribute_count, m->attribute_count);
        for (int i = 0; i < m->attribute_count; i++) {
            const struct fl_net_attribute *const other = fl_net_find(n, m->attributes[i].name);
            CHECK(same_attribute(&m->attributes[i], other), "%s: node %s: another attribute %s", p->what, m->name,
                  m->attributes[i].name);
            if (other && other->graph)
                check_graph(p, m->attributes[i].graph, other->graph);
        }
    }
    for (int i = 0; i < a->output_count && i < b->output_count; i++) {
        check_value(p, "output", a->outputs[i], b->outputs[i]);
        CHECK(!strcmp(p->a->values[a->outputs[i]].name, p->b->values[b->outputs[i]].name), "%s: output %d is %s",
              p->what, i, p->b->values[b->outputs[i]].name);
    }
}

static void check_same_network(const char *what, const struct fl_network *a, const struct fl_network *b,
                               bool same_constants) {
    struct pair p = {what, a, b, malloc((size_t)a->value_count * sizeof(int)), same_constants};
    for (int v = 0; v < a->value_count; v++)
        p.to[v] = -1;
    CHECK(a->rounding == b->rounding, "%s: another rounding", what);
    check_graph(&p, &a->graph, &b->graph);
    free(p.to);
}

static void check_same_file(const char *what, const char *first, const char *second) {
    FILE *const a = fopen(first, "rb"), *const b = fopen(second, "rb");
    char x[1 << 16], y[sizeof x];
    size_t n, m, at = 0;
    CHECK(a && b, "%s: no file", what);
    if (a && b) {
        do {
            n = fread(x, 1, sizeof x, a);
            m = fread(y, 1, sizeof y, b);
            CHECK(n == m && !memcmp(x, y, n), "%s: written again, the file differs from byte %zu on", what, at);
            at += n;
        } while (n == m && n > 0);
    }
    if (a)
        fclose(a);
    if (b)
        fclose(b);
}

static int64_t bytes_of(const program_array *a) {
    int64_t n = (int64_t)fl_type_bytes(a->type);
    for (int d = 0; d < a->ndim; d++)
        n *= a->shape[d];
    return n;
}

/* Writes a program, reads it and writes it again. */
static void check_export(program *p, const char *what, const program_array *in, bool same_constants) {
    char first[PATH_MAX], second[PATH_MAX];
    program_array want[PORTS], got[PORTS];
    program *q = NULL;
    snprintf(first, sizeof first, "%s/first.onnx", folder);
    snprintf(second, sizeof second, "%s/second.onnx", folder);
    tensor_status status = program_export(p, first);
    CHECK(!status, "%s: %s", what, tensor_error());
    if (!status) {
        status = program_read(&q, first);
        CHECK(!status, "%s: %s", what, tensor_error());
    }
    if (!status) {
        check_same_network(what, p->network, q->network, same_constants);
        status = program_run(p, want, in);
        CHECK(!status, "%s: %s", what, tensor_error());
    }
    if (!status) {
        status = program_run(q, got, in);
        CHECK(!status, "%s, read again: %s", what, tensor_error());
    }
    for (int i = 0; !status && i < program_output_count(p); i++) {
        const bool same = bytes_of(&want[i]) == bytes_of(&got[i]);
        CHECK(same, "%s: output %d has another shape", what, i);
        CHECK(same && !memcmp(want[i].data, got[i].data, (size_t)bytes_of(&want[i])), "%s: other bits of output %d",
              what, i);
    }
    if (!status) {
        status = program_export(q, second);
        CHECK(!status, "%s, read again: %s", what, tensor_error());
        check_same_file(what, first, second);
    }
    program_free(q);
    unlink(first);
    unlink(second);
}

/* --- networks of others --------------------------------------------------------------------------------------------
 */

static bool read_inputs(const program *p, const char *path, program_array *in) {
    struct fl_data_zip zip;
    bool good = !fl_data_zip_open(&zip, "npz", path);
    CHECK(good, "%s: %s", path, tensor_error());
    for (int i = 0; good && i < program_input_count(p); i++) {
        char member[300];
        program_port port;
        program_input_at(&port, p, i);
        snprintf(member, sizeof member, "input:%s.npy", port.name);
        if (!fl_data_zip_has(&zip, member))
            snprintf(member, sizeof member, "input.npy");
        good = npz_read(&in[i], &zip, member);
        CHECK(good, "%s has no %s", path, member);
        if (good && port.ndim > 0 && port.shape[0] < 0 && in[i].shape[0] > 2)
            in[i].shape[0] = 2;
        if (good && port.ndim > 0 && port.shape[0] > 0)
            in[i].shape[0] = port.shape[0];
    }
    if (zip.path)
        fl_data_zip_close(&zip);
    return good;
}

static void check_file(const char *file, const char *record) {
    static const char *const formats[] = {"fp32", "fp16", "bf16", "flex16+5", "dfp16", "mixed", "int8"};
    for (size_t f = 0; f < sizeof formats / sizeof formats[0]; f++) {
        const bool mixed = !strcmp(formats[f], "mixed"), int8 = !strcmp(formats[f], "int8");
        program_array in[PORTS] = {{0}};
        char what[300];
        program *p;
        tensor_format format;
        snprintf(what, sizeof what, "%s in %s", strrchr(file, '/') + 1, formats[f]);
        const tensor_status status = program_read(&p, file);
        CHECK(!status, "%s", tensor_error());
        if (!status && read_inputs(p, record, in)) {
            CHECK(!tensor_format_find(&format, mixed || int8 ? "flex16+5" : formats[f]), "%s", tensor_error());
            if (int8) /* is fixed together with the scales */
                CHECK(!program_set_format(p, PROGRAM_INT8, NULL, NULL), "%s: %s", what, tensor_error());
            if (mixed || int8 || tensor_format_is_shared(format))
                CHECK(!program_calibrate(p, in) && !program_freeze(p, 1), "%s: %s", what, tensor_error());
            if (!int8)
                CHECK(!program_set_format(p, format, NULL, NULL), "%s: %s", what, tensor_error());
            if (mixed) {
                tensor_format_find(&format, "fp16");
                program_set_format(p, format, "Add", NULL);
                program_set_format(p, format, "*Pool", NULL);
                program_set_format(p, FMT_FP32, "Softmax", NULL);
                program_set_format(p, FMT_FP32, "Mul", NULL);
            }
            check_export(p, what, in, f == 0);
        }
        for (int i = 0; i < PORTS; i++)
            fl_free(in[i].data);
        program_free(p);
    }
}

static void check_data(const char *data) {
    static const char *const files[][2] = {
        {"mtcnn-pnet.onnx", "mtcnn-pnet"},
        {"mtcnn-rnet.onnx", "mtcnn-rnet"},
        {"mtcnn-onet.onnx", "mtcnn-onet"},
        {"ppocr-cls.onnx", "ppocr-cls"},
        {"ppocr-det.onnx", "ppocr-det"},
        {"ppocr-rec.onnx", "ppocr-rec"},
        {"speech-embedding.onnx", "speech-embedding"},
        {"wake-word.onnx", "wake-word"},
        {"tiny-resnet8-fp32.tflite", "tiny-resnet8-fp32-reference"},
        {"tiny-keywords-fp32.tflite", "tiny-keywords-fp32-reference"},
        {"tiny-anomaly-fp32.tflite", "tiny-anomaly-fp32-reference"},
        {"tiny-resnet8-int8.tflite", "tiny-resnet8-int8-reference"},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char file[PATH_MAX], record[PATH_MAX];
        snprintf(file, sizeof file, "%s/networks/%s", data, files[i][0]);
        snprintf(record, sizeof record, "%s/networks/%s.npz", data, files[i][1]);
        if (!access(file, R_OK))
            check_file(file, record);
    }
}

/* --- networks of nn.h ----------------------------------------------------------------------------------------------
 */

/* fp32, and what the network needs to be in another format. */
static void check_graph_of(nn_graph *g, nn_node logits, const char *name, int ndim, const int64_t *shape, int tokens) {
    static const char *const formats[] = {"fp32", "fp16", "flex16+5"};
    int64_t count = 1;
    for (int d = 0; d < ndim; d++)
        count *= shape[d];
    float *const x = malloc((size_t)count * sizeof *x);
    int32_t *const t = malloc((size_t)count * sizeof *t);
    uint64_t random = 5;
    for (int64_t i = 0; i < count; i++) {
        x[i] = (float)(check_random(&random) % 1000) / 500 - 1;
        t[i] = tokens ? (int32_t)(check_random(&random) % (unsigned)tokens) : 0;
    }
    program_array in = {
        .type = tokens ? TENSOR_TYPE_I32 : TENSOR_TYPE_F32, .ndim = ndim, .data = tokens ? (void *)t : x};
    memcpy(in.shape, shape, (size_t)ndim * sizeof *shape);
    const bool compiled = g && logits >= 0 && !nn_compile(g, logits);
    CHECK(compiled, "%s: %s", name, tensor_error());
    for (int f = 0; f < 3 && compiled; f++) {
        char what[100];
        program *p = NULL;
        tensor_format format = FMT_FP32;
        snprintf(what, sizeof what, "%s in %s", name, formats[f]);
        tensor_status status = program_from_graph(&p, g);
        if (!status && f == 2)
            status = program_calibrate(p, &in) ? TENSOR_E_ARGUMENT : program_freeze(p, 1);
        if (!status && !tensor_format_find(&format, formats[f]))
            status = program_set_format(p, format, NULL, NULL);
        CHECK(!status, "%s: %s", what, tensor_error());
        if (!status)
            check_export(p, what, &in, f == 0);
        program_free(p);
    }
    nn_graph_free(g);
    free(x);
    free(t);
}

static nn_graph *new_graph(void) {
    return nn_graph_new(&(nn_config){.variant = "fp32", .batch = 2, .seed = 3});
}

static void check_graphs(void) {
    nn_graph *g = new_graph();
    nn_node x = nn_input(g, 9, 7, 4);
    x = nn_conv2d(g, "two", x, 6, 0,
                  &(nn_conv2d_options){.bias = true,
                                       .window = &(tensor_window2d){.window = {3, 2}, .stride = {1, 2}, .groups = 2}});
    x = nn_leaky_relu(g, "leaky", nn_batchnorm(g, "norm", x, NULL), 0.125f);
    x = nn_conv_transpose2d(g, "up", x, 4, 3, &(nn_conv2d_options){.stride = 2, .padding = 1, .groups = 2});
    x = nn_clamp(g, "clamp", nn_maxpool2d(g, "wide", x, 3, &(nn_pool2d_options){.stride = 2, .padding = 1}), -1, 2);
    nn_node y = nn_relu(g, "relu", nn_conv2d(g, "same", x, 4, 3, &(nn_conv2d_options){.padding = 1}));
    x = nn_add(g, "sum", nn_conv2d(g, "last", y, 4, 3, &(nn_conv2d_options){.padding = 1}), x, true);
    check_graph_of(g, nn_linear(g, "fc", nn_avgpool_global(g, "mean", x), 3, true), "images", 4,
                   (const int64_t[]){2, 9, 7, 4}, 0);
    g = new_graph();
    x = nn_embedding(g, "embedding", nn_tokens(g, 12, 30), 8, 1);
    x = nn_conv1d(g, "window", x, 8, &(tensor_window1d){.window = 3, .padding = {2, 0}}, true);
    x = nn_maxpool1d(g, "half", x, &(tensor_window1d){.window = 2, .stride = 2});
    x = nn_attention(g, "attention", x, 2, true);
    x = nn_transformer_block(g, "block", x, &(nn_transformer){.heads = 4, .rmsnorm = true, .activation = "silu"});
    x = nn_layernorm(g, "norm", nn_gru(g, "gru", x, 6));
    check_graph_of(g, nn_linear(g, "head", x, 30, false), "sequences", 2, (const int64_t[]){2, 12}, 30);
}

/* --- random chains -------------------------------------------------------------------------------------------------
 */

/* Numbers that no format has exactly. */
static int chain_constant(struct fl_network *n, int ndim, const int64_t *dim, uint64_t *random) {
    const int value = part_constant(n, ndim, dim, random);
    for (int64_t i = 0; i < n->values[value].constant->count; i++)
        ((float *)n->values[value].constant->data)[i] *= 0.3337f;
    return value;
}

static int no_padding(struct fl_network *n) {
    const int value = part_value(n, 1, (const int64_t[]){8});
    n->values[value].type = TENSOR_TYPE_I64;
    CHECK(!fl_net_array(n, &n->values[value].constant, TENSOR_TYPE_I64, 1, (const int64_t[]){8}), "%s", tensor_error());
    memset(n->values[value].constant->data, 0, 8 * sizeof(int64_t));
    return value;
}

/* A node on the last value: with a constant for each channel on either side, with the value itself, which gives zeros,
 * or with an earlier one; one that only passes numbers on; a convolution. */
static int chain_node(struct fl_network *n, const int *values, int count, uint64_t *random) {
    static const int64_t channels[] = {1, 3, 1, 1}, filters[] = {3, 3, 1, 1};
    static const char *const two[] = {"Add", "Sub", "Mul", "Max"}, *const one[] = {"Relu", "Sigmoid", "Neg", "Softmax"};
    const int last = values[count - 1], way = (int)(check_random(random) % 8), which = (int)(check_random(random) % 4);
    const int c = way < 2 ? chain_constant(n, 4, channels, random) : -1;
    switch (way) {
    case 0:
        return part_node(n, two[which], 2, (const int[]){last, c});
    case 1:
        return part_node(n, two[which], 2, (const int[]){c, last});
    case 2:
        return part_node(n, two[which], 2, (const int[]){last, values[check_random(random) % (unsigned)count]});
    case 3:
        return part_node(n, "Sub", 2, (const int[]){last, last});
    case 4:
        return part_node(n, "Pad", 2, (const int[]){last, no_padding(n)});
    case 5:
        return part_node(n, "Conv", 2, (const int[]){last, chain_constant(n, 4, filters, random)});
    default:
        return part_node(n, one[which], 1, (const int[]){last});
    }
}

static void check_chain(unsigned seed, const char *format) {
    enum { LONGEST = 8 };
    static const int64_t shape[] = {2, 3, 5, 4};
    float x[2 * 3 * 5 * 4];
    char what[100];
    uint64_t random = seed;
    struct fl_network *const n = fl_network_new(FL_NET_ONNX);
    int values[LONGEST + 1] = {part_value(n, 4, shape)}, count = 1;
    const int length = 2 + (int)(check_random(&random) % (LONGEST - 1));
    while (count <= length) {
        values[count] = chain_node(n, values, count, &random);
        count++;
    }
    part_ports(n, 1, values, 2,
               (const int[]){values[count - 1], values[1 + check_random(&random) % (unsigned)(count - 2)]});
    CHECK(!fl_passes(n), "%s", tensor_error());
    for (int i = 0; i < 120; i++)
        x[i] = (float)(check_random(&random) % 1000) / 333 - 1.5f;
    const program_array in = {.type = TENSOR_TYPE_F32, .ndim = 4, .shape = {2, 3, 5, 4}, .data = x};
    program *const p = program_of(n);
    tensor_format f = PROGRAM_INT8;
    snprintf(what, sizeof what, "chain %u in %s", seed, format);
    CHECK(!strcmp(format, "int8") || !tensor_format_find(&f, format), "%s", tensor_error());
    CHECK(!program_set_format(p, f, NULL, NULL) && !program_calibrate(p, &in) && !program_freeze(p, 1), "%s: %s", what,
          tensor_error());
    check_export(p, what, &in, false);
    program_free(p);
}

static void check_chains(void) {
    static const char *const formats[] = {"fp32", "fp16", "bf16", "flex16+5", "dfp16", "int8"};
    for (unsigned seed = 1; seed <= 30; seed++)
        for (int f = 0; f < 6; f++)
            check_chain(seed, formats[f]);
}

/* --- refusals ------------------------------------------------------------------------------------------------------
 */

/* Nothing is written where something cannot be said, and a file that is there stays. */
static void check_refusal(const char *format, const char *why) {
    static const int64_t shape[] = {2, 3};
    char path[PATH_MAX];
    tensor_format f = FMT_FP32;
    uint64_t random = 1;
    struct fl_network *const n = fl_network_new(FL_NET_ONNX);
    const int in = part_value(n, 2, shape), w = part_constant(n, 2, (const int64_t[]){3, 3}, &random);
    const int y = part_node(n, "MatMul", 2, (const int[]){in, w});
    part_ports(n, 1, &in, 1, &y);
    program *const p = program_of(n);
    CHECK(!tensor_format_find(&f, format) && !program_set_format(p, f, NULL, NULL), "%s", tensor_error());
    snprintf(path, sizeof path, "%s/refused.onnx", folder);
    const tensor_status status = program_export(p, path);
    CHECK(status == TENSOR_E_UNSUPPORTED && strstr(tensor_error(), "node n0 (MatMul)") && strstr(tensor_error(), why),
          "%s: %s", format, tensor_error());
    CHECK(access(path, F_OK), "%s: a file is there", format);
    CHECK(program_export(p, NULL) == TENSOR_E_ARGUMENT && program_export(NULL, path) == TENSOR_E_ARGUMENT, "no path");
    program_free(p);
}

int main(int argc, char **argv) {
    const char *const data = getenv("FLEXLAB_DATA");
    CHECK(mkdtemp(folder), "no folder %s", folder);
    if (argc > 2) {
        check_file(argv[1], argv[2]);
    } else {
        check_graphs();
        check_chains();
        check_refusal("flex16+5", "whose exponent is not fixed");
        if (data)
            check_data(data);
    }
    rmdir(folder);
    return check_summary();
}
