/* Weights by PyTorch's names and layouts: for every model, numbers that were written in PyTorch's order come back as
 * they were, bit for bit in what the network computes; names of public implementations, by hand; what is refused. The
 * layouts are written by the definitions of the dimensions, element by element. */
#include "check.h"
#include "flexlab/nn.h"
#include "flexlab/program.h"
#include "safetensors/safetensors.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[100];

/* --- a state dict ------------------------------------------------------------------------------------------------- */

enum { MOST = 800 };
struct dict {
    int count;
    struct entry {
        char name[300];
        int ndim;
        int64_t dim[8], elements;
        float *values;
    } of[MOST];
};

static struct entry *add(struct dict *d, const char *name, int ndim, const int64_t *dim) {
    struct entry *const e = &d->of[d->count++];
    snprintf(e->name, sizeof e->name, "%s", name);
    e->ndim = ndim;
    e->elements = 1;
    for (int i = 0; i < ndim; i++)
        e->elements *= e->dim[i] = dim[i];
    e->values = calloc((size_t)e->elements, sizeof *e->values);
    return e;
}

static struct entry *find(struct dict *d, const char *name) {
    for (int i = 0; i < d->count; i++)
        if (!strcmp(d->of[i].name, name))
            return &d->of[i];
    return NULL;
}

static void clear(struct dict *d) {
    for (int i = 0; i < d->count; i++)
        free(d->of[i].values);
    d->count = 0;
}

static void write_dict(const struct dict *d, const char *prefix, const char *key, const char *note) {
    struct fl_safetensors_out o = {0};
    char name[320];
    for (int i = 0; i < d->count; i++) {
        snprintf(name, sizeof name, "%s%s", prefix, d->of[i].name);
        CHECK(!fl_safetensors_add(&o, name, FL_STORED_F32, d->of[i].ndim, d->of[i].dim, d->of[i].values), "%s",
              tensor_error());
    }
    CHECK(!key || !fl_safetensors_add_note(&o, key, note), "%s", tensor_error());
    CHECK(!fl_safetensors_write(&o, path), "%s", tensor_error());
    fl_safetensors_end(&o);
}

/* Where element i of a weight is in PyTorch's tensor. height, width, channels: of the image that a matrix reads. */
static int64_t place(const nn_weight_info *w, const int64_t *image, int64_t i) {
    const bool filters = strstr(w->layout, "width, in") || strstr(w->layout, "width, out");
    if (!strcmp(w->layout, "in, out") || strstr(w->layout, "gates")) {
        const int64_t out = w->dim[1], o = i % out;
        int64_t in = i / out;
        if (image[2]) /* (h W + w) C + c is (c H + h) W + w there */
            in = in % image[2] * image[0] * image[1] + in / image[2];
        return o * w->dim[0] + in;
    }
    if (!filters)
        return i;
    const int64_t last = w->dim[w->ndim - 1], c = i % last;
    int64_t area = 1;
    for (int d = 1; d < w->ndim - 1; d++)
        area *= w->dim[d];
    const int64_t pixel = i / last % area, first = i / last / area;
    return (first * last + c) * area + pixel;
}

/* The image before the first linear layer of models that flatten one. */
static void image_of(const char *model, const char *name, int64_t image[3]) {
    static const struct {
        const char *model, *name;
        int64_t image[3];
    } of[] = {{"mlp2", "fc1.weight", {32, 32, 3}},
              {"mlp3x20", "fc1.weight", {32, 32, 3}},
              {"cnn6", "fc1.weight", {4, 4, 64}},
              {"alexnet", "fc6.weight", {3, 3, 256}}};
    memset(image, 0, 3 * sizeof *image);
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++)
        if (!strcmp(of[i].model, model) && !strcmp(of[i].name, name))
            memcpy(image, of[i].image, sizeof of[i].image);
}

/* Random numbers as near 1 as factors and variances are, and positive where they must be. */
static void draw(double *v, int64_t count, const char *name) {
    static uint64_t seed = 11;
    const bool near_one = strstr(name, "gamma") || strstr(name, "variance");
    for (int64_t i = 0; i < count; i++) {
        const double x = (double)(int64_t)check_random(&seed) * 0x1p-62; /* from -2 to 2 */
        v[i] = (float)(near_one ? exp(0.2 * x) : 0.05 * x);
    }
}

