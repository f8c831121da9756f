/* Names, shapes and layouts of a network's weights, compared with a file's tensors: which are missing, of another
 * shape, superfluous, or would fit in another layout, too. */
#include "check.h"
#include "layer_network.h"
#include "safetensors/safetensors.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char path[100];

/* --- the weights of a network ------------------------------------------------------------------------------------- */

static const nn_weight_info *find(const nn_graph *g, const char *name) {
    static nn_weight_info info;
    for (int i = 0; (info = nn_weight_at(g, i)).name; i++)
        if (!strcmp(info.name, name))
            return &info;
    return NULL;
}

static void expect(const nn_graph *g, const char *name, const char *layout, int ndim, const int64_t *dim) {
    const nn_weight_info *info = find(g, name);
    CHECK(info && !strcmp(info->layout, layout), "%s: layout %s, expected %s", name, info ? info->layout : "(none)",
          layout);
    CHECK(info && info->ndim == ndim && !memcmp(info->dim, dim, (size_t)ndim * sizeof *dim), "%s: shape", name);
}

#define SHAPE(...)                                                                                                     \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) {                                           \
        __VA_ARGS__                                                                                                    \
    }

static void test_list(void) {
    nn_graph *g = nn_graph_new(&(nn_config){.variant = "fp32", .batch = 2, .seed = 1});
    nn_node x = nn_input(g, 8, 8, 3);
    x = nn_conv2d(g, "two", x, 5, 0,
                  &(nn_conv2d_options){.bias = true, .window = &(tensor_window2d){.window = {3, 2}, .stride = {1, 1}}});
    x = nn_batchnorm(g, "bn", x, &(nn_batchnorm_options){.relu = true});
    x = nn_conv_transpose2d(g, "up", x, 7, 0,
                            &(nn_conv2d_options){.window = &(tensor_window2d){.window = {2, 2}, .stride = {1, 1}}});
    x = nn_linear(g, "fc", x, 4, false);
    CHECK(x >= 0, "%s", tensor_error());
    for (int compiled = 0; compiled < 2; compiled++) { /* before and after nn_compile */
        expect(g, "two.weight", "out, height, width, in", SHAPE(5, 3, 2, 3));
        expect(g, "two.bias", "channels", SHAPE(5));
        expect(g, "bn.gamma", "channels", SHAPE(5));
        expect(g, "bn.running_variance", "channels", SHAPE(5));
        expect(g, "up.weight", "in, height, width, out", SHAPE(5, 2, 2, 7));
        expect(g, "fc.weight", "in, out", SHAPE(7 * 8 * 7, 4));
        CHECK(!find(g, "two") && !find(g, "bn.batch_mean"), "more than weights");
        CHECK(compiled || !nn_compile(g, x), "%s", tensor_error());
    }
    int64_t elements = 0;
    for (int i = 0; nn_weight_at(g, i).name; i++) {
        const nn_weight_info info = nn_weight_at(g, i);
        int64_t count = strstr(info.name, "running") ? 0 : 1;
        for (int d = 0; d < info.ndim; d++)
            count *= info.dim[d];
        elements += count;
    }
    CHECK(elements == nn_parameter_count(g), "%lld elements, the network has %lld", (long long)elements,
          (long long)nn_parameter_count(g));
    CHECK(!nn_weight_at(g, -1).name && !nn_weight_at(g, 1000).name && !nn_weight_at(NULL, 0).name, "out of range");
    nn_graph_free(g);
}

/* --- compared with a file ----------------------------------------------------------------------------------------- */

struct told {
    int fits, missing, shapes, both_ways, superfluous;
    char text[2000];
};

static void hear(const nn_weight_match *m, void *context) {
    struct told *told = context;
    int *const counts[] = {&told->fits, &told->missing, &told->shapes, &told->both_ways, &told->superfluous};
    ++*counts[m->fit];
    CHECK((m->fit == NN_WEIGHT_MISSING) == !m->found && (m->fit == NN_WEIGHT_SUPERFLUOUS) == !m->weight.name, "names");
    if (m->fit != NN_WEIGHT_FITS)
        snprintf(told->text + strlen(told->text), sizeof told->text - strlen(told->text), "%d:%s ", (int)m->fit,
                 m->found ? m->found : m->weight.name);
}

static struct told match(const nn_graph *g) {
    struct told told = {0};
    CHECK(!nn_weights_match(g, path, hear, &told), "%s", tensor_error());
    return told;
}

/* A foreign file of fp32 zeros: NULL ends the names; an entry named "note" is the note about layouts. */
struct foreign {
    const char *name;
    int ndim;
    int64_t dim[4];
};

static void write_foreign(const struct foreign *list, const char *note) {
    static const float zeros[4096];
    struct fl_safetensors_out o = {0};
    for (; list->name; list++)
        CHECK(!fl_safetensors_add(&o, list->name, FL_STORED_F32, list->ndim, list->dim, zeros), "%s", tensor_error());
    CHECK(!note || !fl_safetensors_add_note(&o, "flexlab.layouts", note), "%s", tensor_error());
    CHECK(!fl_safetensors_write(&o, path), "%s", tensor_error());
    fl_safetensors_end(&o);
}

/* conv1 on 3 channels, conv2 on 4, conv3 of 1x1 on 1, a square matrix and a narrow one. */
static nn_graph *twofold(nn_node *logits) {
    nn_graph *g = nn_graph_new(&(nn_config){.variant = "fp32", .batch = 2, .seed = 1});
    nn_node x = nn_input(g, 6, 6, 3);
    x = nn_conv2d(g, "conv1", x, 4, 3, &(nn_conv2d_options){.padding = 1});
    x = nn_conv2d(g, "conv2", x, 1, 3, &(nn_conv2d_options){.padding = 1});
    x = nn_conv2d(g, "conv3", x, 6, 1, NULL);
    x = nn_linear(g, "fc1", nn_avgpool_global(g, "pool", x), 6, true);
    *logits = nn_linear(g, "fc2", x, 3, false);
    CHECK(*logits >= 0 && !nn_compile(g, *logits), "%s", tensor_error());
    return g;
}

