/* Programs as files. A network of everything that networks can have comes back as it was; what was read is written
 * again as the same bytes; programs of networks that others trained give the same bits from their files, in every
 * format; damage is refused with the name of the entry, and a file that cannot be written leaves the old one.
 *
 *     test_program_store                          all of that; networks of others where FLEXLAB_DATA/networks has them
 *     test_program_store write NETWORK FORMAT TO  a file of a network, for looking at it */
#include "network_parts.h"
#include "flexlab/data.h"
#include "flexlab/program.h"
#include "program/store/store.h"
#include <limits.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/flexlab-store-XXXXXX";

static const char *in_folder(const char *name) {
    static char path[4][PATH_MAX];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

/* The bytes of a file, with a zero behind them. */
static char *bytes_of(const char *path, size_t *size) {
    FILE *const file = fopen(path, "rb");
    char *bytes = NULL;
    *size = 0;
    CHECK(file != NULL, "%s", path);
    if (!file)
        return calloc(1, 1);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    bytes = calloc(1, *size + 1);
    CHECK(fread(bytes, 1, *size, file) == *size, "%s", path);
    fclose(file);
    return bytes;
}

static void write_bytes(const char *path, const char *bytes, size_t size) {
    FILE *const file = fopen(path, "wb");
    CHECK(file && fwrite(bytes, 1, size, file) == size && !fclose(file), "%s", path);
}

static bool same_files(const char *a, const char *b) {
    size_t first, second;
    char *const one = bytes_of(a, &first), *const two = bytes_of(b, &second);
    const bool same = first == second && !memcmp(one, two, first);
    free(one);
    free(two);
    return same && first;
}

/* --- a network of everything -------------------------------------------------------------------------------------- */

static int constant_of(struct fl_network *n, const char *name, tensor_type type, int ndim, const int64_t *dim) {
    const int value = fl_net_add_value(n, name);
    struct fl_net_value *const v = &n->values[value];
    CHECK(!fl_net_array(n, &v->constant, type, ndim, dim), "%s", tensor_error());
    v->type = type;
    v->ndim = ndim;
    memcpy(v->dim, v->constant->dim, sizeof v->dim);
    for (size_t i = 0; i < (size_t)v->constant->count * fl_type_bytes(type); i++)
        ((uint8_t *)v->constant->data)[i] = type == TENSOR_TYPE_BOOL ? i % 2 : (uint8_t)(i * 13 + (size_t)type) & 0x3f;
    return value;
}

static void quantise(struct fl_network *n, int value, int count, int axis) {
    struct fl_quantisation *const q = n->values[value].quantisation = fl_net_memory(n, sizeof *q);
    *q = (struct fl_quantisation){.count = count, .axis = axis};
    q->scale = fl_net_memory(n, (size_t)count * sizeof *q->scale);
    q->zero = fl_net_memory(n, (size_t)count * sizeof *q->zero);
    for (int i = 0; i < count; i++) {
        q->scale[i] = 0.1f / (float)(i + 3);
        q->zero[i] = i - 1;
    }
}

static struct fl_net_attribute *attribute(struct fl_network *n, struct fl_net_node *node, const char *name) {
    fl_net_set_int(n, node, name, INT64_MIN);
    return &node->attributes[node->attribute_count - 1];
}

static void add_attributes(struct fl_network *n, struct fl_net_node *node) {
    static const float floats[] = {0.1f, -0.0f, INFINITY, -INFINITY, 1e-45f, 3.4e38f};
    static const char *const strings[] = {"", "two\nlines", "quotes \" and \\ and \xc3\xa9"};
    struct fl_net_attribute *a;
    attribute(n, node, "least");
    fl_net_set_int(n, node, "largest", INT64_MAX);
    fl_net_set_float(n, node, "third", 1.0f / 3);
    fl_net_set_float(n, node, "none", NAN);
    fl_net_set_string(n, node, "mode", "line\tand\x01");
    fl_net_set_ints(n, node, "pads", 3, (const int64_t[]){-1, 0, 1});
    fl_net_set_ints(n, node, "empty", 0, (const int64_t[]){0});
    a = attribute(n, node, "floats");
    *a = (struct fl_net_attribute){.name = a->name, .kind = FL_NET_FLOATS, .count = 6, .floats = floats};
    a = attribute(n, node, "strings");
    *a = (struct fl_net_attribute){.name = a->name, .kind = FL_NET_STRINGS, .count = 3, .strings = strings};
    a = attribute(n, node, "array");
    *a = (struct fl_net_attribute){.name = a->name, .kind = FL_NET_ARRAY};
    CHECK(!fl_net_array(n, &a->array, TENSOR_TYPE_F64, 2, (const int64_t[]){2, 3}), "%s", tensor_error());
    ((double *)a->array->data)[4] = 1e300;
}

/* Graphs within graphs, which read values of those around them. */
static struct fl_net_graph *nested(struct fl_network *n, int reads, int depth) {
    struct fl_net_graph *const graph = fl_net_memory(n, sizeof *graph);
    struct fl_net_node *node = fl_net_add_node(n, graph, "Neg", depth ? "inner" : "branch", 1, 1, depth > 0);
    const int result = fl_net_add_value(n, "in a branch");
    node->inputs[0] = reads;
    node->outputs[0] = result;
    if (depth)
        node->attributes[0] =
            (struct fl_net_attribute){.name = "body", .kind = FL_NET_GRAPH, .graph = nested(n, reads, depth - 1)};
    graph->output_count = 1;
    graph->outputs = fl_net_memory(n, sizeof(int));
    graph->outputs[0] = result;
    return graph;
}

static struct fl_network *network_of_everything(void) {
    struct fl_network *const n = fl_network_new(FL_NET_TFLITE);
    static const int64_t eight[] = {1, 2, 1, 2, 1, 2, 1, 1};
    int in[20], count = 0;
    n->opset = 13;
    n->producer = "a \"producer\"";
    n->rounding = FL_INT8_TFLITE_RUY;
    fl_net_add_value(n, "nobody reads it");
    const int x = fl_net_add_value(n, "x");
    n->values[x].type = TENSOR_TYPE_F32;
    n->values[x].ndim = 3;
    memcpy(n->values[x].dim, (const int64_t[]){-1, -1, 5}, 3 * sizeof(int64_t));
    n->values[x].dim_name[0] = "batch";
    n->values[x].range = (struct fl_range){.maximum = 0.1, .frozen = true, .exponent = -3};
    constant_of(n, "a constant that nobody reads", TENSOR_TYPE_F32, 0, NULL);
    for (int type = TENSOR_TYPE_BOOL; type <= TENSOR_TYPE_F64; type++)
        in[count++] = constant_of(n, "constant", (tensor_type)type, 2, (const int64_t[]){3, 2}); /* all of one name */
    in[count++] = constant_of(n, "number", TENSOR_TYPE_I64, 0, NULL);
    in[count++] = constant_of(n, "none", TENSOR_TYPE_F32, 2, (const int64_t[]){3, 0});
    in[count++] = constant_of(n, "", TENSOR_TYPE_F32, 8, eight);
    quantise(n, in[TENSOR_TYPE_I8 - 1], 2, 1);
    quantise(n, in[TENSOR_TYPE_U8 - 1], 1, 0);
    constant_of(n, "constant.scale", TENSOR_TYPE_I8, 1, (const int64_t[]){1});
    in[count++] = n->value_count - 1;
    struct fl_net_node *node = fl_net_add_node(n, &n->graph, "Everything", "first", count + 2, 2, 0);
    node->domain = "com.example";
    node->channels_last = true;
    node->format = FMT_FLEX16_5;
    node->inputs[0] = x;
    memcpy(node->inputs + 2, in, (size_t)count * sizeof *in);
    const int y = node->outputs[0] = fl_net_add_value(n, "y \xe2\x82\xac");
    n->values[y].type = TENSOR_TYPE_U8;
    quantise(n, y, 1, 0);
    n->values[y].range.maximum = 1.0 / 3;
    node->inner = fl_net_memory(n, FL_NODE_TEMPORARIES * sizeof *node->inner);
    node->inner[1] = (struct fl_range){.maximum = 2, .frozen = true, .exponent = 12};
    node->inner[3].maximum = 1e-300;
    add_attributes(n, node);
    node = fl_net_add_node(n, &n->graph, "If", "second", 1, 1, 2);
    node->format = FMT_BF16;
    node->inputs[0] = y;
    const int z = node->outputs[0] = fl_net_add_value(n, "z");
    n->values[z].ndim = 0;
    node->attributes[0] =
        (struct fl_net_attribute){.name = "then_branch", .kind = FL_NET_GRAPH, .graph = nested(n, x, 0)};
    node->attributes[1] =
        (struct fl_net_attribute){.name = "else_branch", .kind = FL_NET_GRAPH, .graph = nested(n, y, 3)};
    part_ports(n, 1, &x, 2, (const int[]){z, y});
    return n;
}

/* --- comparison --------------------------------------------------------------------------------------------------- */

struct pair {
    const struct fl_network *a, *b;
    int *other; /* of each value of a, the one of b; -1: not seen yet */
};

static bool same_text(const char *a, const char *b) {
    return a == b || (a && b && !strcmp(a, b));
}

static void check_array(const char *name, const struct fl_array *a, const struct fl_array *b) {
    CHECK(!a == !b, "%s is a constant of one", name);
    if (!a || !b)
        return;
    CHECK(a->type == b->type && a->ndim == b->ndim && a->count == b->count &&
              !memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof *a->dim),
          "%s: %s[%lld] is %s[%lld]", name, fl_type_name(a->type), (long long)a->count, fl_type_name(b->type),
          (long long)b->count);
    CHECK(!a->count || !memcmp(a->data, b->data, (size_t)a->count * fl_type_bytes(a->type)), "%s: other numbers", name);
}