/* Sets all weights of a graph, and lists them as PyTorch has them. */
static void fill(nn_graph *g, const char *model, struct dict *d) {
    const int count = nn_weight_count(g);
    for (int i = 0; i < count; i++) {
        nn_weight_info w = nn_weight_at(g, i);
        char name[300], torch[300];
        int64_t elements = 1, image[3];
        for (int k = 0; k < w.ndim; k++)
            elements *= w.dim[k];
        snprintf(name, sizeof name, "%s", w.name);
        snprintf(torch, sizeof torch, "%s", w.torch_name);
        double *const v = malloc((size_t)elements * sizeof *v);
        draw(v, elements, name);
        image_of(model, name, image);
        struct entry *e = find(d, torch);
        const bool third = e != NULL; /* keys and values follow queries */
        e = e ? e : add(d, torch, w.ndim, w.torch_dim);
        const int64_t at = third ? strstr(name, ".key.") ? elements : 2 * elements : 0;
        for (int64_t k = 0; k < elements; k++)
            e->values[at + place(&w, image, k)] = (float)v[k];
        CHECK(!nn_weight_set(g, name, v, elements), "%s: %s", name, tensor_error());
        free(v);
    }
}

/* --- names, from the repositories of their authors ---------------------------------------------------------------- */

static struct {
    const char *model, *own, *torch;
    int64_t dim[4];
    bool checked;
} names[] = {
    {"resnet20", "stage2.block1.conv1.weight", "layer2.0.conv1.weight", {32, 16, 3, 3}},
    {"resnet20", "stage3.block3.bn2.running_variance", "layer3.2.bn2.running_var", {64}},
    {"resnet20", "fc.weight", "linear.weight", {10, 64}},
    {"resnet20-b", "stage2.block1.shortcut.conv.weight", "layer2.0.shortcut.0.weight", {32, 16, 1, 1}},
    {"resnet20-b", "stage2.block1.shortcut.bn.gamma", "layer2.0.shortcut.1.weight", {32}},
    {"resnet29-bottleneck", "stage1.block1.short.bn.beta", "layer1.0.shortcut.1.bias", {64}},
    {"resnet29-bottleneck", "stage1.block1.conv3.weight", "layer1.0.conv3.weight", {64, 16, 1, 1}},
    {"wrn16-4", "stage2.block1.shortcut.weight", "block2.layer.0.convShortcut.weight", {128, 64, 1, 1}},
    {"wrn16-4", "bn.gamma", "bn1.weight", {256}},
    {"vgg11", "stage2.conv1.weight", "features.4.weight", {128, 64, 3, 3}},
    {"vgg11", "stage5.bn2.gamma", "features.26.weight", {512}},
    {"vgg16", "stage3.conv1.weight", "features.14.weight", {256, 128, 3, 3}},
    {"vgg16", "stage5.conv3.weight", "features.40.weight", {512, 512, 3, 3}},
    {"vgg16", "fc.bias", "classifier.bias", {10}},
    {"mobilenet", "block2.depthwise.weight", "layers.1.conv1.weight", {64, 1, 3, 3}},
    {"mobilenet", "block2.pointwise.weight", "layers.1.conv2.weight", {128, 64, 1, 1}},
    {"alexnet", "conv2.weight", "features.3.weight", {192, 64, 5, 5}},
    {"alexnet", "fc8.bias", "classifier.6.bias", {10}},
    {"lenet", "c3.weight", "conv2.weight", {16, 6, 5, 5}},
    {"lenet", "output.weight", "fc3.weight", {10, 84}},
    {"gpt2x64", "block2.attention.value.weight", "transformer.h.1.attn.c_attn.weight", {192, 64}},
    {"gpt2x64", "block1.expand.weight", "transformer.h.0.mlp.c_fc.weight", {256, 64}},
    {"gpt2x64", "norm.gamma", "transformer.ln_f.weight", {64}},
    {"lstm-char", "lstm.input.weight", "lstm.weight_ih_l0", {1024, 64}},
    {"gru-char", "gru.bias", "gru.bias_hh_l0", {768}},
    {"cnn6", "bn2.running_variance", "bn2.running_var", {32}},
};

