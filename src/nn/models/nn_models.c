/* nn_models.c - whole networks by name, for images of any size that they fit; nn_models_images.c has their layers. */
#include "nn/models/nn_models_images.h"
#include "core/base/fail.h"
#include "core/base/text.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- models by name ----------------------------------------------------------------------------------------------- */

/* number: the number in the name of a family's member; side: the least height and width of images, 0: the layers report
 * what does not fit. */
struct model {
    const char *name;
    nn_node (*build)(nn_graph *g, nn_node x, int classes, int number);
    int number, side;
};

static const struct model models[] = {
    {"mlp2", fl_mlp2, 0, 0},
    {"cnn6", fl_cnn6, 0, 0},
    {"resnet8", fl_resnet, 8, 0},
    {"resnet14", fl_resnet, 14, 0},
    {"resnet20", fl_resnet, 20, 0},
    {"resnet32", fl_resnet, 32, 0},
    {"resnet44", fl_resnet, 44, 0},
    {"resnet56", fl_resnet, 56, 0},
    {"resnet110", fl_resnet, 110, 0},
    {"lenet", fl_lenet, 0, FL_LENET_SIDE},
    {"alexnet", fl_alexnet, 0, FL_ALEXNET_SIDE},
    {"vgg11", fl_vgg, 11, FL_VGG_SIDE},
    {"vgg16", fl_vgg, 16, FL_VGG_SIDE},
    {"resnet20-b", fl_resnet_b, 20, 0},
    {"resnet29-bottleneck", fl_resnet_bottleneck, 29, 0},
    {"wrn16-4", fl_wide_resnet, 16 + 4 * FL_WIDTH, 0},
    {"mobilenet", fl_mobilenet, 0, 0},
};
enum { MODELS = sizeof models / sizeof models[0] };

int nn_model_count(void) {
    int count = 0;
    while (nn_model_at(count))
        count++;
    return count;
}

const char *nn_model_at(int i) {
    return i >= 0 && i < MODELS ? models[i].name : NULL;
}

/* Families by name: PREFIX, a depth, SUFFIX. */
static const struct family {
    const char *prefix, *suffix;
    nn_node (*build)(nn_graph *g, nn_node x, int classes, int number);
    int each, more; /* the depth is each n + more, n at least 1 */
    const char *depths;
    bool wide; /* behind the suffix follows a width */
} families[] = {
    {"resnet", "", fl_resnet, 6, 2, "6n + 2: 8, 14, 20, ...", false},
    {"resnet", "-b", fl_resnet_b, 6, 2, "6n + 2: 8, 14, 20, ...", false},
    {"resnet", "-bottleneck", fl_resnet_bottleneck, 9, 2, "9n + 2: 11, 20, 29, ...", false},
    {"wrn", "-", fl_wide_resnet, 6, 4, "6n + 4: 10, 16, 22, ...", true},
    {"mlp", "x", fl_mlp, 1, 0, "at least 1", true},
};
enum { FAMILIES = sizeof families / sizeof families[0], NUMBER_LIMIT = 1000, DEPTH_LIMIT = 10000 };

/* A number of digits at *text, which moves behind it; -1: there is none, 0 and above: at most DEPTH_LIMIT. */
static int take_number(const char **text) {
    const size_t digits = strspn(*text, "0123456789");
    const int value = digits == 0 ? -1 : digits > 4 ? DEPTH_LIMIT : (int)strtol(*text, NULL, 10);
    *text += digits;
    return value;
}

/* Whether the name is one of that family: then its depth and width. */
static bool in_family(const struct family *family, const char *name, int *depth, int *width) {
    const size_t prefix = strlen(family->prefix), suffix = strlen(family->suffix);
    *width = 1;
    if (strncmp(name, family->prefix, prefix) != 0)
        return false;
    name += prefix;
    *depth = take_number(&name);
    if (*depth < 0 || strncmp(name, family->suffix, suffix) != 0)
        return false;
    name += suffix;
    if (family->wide)
        *width = take_number(&name);
    return *width >= 0 && !*name;
}

/* Appends a list of names to a text, as many as fit. */
static void add_names(char *text, size_t room, const char *(*name)(int i)) {
    size_t used = strlen(text);
    for (int i = 0; name(i) && used < room; i++)
        used += (size_t)snprintf(text + used, room - used, "%s%s", i ? ", " : "", name(i));
}

static tensor_status unknown_model(const char *name) {
    char images[300] = "", texts[100] = "";
    add_names(images, sizeof images, nn_model_at);
    add_names(texts, sizeof texts, nn_text_model_at);
    return fl_fail(TENSOR_E_ARGUMENT,
                   "model %s: expected one of %s, or resnetD and resnetD-b with D = 6n + 2, resnetD-bottleneck with D "
                   "= 9n + 2, wrnD-K with D = 6n + 4, mlpLxW; models that read text: %s",
                   fl_quote(name).text, images, texts);
}

static tensor_status find_model(const char *name, struct model *model) {
    for (int i = 0; name && i < MODELS; i++)
        if (!strcmp(models[i].name, name)) {
            *model = models[i];
            return TENSOR_OK;
        }
    for (int i = 0; name && i < FAMILIES; i++) {
        const struct family *family = &families[i];
        int depth, width;
        if (!in_family(family, name, &depth, &width))
            continue;
        if (family->wide && (depth >= NUMBER_LIMIT || width < 1 || width >= NUMBER_LIMIT))
            return fl_fail(TENSOR_E_ARGUMENT, "model '%s': depth and width must be below %d, the width at least 1",
                           name, NUMBER_LIMIT);
        if (depth >= DEPTH_LIMIT)
            return fl_fail(TENSOR_E_ARGUMENT, "model '%s': the depth must be below %d", name, DEPTH_LIMIT);
        if (depth < family->each + family->more || (depth - family->more) % family->each)
            return fl_fail(TENSOR_E_ARGUMENT, "model '%s': the depth must be %s", name, family->depths);
        *model = (struct model){name, family->build, family->wide ? depth + width * FL_WIDTH : depth, 0};
        return TENSOR_OK;
    }
    return unknown_model(name);
}

nn_node nn_model(nn_graph *g, const char *name, int height, int width, int channels, int classes) {
    struct model model = {0};
    tensor_status status = find_model(name, &model);
    if (status)
        return fl_build_failed(g, status);
    if (classes < 2)
        return fl_build_failed(
            g, fl_fail(TENSOR_E_ARGUMENT, "model '%s': %d classes, expected at least 2", name, classes));
    if (height < model.side || width < model.side)
        return fl_build_failed(g, fl_fail(TENSOR_E_SHAPE, "model '%s': images of %dx%d, expected at least %dx%d", name,
                                          height, width, model.side, model.side));
    if (g)
        snprintf(g->model, sizeof g->model, "%s", name);
    return model.build(g, nn_input(g, height, width, channels), classes, model.number);
}