static void check_range(const char *name, const struct fl_range *a, const struct fl_range *b) {
    CHECK(a->maximum == b->maximum && a->frozen == b->frozen && a->exponent == b->exponent, "%s: %g %d %d is %g %d %d",
          name, a->maximum, a->frozen, a->exponent, b->maximum, b->frozen, b->exponent);
}

static void check_values(struct pair *p, int a, int b) {
    CHECK((a < 0) == (b < 0), "value %d is %d", a, b);
    if (a < 0 || b < 0)
        return;
    const bool first = p->other[a] < 0;
    CHECK(first || p->other[a] == b, "value %d is %d and %d", a, p->other[a], b);
    p->other[a] = b;
    if (!first)
        return;
    const struct fl_net_value *const v = &p->a->values[a], *const w = &p->b->values[b];
    CHECK(!strcmp(v->name, w->name) && v->type == w->type && v->ndim == w->ndim, "%s (%d, %d) is %s (%d, %d)", v->name,
          v->type, v->ndim, w->name, w->type, w->ndim);
    for (int d = 0; d < v->ndim && d < w->ndim; d++)
        CHECK(v->dim[d] == w->dim[d] && same_text(v->dim_name[d], w->dim_name[d]), "%s: dimension %d", v->name, d);
    check_array(v->name, v->constant, w->constant);
    check_range(v->name, &v->range, &w->range);
    CHECK(!v->quantisation == !w->quantisation, "%s is quantised in one", v->name);
    if (v->quantisation && w->quantisation) {
        const struct fl_quantisation *const q = v->quantisation, *const r = w->quantisation;
        CHECK(q->count == r->count && q->axis == r->axis && !memcmp(q->scale, r->scale, sizeof(float) * q->count) &&
                  !memcmp(q->zero, r->zero, sizeof(int32_t) * q->count),
              "%s: quantisation", v->name);
    }
}