enum { NAMES = sizeof names / sizeof names[0] };

static void check_names(const char *model, const nn_graph *g) {
    for (int i = 0; i < NAMES; i++) {
        if (strcmp(names[i].model, model) != 0)
            continue;
        nn_weight_info w;
        int k = 0;
        while ((w = nn_weight_at(g, k)).name && strcmp(w.name, names[i].own) != 0)
            k++;
        CHECK(w.name && !strcmp(w.torch_name, names[i].torch) &&
                  !memcmp(w.torch_dim, names[i].dim, (size_t)w.ndim * sizeof w.dim[0]),
              "%s: %s is %s", model, names[i].own, w.name ? w.torch_name : "not there");
        names[i].checked = true;
    }
}

/* --- every model -------------------------------------------------------------------------------------------------- */

static nn_graph *build(const char *model, int side) {
    nn_graph *const g = nn_graph_new(&(nn_config){.variant = "fp32", .batch = 1, .seed = 1});
    const nn_node logits =
        nn_model_reads_text(model) ? nn_model_text(g, model, 16, 65) : nn_model(g, model, side, side, 3, 10);
    CHECK(logits >= 0 && !nn_compile(g, logits), "%s: %s", model, tensor_error());
    return g;
}

static int predict(double *y, nn_graph *g, const char *model, int side) {
    static float x[32 * 32 * 3];
    int32_t tokens[16];
    for (int i = 0; i < side * side * 3; i++)
        x[i] = (float)sin(i);
    for (int i = 0; i < 16; i++)
        tokens[i] = (i * i + 3) % 65;
    const bool text = nn_model_reads_text(model);
    CHECK(!nn_predict(y, g, &(nn_batch){.images = text ? NULL : x, .tokens = text ? tokens : NULL, .count = 1}), "%s",
          tensor_error());
    return text ? 16 * 65 : 10;
}

/* Extra tensors that public implementations have beside the weights. */
static void add_extras(const char *model, struct dict *d, nn_graph *g) {
    if (!strncmp(model, "vgg", 3)) { /* a bias that batch normalisation takes away: it is in the mean there */
        struct entry *const mean = find(d, "features.1.running_mean");
        const int64_t dim[] = {64};
        struct entry *const bias = add(d, "features.0.bias", 1, dim);
        for (int i = 0; i < 64; i++) {
            bias->values[i] = 0.25f * (float)(i % 5);
            mean->values[i] = (float)(int)(mean->values[i] * 1024) / 1024; /* sums of these are exact */
        }
        double v[64];
        for (int i = 0; i < 64; i++) {
            v[i] = (double)mean->values[i];
            mean->values[i] += bias->values[i];
        }
        CHECK(!nn_weight_set(g, "stage1.bn1.running_mean", v, 64), "%s", tensor_error());
        add(d, "features.1.num_batches_tracked", 0, NULL);
    }
    if (!strcmp(model, "lstm-char")) { /* half of the bias is the other one */
        struct entry *const one = find(d, "lstm.bias_ih_l0"), *const other = add(d, "lstm.bias_hh_l0", 1,
                                                                                 (const int64_t[]){one->elements});
        for (int64_t i = 0; i < one->elements; i++)
            one->values[i] = other->values[i] = one->values[i] / 2;
    }
    if (!strcmp(model, "lenet")) { /* the third convolution is a linear layer there */
        struct entry *const c5 = find(d, "fc1.weight");
        c5->ndim = 2;
        c5->dim[1] *= 25;
    }
}

/* Sets all weights to 1: drawing those of another graph would take half of the time of the test. */
static void forget(nn_graph *g) {
    nn_weight_info w;
    for (int i = 0; (w = nn_weight_at(g, i)).name; i++) {
        int64_t elements = 1;
        for (int k = 0; k < w.ndim; k++)
            elements *= w.dim[k];
        double *const v = malloc((size_t)elements * sizeof *v);
        for (int64_t k = 0; k < elements; k++)
            v[k] = 1;
        CHECK(!nn_weight_set(g, w.name, v, elements), "%s", tensor_error());
        free(v);
    }
}