static void test_match(void) {
    static const struct foreign all[] = {{"conv1.weight", 4, {4, 3, 3, 3}},
                                         {"conv2.weight", 4, {1, 3, 3, 4}},
                                         {"conv3.weight", 4, {6, 1, 1, 1}},
                                         {"fc1.weight", 2, {6, 6}},
                                         {"fc1.bias", 1, {6}},
                                         {"fc2.weight", 2, {6, 3}},
                                         {"fc2.bias", 1, {3}},
                                         {NULL, 0, {0}}};
    static const struct foreign neither[] = {{"conv1.weight", 4, {4, 3, 3, 3}},
                                             {"conv2.weight", 4, {1, 5, 3, 3}},
                                             {"conv3.weight", 4, {6, 1, 1, 1}},
                                             {"fc1.weight", 2, {6, 6}},
                                             {"fc2.weight", 2, {3, 5}},
                                             {"fc3.weight", 2, {6, 3}},
                                             {"fc2.bias", 1, {3}},
                                             {NULL, 0, {0}}};
    /* Some shapes are those of PyTorch, none is ours alone. */
    static const struct foreign turned[] = {{"conv1.weight", 4, {4, 3, 3, 3}},
                                            {"conv2.weight", 4, {1, 4, 3, 3}},
                                            {"conv3.weight", 4, {6, 1, 1, 1}},
                                            {"fc1.weight", 2, {6, 6}},
                                            {"fc1.bias", 1, {6}},
                                            {"fc2.weight", 2, {3, 6}},
                                            {"fc2.bias", 1, {3}},
                                            {NULL, 0, {0}}};
    nn_node logits;
    nn_graph *g = twofold(&logits);
    write_foreign(turned, NULL);
    CHECK(match(g).fits == 5 && match(g).both_ways == 2, "%s", match(g).text);
    write_foreign(turned, "oihw");
    CHECK(match(g).fits == 7, "%s", match(g).text);
    write_foreign(all, NULL);
    struct told told = match(g);
    CHECK(told.fits == 5 && told.both_ways == 2 && !strcmp(told.text, "3:conv1.weight 3:fc1.weight "), "%s", told.text);
    CHECK(!nn_weights_load(g, path), "%s", tensor_error());
    write_foreign(all, "1"); /* the file names its layouts */
    told = match(g);
    CHECK(told.fits == 7 && !*told.text, "%s", told.text);
    write_foreign(all, "2");
    CHECK(match(g).both_ways == 2, "flexlab.layouts 2 is not known");
    write_foreign(neither, NULL);
    told = match(g);
    CHECK(told.missing == 1 && told.shapes == 2 && told.superfluous == 1 && told.both_ways == 2 && told.fits == 2 &&
              !strcmp(told.text, "3:conv1.weight 2:conv2.weight 3:fc1.weight 1:fc1.bias 2:fc2.weight 4:fc3.weight "),
          "%s", told.text);
    CHECK(nn_weights_load(g, path) == TENSOR_E_DATA &&
              strstr(tensor_error(), "'conv2.weight' has the shape [1, 5, 3, 3], that of the network [1, 3, 3, 4] "
                                     "(out, height, width, in); of the network's 7 tensors 1 is missing and 2 have "
                                     "another shape, 1 of the file's is superfluous"),
          "%s", tensor_error());
    CHECK(nn_weights_match(NULL, path, hear, &told) == TENSOR_E_ARGUMENT &&
              nn_weights_match(g, NULL, hear, &told) == TENSOR_E_ARGUMENT &&
              nn_weights_match(g, path, NULL, &told) == TENSOR_E_ARGUMENT &&
              nn_weights_match(g, "/nowhere", hear, &told) == TENSOR_E_IO,
          "arguments");
    nn_graph_free(g);
}

/* A checkpoint has much beside weights, which is neither superfluous nor ambiguous. */
static void test_own(const char *variant, const char *policy, const char *optimiser) {
    nn_graph *g =
        nn_graph_new(&(nn_config){.variant = variant, .policy = policy, .batch = 2, .seed = 1, .optimiser = optimiser});
    CHECK(g && !nn_compile(g, all_layers(g, 5)), "%s", tensor_error());
    CHECK(!nn_checkpoint_save(g, path, NULL, 0), "%s", tensor_error());
    struct told told = match(g);
    CHECK(told.fits > 10 && !*told.text, "%s%s: %s", variant ? variant : "", policy ? policy : "", told.text);
    nn_node logits;
    nn_graph *other = twofold(&logits);
    told = match(other);
    CHECK(told.both_ways == 0 && strstr(told.text, "4:bn1.gamma") && strstr(told.text, "4:bn1.running_mean") &&
              !strstr(told.text, "slot") && !strstr(told.text, ".momentum") && !strstr(told.text, "optimiser"),
          "%s", told.text);
    nn_graph_free(other);
    nn_graph_free(g);
}

int main(void) {
    snprintf(path, sizeof path, "/tmp/flexlab-weight-names-%ld.safetensors", (long)getpid());
    test_list();
    test_match();
    test_own("fp32", NULL, "sgd");
    test_own("flex16+5", NULL, "adam");
    test_own(NULL, "O2", "lamb");
    unlink(path);
    return check_summary();
}