static void check_graphs(struct pair *p, const struct fl_net_graph *a, const struct fl_net_graph *b);

static void check_attributes(struct pair *p, const struct fl_net_node *v, const struct fl_net_node *w) {
    CHECK(v->attribute_count == w->attribute_count, "%s: %d attributes are %d", v->name, v->attribute_count,
          w->attribute_count);
    for (int i = 0; i < v->attribute_count && i < w->attribute_count; i++) {
        const struct fl_net_attribute *const a = &v->attributes[i], *const b = &w->attributes[i];
        CHECK(!strcmp(a->name, b->name) && a->kind == b->kind && a->count == b->count && a->i == b->i, "%s of %s",
              a->name, v->name);
        CHECK(!memcmp(&a->f, &b->f, sizeof a->f) || (isnan(a->f) && isnan(b->f)), "%s of %s: %a is %a", a->name,
              v->name, (double)a->f, (double)b->f);
        CHECK(same_text(a->s, b->s), "%s of %s", a->name, v->name);
        CHECK(a->kind != FL_NET_INTS || !memcmp(a->ints, b->ints, (size_t)a->count * 8), "%s of %s", a->name, v->name);
        CHECK(a->kind != FL_NET_FLOATS || !memcmp(a->floats, b->floats, (size_t)a->count * 4), "%s of %s", a->name,
              v->name);
        for (int k = 0; a->kind == FL_NET_STRINGS && k < a->count; k++)
            CHECK(!strcmp(a->strings[k], b->strings[k]), "%s of %s", a->name, v->name);
        check_array(a->name, a->array, b->array);
        CHECK(!a->graph == !b->graph, "%s of %s", a->name, v->name);
        if (a->graph && b->graph)
            check_graphs(p, a->graph, b->graph);
    }
}