static void test_model(const char *model, const char *prefix) {
    static struct dict d;
    static double want[16 * 65], got[16 * 65];
    nn_graph *const g = build(model, 32);
    check_names(model, g);
    fill(g, model, &d);
    add_extras(model, &d, g);
    const bool ambiguous = !strncmp(model, "mlp", 3); /* its names are the same in both */
    write_dict(&d, prefix, ambiguous ? "format" : NULL, "pt");
    const int count = predict(want, g, model, 32);
    forget(g);
    CHECK(!nn_weights_load(g, path), "%s: %s", model, tensor_error());
    predict(got, g, model, 32);
    CHECK(!memcmp(want, got, (size_t)count * sizeof *want), "%s: other logits, %g and %g", model, want[0], got[0]);
    program *p;
    program_array in = {nn_model_reads_text(model) ? TENSOR_TYPE_I32 : TENSOR_TYPE_F32, 4, {1, 32, 32, 3}, NULL};
    program_port port;
    CHECK(!program_read_weights(&p, path,
                                &(program_weight_file){.model = model,
                                                       .width = in.type == TENSOR_TYPE_I32 ? 16 : 32,
                                                       .height = in.type == TENSOR_TYPE_I32 ? 0 : 32}),
          "%s: %s", model, tensor_error());
    CHECK(!p || (!program_input_at(&port, p, 0) && port.type == in.type), "%s", model);
    program_free(p);
    nn_graph_free(g);
    clear(&d);
}

/* --- refusals ----------------------------------------------------------------------------------------------------- */

static void refuse(const char *model, const char *layout, const char *first, const char *second) {
    program *p = (program *)&check_count;
    const program_weight_file how = {.model = model, .layout = layout};
    CHECK(program_read_weights(&p, path, &how) && !p && strstr(tensor_error(), first) && strstr(tensor_error(), second),
          "%s %s: expected '%s' and '%s' in: %s", model ? model : "", layout ? layout : "", first, second,
          tensor_error());
}

static void accept(const char *model, const char *layout) {
    program *p;
    CHECK(!program_read_weights(&p, path, &(program_weight_file){.model = model, .layout = layout}), "%s: %s", model,
          tensor_error());
    program_free(p);
}

static void test_refusals(void) {
    static struct dict d;
    nn_graph *g = build("resnet8", 32);
    fill(g, "resnet8", &d);
    nn_graph_free(g);
    write_dict(&d, "", NULL, NULL);
    accept("resnet8", NULL);
    accept("resnet8", "oihw");
    refuse("resnet8", "ohwi", "of the network's 37 tensors 0 are missing and 7 have another shape",
           "'layer1.0.conv1.weight' has the shape [16, 16, 3, 3], that of the network [16, 3, 3, 16]");
    refuse("resnet8", "hwio", "layout 'hwio'", "expected oihw");
    refuse("resnet14", NULL, "of the network's 67 tensors 30 are missing", "no tensor 'layer3.1.bn2.running_var'");
    refuse(NULL, NULL, "does not say its model", "--model");
    refuse("resnet9", NULL, "the depth must be", "6n + 2");
    /* All of them in one message. */
    struct entry *const e = find(&d, "layer2.0.conv2.weight");
    snprintf(e->name, sizeof e->name, "layer2.0.conv3.weight");
    find(&d, "linear.bias")->dim[0] = 5;
    find(&d, "linear.bias")->ndim = 2;
    find(&d, "linear.bias")->dim[1] = 2;
    write_dict(&d, "", NULL, NULL);
    refuse("resnet8", NULL, "1 is missing and 1 has another shape, 1 of the file's is superfluous",
           "no tensor 'layer2.0.conv2.weight', expected one of shape [32, 32, 3, 3] (out, in, height, width)");
    refuse("resnet8", NULL, "superfluous 'layer2.0.conv3.weight' [32, 32, 3, 3]",
           "tensor 'linear.bias' has the shape [5, 2]");
    clear(&d);
    /* Superfluous tensors alone: of a deeper network. */
    g = build("resnet14", 32);
    fill(g, "resnet14", &d);
    nn_graph_free(g);
    write_dict(&d, "module.", NULL, NULL);
    accept("resnet14", NULL);
    refuse("resnet8", NULL, "30 of the file's are superfluous", "superfluous 'module.layer1.1.conv1.weight'");
    clear(&d);
    /* Names that both have, and shapes that fit both ways: only a statement tells. */
    g = build("mlp3x20", 32);
    fill(g, "mlp3x20", &d);
    nn_graph_free(g);
    write_dict(&d, "", NULL, NULL);
    refuse("mlp3x20", NULL, "both fit: 'fc2.weight' [20, 20]; expected a statement", "--weight-layout oihw or ohwi");
    accept("mlp3x20", "oihw");
    write_dict(&d, "", "flexlab.layouts", "oihw");
    accept("mlp3x20", NULL);
    write_dict(&d, "", "format", "pt");
    accept("mlp3x20", NULL);
    write_dict(&d, "", "flexlab.layouts", "1");
    refuse("mlp3x20", NULL, "'mlp3x20' reads 20 numbers", "expected height and width");
    /* Notes about what the network computes. */
    write_dict(&d, "", "flexlab.probe", "32x32x3 1.5");
    refuse("mlp3x20", "oihw", "flexlab.probe is '32x32x3 1.5'", "expected sizes up to 512 and two numbers");
    write_dict(&d, "", "flexlab.probe", "16x64x3 1 1");
    refuse("mlp3x20", "oihw", "1 (size 1)", "layers are not those of the network that it is from");
    clear(&d);
}