static void check_graphs(struct pair *p, const struct fl_net_graph *a, const struct fl_net_graph *b) {
    CHECK(a->node_count == b->node_count && a->input_count == b->input_count && a->output_count == b->output_count,
          "%d nodes are %d", a->node_count, b->node_count);
    for (int i = 0; i < a->input_count; i++)
        check_values(p, a->inputs[i], b->inputs[i]);
    for (int i = 0; i < a->output_count; i++)
        check_values(p, a->outputs[i], b->outputs[i]);
    for (int k = 0; k < a->node_count; k++) {
        const struct fl_net_node *const v = &a->nodes[k], *const w = &b->nodes[k];
        CHECK(!strcmp(v->op, w->op) && !strcmp(v->domain, w->domain) && !strcmp(v->name, w->name) &&
                  v->channels_last == w->channels_last && v->format == w->format && v->input_count == w->input_count &&
                  v->output_count == w->output_count,
              "node %s is %s", v->name, w->name);
        for (int i = 0; i < v->input_count; i++)
            check_values(p, v->inputs[i], w->inputs[i]);
        for (int i = 0; i < v->output_count; i++)
            check_values(p, v->outputs[i], w->outputs[i]);
        for (int i = 0; i < FL_NODE_TEMPORARIES && (v->inner || w->inner); i++) {
            static const struct fl_range none;
            check_range(v->name, v->inner ? &v->inner[i] : &none, w->inner ? &w->inner[i] : &none);
        }
        check_attributes(p, v, w);
    }
}

static void check_networks(const struct fl_network *a, const struct fl_network *b) {
    struct pair p = {a, b, malloc((size_t)a->value_count * sizeof(int))};
    memset(p.other, -1, (size_t)a->value_count * sizeof(int));
    CHECK(a->source == b->source && a->opset == b->opset && a->rounding == b->rounding &&
              !strcmp(a->producer, b->producer),
          "opset %d is %d", a->opset, b->opset);
    check_graphs(&p, &a->graph, &b->graph);
    free(p.other);
}

static void check_everything(void) {
    struct fl_network *const n = network_of_everything(), *again = NULL;
    CHECK(!fl_net_check(n), "%s", tensor_error());
    const char *const one = in_folder("everything"), *const two = in_folder("again");
    CHECK(!fl_store_write(n, one) && !fl_store_read(&again, one), "%s", tensor_error());
    if (again) {
        check_networks(n, again);
        CHECK(again->value_count < n->value_count, "%d values of %d", again->value_count, n->value_count);
        CHECK(!fl_store_write(again, two) && same_files(one, two), "other bytes the second time");
    }
    fl_network_free(again);
    n->graph.nodes[0].name = "\xff";
    CHECK(fl_store_write(n, one) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "UTF-8"), "%s", tensor_error());
    CHECK(same_files(one, two), "a failure changed the file");
    fl_network_free(n);
}

/* --- networks that others trained --------------------------------------------------------------------------------- */

enum { PORTS = 4 };
static const char *const trained[] = {"mtcnn-pnet.onnx",
                                      "mtcnn-rnet.onnx",
                                      "mtcnn-onet.onnx",
                                      "ppocr-cls.onnx",
                                      "ppocr-det.onnx",
                                      "ppocr-rec.onnx",
                                      "speech-embedding.onnx",
                                      "wake-word.onnx",
                                      "tiny-resnet8-fp32.tflite",
                                      "tiny-keywords-fp32.tflite",
                                      "tiny-anomaly-fp32.tflite",
                                      "tiny-resnet8-int8.tflite",
                                      "tiny-keywords-int8.tflite",
                                      "tiny-anomaly-int8.tflite"};