/* --- sizes that follow from the tensors --------------------------------------------------------------------------- */

static void test_sizes(const char *model, const int64_t *in, int classes, const program_weight_file *how) {
    static struct dict d;
    program *p = NULL;
    program_port port;
    nn_graph *const g = nn_graph_new(&(nn_config){.variant = "fp32", .batch = 1, .seed = 1});
    const bool text = nn_model_reads_text(model);
    const nn_node logits = text ? nn_model_text(g, model, (int)in[0], classes)
                                : nn_model(g, model, (int)in[0], (int)in[1], (int)in[2], classes);
    CHECK(logits >= 0 && !nn_compile(g, logits), "%s", tensor_error());
    CHECK(!nn_checkpoint_save(g, path, NULL, 0) && !program_read_weights(&p, path, how), "%s: %s", model,
          tensor_error()); /* by this library's names */
    program_free(p);
    fill(g, "", &d);
    write_dict(&d, "", "flexlab.layouts", "oihw");
    CHECK(!program_read_weights(&p, path, how), "%s: %s", model, tensor_error());
    CHECK(!program_input_at(&port, p, 0) && !memcmp(port.shape + 1, in, (text ? 1 : 3) * sizeof *in), "%s: input",
          model);
    CHECK(!program_output_at(&port, p, 0) && port.shape[port.ndim - 1] == classes, "%s: %lld classes", model,
          (long long)port.shape[port.ndim - 1]);
    program_free(p);
    nn_graph_free(g);
    clear(&d);
}

int main(void) {
    snprintf(path, sizeof path, "/tmp/flexlab-torch-%ld.safetensors", (long)getpid());
    for (int i = 0; nn_model_at(i); i++)
        test_model(nn_model_at(i), i % 2 ? "module." : "");
    for (int i = 0; nn_text_model_at(i); i++)
        test_model(nn_text_model_at(i), "");
    test_model("mlp3x20", "");
    for (int i = 0; i < NAMES; i++)
        if (!names[i].checked) {
            nn_graph *const g = build(names[i].model, 32);
            check_names(names[i].model, g);
            nn_graph_free(g);
        }
    test_refusals();
    test_sizes("resnet8", (const int64_t[]){16, 20, 1}, 37, &(program_weight_file){"resnet8", 16, 20, NULL});
    test_sizes("mlp2", (const int64_t[]){28, 28, 1}, 26, &(program_weight_file){.model = "mlp2"});
    test_sizes("mobilenet", (const int64_t[]){32, 32, 4}, 3, &(program_weight_file){.model = "mobilenet"});
    test_sizes("gpt2x64", (const int64_t[]){24}, 70, &(program_weight_file){.model = "gpt2x64"});
    test_sizes("gru-char", (const int64_t[]){128}, 70, &(program_weight_file){.model = "gru-char"});
    unlink(path);
    return check_summary();
}