static size_t size_of(const program_array *a) {
    size_t size = fl_type_bytes(a->type);
    for (int d = 0; d < a->ndim; d++)
        size *= (size_t)a->shape[d];
    return size;
}

/* The recorded inputs. */
static bool read_inputs(program_array *in, const program *p, const char *network) {
    char path[PATH_MAX], member[300];
    program_port port;
    const char *const data = getenv("FLEXLAB_DATA"), *const end = strrchr(network, '.');
    snprintf(path, sizeof path, "%s/networks/%.*s%s.npz", data, (int)(end - network), network,
             strcmp(end, ".onnx") ? "-reference" : "");
    for (int i = 0; i < program_input_count(p); i++) {
        snprintf(member, sizeof member, "input:%s", program_input_at(&port, p, i) ? "" : port.name);
        if (data_array_read(&in[i], path, member) && data_array_read(&in[i], path, "input")) {
            CHECK(false, "%s", tensor_error());
            return false;
        }
    }
    return true;
}

static void take_samples(program_array *part, const program_array *in, int count, int64_t first, int64_t samples) {
    for (int i = 0; i < count; i++) {
        part[i] = in[i];
        part[i].shape[0] = samples;
        part[i].data = (char *)in[i].data + first * (int64_t)size_of(&part[i]) / samples;
    }
}

/* The outputs of b are those that a gave. */
static void check_outputs(program *b, const program_array *part, const program_array *one, tensor_status first,
                          const char *what, const char *how) {
    program_array two[PORTS];
    CHECK(program_run(b, two, part) == first, "%s, %s: %s", what, how, tensor_error());
    for (int i = 0; i < program_output_count(b) && !first; i++)
        CHECK(one[i].ndim == two[i].ndim && size_of(&one[i]) == size_of(&two[i]) &&
                  !memcmp(one[i].data, two[i].data, size_of(&one[i])),
              "%s, %s: other bits in output %d", what, how, i);
}

/* The same bits of both for some samples; of small networks also with other kernels than the saved one ran. */
static void check_same_bits(program *a, program *b, const program_array *in, const char *what) {
    static const char *const kernels[] = {"portable", "avx2", "avx2_vnni", "avx512bw", "avx512"};
    program_array part[PORTS], one[PORTS];
    for (int64_t samples = 1; samples <= 2 && samples <= in[0].shape[0]; samples++) {
        take_samples(part, in, program_input_count(a), in[0].shape[0] - samples, samples);
        const tensor_status first = program_run(a, one, part);
        const bool refused = first == TENSOR_E_SHAPE || first == TENSOR_E_UNSUPPORTED;
        CHECK(!first || refused, "%s: %s", what, tensor_error());
        check_outputs(b, part, one, first, what, samples == 1 ? "one sample" : "two samples");
        for (int k = 0; k < 4 && samples == 1 && (strstr(what, "tiny") || strstr(what, "pnet")); k++)
            if (!tensor_set_backend(kernels[k]))
                check_outputs(b, part, one, first, what, kernels[k]);
        tensor_set_backend(NULL);
    }
}

/* Saves, reads, compares, and saves again. Returns the bytes of the file. */
static size_t check_file(program *p, const program_array *in, const char *what) {
    const char *const one = in_folder("network.safetensors"), *const two = in_folder("network-2.safetensors");
    program *again = NULL, *third = NULL;
    struct stat about = {.st_size = 0};
    CHECK(!program_save(p, one) && !program_read(&again, one), "%s: %s", what, tensor_error());
    if (again) {
        check_same_bits(p, again, in, what);
        CHECK(program_parameter_count(p) == program_parameter_count(again), "%s: %lld parameters", what,
              (long long)program_parameter_count(again));
        CHECK(!program_save(again, two) && same_files(one, two), "%s: other bytes when saved again", what);
        CHECK(!program_load(&third, two), "%s: %s", what, tensor_error());
        program_free(third);
        stat(one, &about);
    }
    program_free(again);
    return (size_t)about.st_size;
}

static bool set_format(program *p, const char *name, const char *pattern) {
    tensor_format format;
    return !tensor_format_find(&format, name) && !program_set_format(p, format, pattern, NULL);
}

/* Each node in a random format. */
static void mix(program *p, uint64_t *random) {
    for (int i = 0; i < program_node_count(p); i++) {
        program_node node;
        const tensor_format format = tensor_format_at((int)(check_random(random) % 5));
        CHECK(!program_node_at(&node, p, i) && !program_set_format(p, format, node.name, NULL), "%s", tensor_error());
    }
}

static void check_trained(const char *network, uint64_t *random) {
    static const char *const formats[] = {"fp32", "fp16", "bf16", "flex16+5", "dfp16"};
    char path[PATH_MAX], what[200];
    program_array in[PORTS] = {{0}};
    program *p;
    size_t bytes[5] = {0};
    snprintf(path, sizeof path, "%s/networks/%s", getenv("FLEXLAB_DATA"), network);
    if (program_read(&p, path)) {
        CHECK(tensor_error_status() == TENSOR_E_UNSUPPORTED, "%s: %s", network, tensor_error());
        return;
    }
    const bool good =
        program_input_count(p) <= PORTS && program_output_count(p) <= PORTS && read_inputs(in, p, network);
    if (good) {
        program_array part[PORTS];
        take_samples(part, in, program_input_count(p), 0, 1);
        CHECK(!program_calibrate(p, part) || strstr(network, "int8"), "%s: %s", network, tensor_error());
        CHECK(program_save(p, in_folder("x")) == TENSOR_E_ARGUMENT, "saved within a calibration");
        CHECK(!program_freeze(p, 1), "%s: %s", network, tensor_error());
    }
    for (int f = 0; f < 5 && good; f++) {
        snprintf(what, sizeof what, "%s in %s", network, formats[f]);
        CHECK(set_format(p, formats[f], NULL), "%s", tensor_error());
        bytes[f] = check_file(p, in, what);
    }
    int quantised = 0;
    for (int i = 0; i < program_node_count(p); i++) {
        program_node node;
        quantised += !program_node_at(&node, p, i) && node.quantised;
    }
    CHECK((quantised > 0) == (strstr(network, "int8") != NULL), "%s: %d nodes of 8-bit integers", network, quantised);
    for (int k = 0; k < 3 && good; k++) {
        mix(p, random);
        snprintf(what, sizeof what, "%s, mixture %d", network, k);
        check_file(p, in, what);
    }
    if (good)
        printf("%-28s %9zu bytes in fp32, %9zu in fp16, %9zu in flex16+5\n", network, bytes[0], bytes[1], bytes[3]);
    for (int i = 0; i < PORTS; i++)
        data_array_free(&in[i]);
    program_free(p);
}

/* --- damage ------------------------------------------------------------------------------------------------------- */

/* A file with other text in its header, of another length, without its checksum. The texts are those in the file. */
static void write_replaced(const char *path, const char *bytes, size_t size, const char *from, const char *to) {
    uint64_t length;
    memcpy(&length, bytes, 8);
    const size_t room = size + strlen(to) + 16;
    char *const text = calloc(1, room), *const header = calloc(1, length + 1);
    memcpy(header, bytes + 8, length);
    char *const sum = strstr(header, "\"flexlab.crc32\""), *const at = strstr(header, from);
    CHECK(sum && at, "'%s' is not in the header", from);
    if (sum && at) {
        memcpy(sum, "\"flexlab.other\"", 15);
        const size_t before = (size_t)(at - header);
        const uint64_t changed = length - strlen(from) + strlen(to);
        memcpy(text, &changed, 8);
        memcpy(text + 8, header, before);
        strcpy(text + 8 + before, to);
        memcpy(text + 8 + before + strlen(to), at + strlen(from), length - before - strlen(from));
        memcpy(text + 8 + changed, bytes + 8 + length, size - 8 - length);
        write_bytes(path, text, size + changed - length);
    }
    free(text);
    free(header);
}

/* A small program of which every format and exponent is known. */
static struct fl_network *small_network(void) {
    struct fl_network *const n = fl_network_new(FL_NET_ONNX);
    uint64_t random = 3;
    n->rounding = FL_INT8_EXACT;
    const int x = part_value(n, 2, (const int64_t[]){-1, 4});
    const int w = part_constant(n, 2, (const int64_t[]){4, 3}, &random);
    const int y = part_node(n, "MatMul", 2, (const int[]){x, w});
    n->graph.nodes[0].format = FMT_FLEX16_5;
    const int z = part_node(n, "Relu", 1, (const int[]){y});
    fl_net_set_int(n, &n->graph.nodes[1], "number", 5);
    n->values[y].range = (struct fl_range){.maximum = 4, .frozen = true, .exponent = 12};
    part_ports(n, 1, &x, 1, &z);
    return n;
}

static void check_damage(void) {
    static const struct {
        const char *from, *to, *message;
    } cases[] = {
        {"\\\"version\\\":1", "\\\"version\\\":9", "version 9"},
        {"\\\"version\\\":1,", "", "no entry 'version'"},
        {"\\\"source\\\":\\\"onnx\\\"", "\\\"source\\\":\\\"onyx\\\"",
         "the source 'onyx', expected one of onnx, tflite"},
        {"\\\"rounding\\\":\\\"exact\\\"", "\\\"rounding\\\":\\\"up\\\"", "the rounding 'up', expected one of exact"},
        {"\\\"type\\\":\\\"float32\\\"", "\\\"type\\\":\\\"float33\\\"", "the type 'float33'"},
        {"\\\"shape\\\":[-1,4]", "\\\"shape\\\":[-2,4]", "-2, expected -1"},
        {"\\\"shape\\\":[4,3]", "\\\"shape\\\":[3,4]", "value 'v1' and its tensor have different shapes"},
        {"\\\"shape\\\":[4,3]", "\\\"shape\\\":[4,3,1,1,1,1,1,1,1]", "more than 8 dimensions"},
        {"\\\"tensor\\\":\\\"v1\\\"", "\\\"tensor\\\":\\\"v7\\\"", "no tensor 'v7'"},
        {",\\\"tensor\\\":\\\"v1\\\",\\\"stored\\\":\\\"flex16+5\\\"", "", "no tensor 'v1', which the file has"},
        {"\\\"stored\\\":\\\"flex16+5\\\"", "\\\"stored\\\":\\\"fp16\\\"", "the type I16, which does not store fp16"},
        {"\\\"stored\\\":\\\"flex16+5\\\"", "\\\"stored\\\":\\\"posit\\\"", "the format 'posit'"},
        {"\"v1.exponent\":\"15\"", "\"v1.exponent\":\"one\"", "the note 'v1.exponent' is one"},
        {"\"v1.exponent\"", "\"v9.exponent\"", "the note 'v1.exponent' is missing"},
        {"\\\"range\\\":[4,12]", "\\\"range\\\":[-4,12]", "a largest magnitude of -4"},
        {"\\\"range\\\":[4,12]", "\\\"range\\\":[4,1e2]", "expected a whole one"},
        {"\\\"range\\\":[4,12]", "\\\"range\\\":[\\\"nan\\\"]", "a largest magnitude of nan"},
        {"\\\"inputs\\\":[0,1]", "\\\"inputs\\\":[0,9]", "node n0 (MatMul): value number 9"},
        {"\\\"inputs\\\":[0,1]", "\\\"inputs\\\":[3,1]", "node n0"},
        {"\\\"inputs\\\":[0,1]", "\\\"inputs\\\":[0]", ""},
        {"\\\"inputs\\\":[0,1]", "\\\"inputs\\\":[0,99999999999]", "99999999999, expected"},
        {"\\\"op\\\":\\\"MatMul\\\"", "\\\"op\\\":\\\"MatMal\\\"", "MatMal (n0)"},
        {"\\\"op\\\":\\\"MatMul\\\"", "\\\"op\\\":\\\"\\\"", "node 0 has no operator"},
        {"\\\"op\\\":\\\"MatMul\\\"", "\\\"po\\\":\\\"MatMul\\\"", "node 0 has the entry 'po' that is unknown"},
        {"\\\"name\\\":\\\"n0\\\"", "\\\"op\\\":\\\"n0\\\"", "node 0 has the entry 'op' twice"},
        {"\\\"int\\\":5", "\\\"int\\\":5,\\\"float\\\":5", "attribute 'number' has two values"},
        {",\\\"int\\\":5", "", "attribute 'number' has no value"},
        {"\\\"int\\\":5", "\\\"ints\\\":5", "'5', expected '['"},
        {"\\\"int\\\":5", "\\\"graph\\\":{}", "a graph has no entry 'inputs'"},
        {"\\\"int\\\":5", "\\\"tensor\\\":\\\"v1\\\"", "belongs to another entry already"},
        {"\"flexlab.program\"", "\"flexlab.progrum\"", "its metadata lack 'flexlab.program'"},
    };
    const char *const path = in_folder("small"), *const bad = in_folder("bad"), *const again = in_folder("saved");
    struct fl_network *const n = small_network();
    program *p = NULL;
    size_t size;
    CHECK(!fl_net_check(n) && !fl_store_write(n, path) && !program_load(&p, path), "%s", tensor_error());
    program_free(p);
    char *const bytes = bytes_of(path, &size);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_replaced(bad, bytes, size, cases[i].from, cases[i].to);
        const tensor_status status = program_read(&p, bad);
        if (!*cases[i].message) { /* only a run shows it */
            CHECK(!status, "%s", tensor_error());
        } else {
            CHECK(status == TENSOR_E_DATA || status == TENSOR_E_UNSUPPORTED, "%s: status %d", cases[i].to, status);
            CHECK(strstr(tensor_error(), cases[i].message), "'%s', expected '%s'", tensor_error(), cases[i].message);
        }
        program_free(p);
    }
    for (size_t i = 0; i < size; i += size / 60 + 1) { /* the checksum finds what the checks do not */
        char *const changed = malloc(size);
        memcpy(changed, bytes, size);
        changed[i] ^= 4;
        write_bytes(bad, changed, size);
        if (program_load(&p, bad))
            CHECK(*tensor_error() && !p, "byte %zu of %zu", i, size);
        else /* what changed is the name of the checksum, which is then none */
            CHECK(!program_save(p, again) && same_files(again, path), "byte %zu of %zu", i, size);
        program_free(p);
        write_bytes(bad, bytes, i);
        CHECK(program_load(&p, bad) && *tensor_error() && !p, "%zu bytes of %zu", i, size);
        free(changed);
    }
    free(bytes);
    fl_network_free(n);
}

static void check_arguments(void) {
    struct fl_network *const n = small_network();
    program *const p = program_of(n), *q;
    CHECK(program_save(NULL, "x") == TENSOR_E_ARGUMENT && program_save(p, NULL) == TENSOR_E_ARGUMENT, "NULL");
    CHECK(program_load(NULL, "x") == TENSOR_E_ARGUMENT && program_load(&q, NULL) == TENSOR_E_ARGUMENT, "NULL");
    CHECK(program_save(p, folder) == TENSOR_E_IO, "a folder was replaced");
    CHECK(program_save(p, in_folder("no/such/folder")) == TENSOR_E_IO, "%s", tensor_error());
    write_bytes(in_folder("text"), "a text, and no network", 22);
    CHECK(program_load(&q, in_folder("text")) == TENSOR_E_DATA && !q, "%s", tensor_error());
    CHECK(access(in_folder("small.part"), F_OK) != 0, "a part is left");
    program_free(p);
}

int main(int argc, char **argv) {
    program *p = NULL;
    if (argc == 5)
        return program_read(&p, argv[2]) || !set_format(p, argv[3], NULL) || program_save(p, argv[4]);
    (void)argv;
    CHECK(mkdtemp(folder) != NULL, "%s", folder);
    check_everything();
    check_damage();
    check_arguments();
    const char *const data = getenv("FLEXLAB_DATA");
    char path[PATH_MAX];
    uint64_t random = 11;
    for (size_t i = 0; i < sizeof trained / sizeof *trained; i++) {
        snprintf(path, sizeof path, "%s/networks/%s", data ? data : "", trained[i]);
        if (data && !access(path, R_OK))
            check_trained(trained[i], &random);
    }
    snprintf(path, sizeof path, "rm -r %s", folder);
    CHECK(!system(path), "%s", path);
    return check_summary();
}
