/* nn_torch.c - see nn_torch.h. A rule of the table gives the tensors of a model that match its pattern their names: "#"
 * is a number, "*" the rest of the name. In the names "#" and "*" stand for what they have matched, "@" for the number
 * minus 1, "%" and "^" for the place of a convolution, and of what follows it, among the features of a VGG network. "|"
 * separates names that are all in use, "+" and "~" a tensor that is added or subtracted, and "[k]" is the k-th third of
 * the rows. The first rule that fits counts. */
#include "nn/checkpoints/nn_torch.h"
#include "core/base/match.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *models, *own, *torch;
} rules[] = {
    /* akamaster/pytorch_resnet_cifar10 (option A: resnetD, B: resnetD-b); kuangliu/pytorch-cifar and torchvision call
     * the shortcut and the last layer differently. */
    {"resnet*", "stage#.block#.shortcut.conv.*", "layer#.@.shortcut.0.*|layer#.@.downsample.0.*"},
    {"resnet*", "stage#.block#.shortcut.bn.*", "layer#.@.shortcut.1.*|layer#.@.downsample.1.*"},
    {"resnet*", "stage#.block#.short.conv.*", "layer#.@.shortcut.0.*|layer#.@.downsample.0.*"},
    {"resnet*", "stage#.block#.short.bn.*", "layer#.@.shortcut.1.*|layer#.@.downsample.1.*"},
    {"resnet*", "stage#.block#.*", "layer#.@.*"},
    {"resnet*", "fc.*", "linear.*|fc.*"},
    /* xternalz/WideResNet-pytorch */
    {"wrn*", "stage#.block#.shortcut.*", "block#.layer.@.convShortcut.*"},
    {"wrn*", "stage#.block#.*", "block#.layer.@.*"},
    {"wrn*", "bn.*", "bn1.*"},
    {"wrn*", "fc.*", "fc.*|linear.*"},
    /* kuangliu/pytorch-cifar; torchvision's vgg11_bn and vgg16_bn have the same features. Their convolutions have
     * biases, which batch normalisation subtracts with the mean. */
    {"vgg*", "stage#.conv#.*", "features.%.*"},
    {"vgg*", "stage#.bn#.running_mean", "features.^.running_mean~features.%.bias"},
    {"vgg*", "stage#.bn#.*", "features.^.*"},
    {"vgg*", "fc.*", "classifier.*|classifier.0.*|fc.*"},
    /* kuangliu/pytorch-cifar */
    {"mobilenet", "block#.depthwise.*", "layers.@.conv1.*"},
    {"mobilenet", "block#.pointwise.*", "layers.@.conv2.*"},
    {"mobilenet", "block#.*", "layers.@.*"},
    {"mobilenet", "fc.*", "linear.*|fc.*"},
    /* torchvision */
    {"alexnet", "conv1.*", "features.0.*"},
    {"alexnet", "conv2.*", "features.3.*"},
    {"alexnet", "conv3.*", "features.6.*"},
    {"alexnet", "conv4.*", "features.8.*"},
    {"alexnet", "conv5.*", "features.10.*"},
    {"alexnet", "fc6.*", "classifier.1.*"},
    {"alexnet", "fc7.*", "classifier.4.*"},
    {"alexnet", "fc8.*", "classifier.6.*"},
    /* kuangliu/pytorch-cifar, PyTorch's tutorials: the third convolution is a linear layer. */
    {"lenet", "c1.*", "conv1.*"},
    {"lenet", "c3.*", "conv2.*"},
    {"lenet", "c5.*", "fc1.*"},
    {"lenet", "f6.*", "fc2.*"},
    {"lenet", "output.*", "fc3.*"},
    /* karpathy/nanoGPT */
    {"gpt*", "embedding.*", "transformer.wte.*"},
    {"gpt*", "positions.*", "transformer.wpe.*"},
    {"gpt*", "block#.norm1.*", "transformer.h.@.ln_1.*"},
    {"gpt*", "block#.norm2.*", "transformer.h.@.ln_2.*"},
    {"gpt*", "block#.attention.query.*", "transformer.h.@.attn.c_attn.*[1]"},
    {"gpt*", "block#.attention.key.*", "transformer.h.@.attn.c_attn.*[2]"},
    {"gpt*", "block#.attention.value.*", "transformer.h.@.attn.c_attn.*[3]"},
    {"gpt*", "block#.attention.projection.*", "transformer.h.@.attn.c_proj.*"},
    {"gpt*", "block#.expand.*", "transformer.h.@.mlp.c_fc.*"},
    {"gpt*", "block#.contract.*", "transformer.h.@.mlp.c_proj.*"},
    {"gpt*", "norm.*", "transformer.ln_f.*"},
    {"gpt*", "head.*", "lm_head.*"},
    /* torch.nn.LSTM, torch.nn.GRU */
    {"lstm-char", "lstm.input.weight", "lstm.weight_ih_l0"},
    {"lstm-char", "lstm.input.bias", "lstm.bias_ih_l0+lstm.bias_hh_l0"},
    {"lstm-char", "lstm.recurrent", "lstm.weight_hh_l0"},
    {"gru-char", "gru.input.weight", "gru.weight_ih_l0"},
    {"gru-char", "gru.input.bias", "gru.bias_ih_l0"},
    {"gru-char", "gru.recurrent", "gru.weight_hh_l0"},
    {"gru-char", "gru.bias", "gru.bias_hh_l0"},
    {"*-char", "embedding.*", "embedding.*|encoder.*"},
    {"*-char", "head.*", "head.*|fc.*|decoder.*"},
};

/* --- names -------------------------------------------------------------------------------------------------------- */

enum { NUMBERS = 2 };
struct matched {
    int number[NUMBERS];
    const char *rest;
};

static bool matches(const char *pattern, const char *name, struct matched *m) {
    int numbers = 0;
    for (; *pattern && *pattern != '*'; pattern++) {
        const size_t digits = *pattern == '#' ? strspn(name, "0123456789") : 0;
        if (*pattern == '#' ? !digits || digits > 4 || numbers == NUMBERS : *pattern != *name)
            return false;
        if (digits)
            m->number[numbers++] = (int)strtol(name, NULL, 10);
        name += digits ? digits : 1;
    }
    m->rest = name;
    return *pattern == '*' || !*name;
}

/* The place of convolution k, from 1, of a stage: each has three features, and each stage before one more, its pooling.
 */
static int vgg_place(const char *model, int stage, int k) {
    static const int of_11[] = {1, 1, 2, 2, 2}, of_16[] = {2, 2, 3, 3, 3};
    int place = 3 * (k - 1);
    for (int i = 0; i < stage - 1 && i < 5; i++)
        place += 3 * (!strcmp(model, "vgg11") ? of_11 : of_16)[i] + 1;
    return place;
}

/* One name of a rule, up to a separator; returns what follows it. */
static const char *write_name(char to[FL_TORCH_NAME], const char *from, const char *model, const struct matched *m) {
    size_t used = 0;
    int next = 0;
    for (; *from && !strchr("|+~[", *from) && used < FL_TORCH_NAME - 1; from++) {
        char text[FL_TORCH_NAME] = {*from, 0};
        const int place = vgg_place(model, m->number[0], m->number[1]);
        if (*from == '*')
            snprintf(text, sizeof text, "%s", m->rest);
        else if (*from == '#' || *from == '@')
            snprintf(text, sizeof text, "%d", m->number[next++] - (*from == '@'));
        else if (*from == '%' || *from == '^')
            snprintf(text, sizeof text, "%d", place + (*from == '^'));
        used += (size_t)snprintf(to + used, FL_TORCH_NAME - used, "%s", text);
    }
    return from;
}

/* NAME.gamma is NAME.weight there, and so on. */
static void change_suffix(char name[FL_TORCH_NAME]) {
    static const char *const suffixes[][2] = {
        {".gamma", ".weight"}, {".beta", ".bias"}, {".running_variance", ".running_var"}};
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        const size_t length = strlen(name), last = strlen(suffixes[i][0]);
        if (length > last && !strcmp(name + length - last, suffixes[i][0]))
            snprintf(name + length - last, FL_TORCH_NAME - length + last, "%s", suffixes[i][1]);
    }
}

void fl_torch_name(struct fl_torch_name *out, const char *model, const char *own) {
    struct matched m = {{0}, NULL};
    const char *from = "*";
    *out = (struct fl_torch_name){.count = 0};
    m.rest = own;
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (fl_matches(rules[i].models, strlen(rules[i].models), model) && matches(rules[i].own, own, &m)) {
            from = rules[i].torch;
            break;
        } else {
            m.rest = own;
        }
    for (char separator = '|'; separator; separator = *from ? *from++ : 0) {
        char *const to = separator == '+'   ? out->plus
                         : separator == '~' ? out->minus
                         : separator == '|' ? out->name[out->count++]
                                            : NULL;
        if (!to) { /* "[k]" */
            out->third = *from - '0';
            break;
        }
        from = write_name(to, from, model, &m);
        change_suffix(to);
    }
}

/* --- layouts ------------------------------------------------------------------------------------------------------ */

const char *fl_torch_shape(struct fl_shape *shape, const struct fl_target *t, int third) {
    const int64_t *const own = t->shape->dim;
    const int last = t->shape->ndim - 1;
    static const char *const texts[FL_LAYOUTS] = {
        [FL_LAYOUT_CHANNELS] = "channels",          [FL_LAYOUT_MATRIX] = "out, in",
        [FL_LAYOUT_GATES] = "gates x out, in",      [FL_LAYOUT_TOKENS] = "tokens, width",
        [FL_LAYOUT_PLACES] = "places, width",       [FL_LAYOUT_FILTERS] = "out, in, height, width",
        [FL_LAYOUT_LINES] = "out, in, width",       [FL_LAYOUT_TURNED_FILTERS] = "in, out, height, width",
        [FL_LAYOUT_TURNED_LINES] = "in, out, width"};
    *shape = *t->shape;
    switch (t->layout) {
    case FL_LAYOUT_MATRIX:
    case FL_LAYOUT_GATES:
        shape->dim[0] = own[1];
        shape->dim[1] = own[0];
        break;
    case FL_LAYOUT_FILTERS:
    case FL_LAYOUT_LINES:
    case FL_LAYOUT_TURNED_FILTERS:
    case FL_LAYOUT_TURNED_LINES:
        shape->dim[1] = own[last];
        for (int d = 2; d <= last; d++)
            shape->dim[d] = own[d - 1];
        break;
    default:
        break;
    }
    if (third)
        shape->dim[0] *= 3;
    return t->image[2] > 1 && t->image[0] * t->image[1] > 1 ? "out, in: channels, height, width" : texts[t->layout];
}

/* [out, in] to [in, out]; the inputs of an image are channels, height, width there, and height, width, channels here.
 */
static void turn_matrix(double *to, const double *from, int64_t in, int64_t out, const int64_t image[3]) {
    const int64_t pixels = image[2] ? image[0] * image[1] : in, channels = image[2] ? image[2] : 1;
    for (int64_t p = 0; p < pixels; p++)
        for (int64_t c = 0; c < channels; c++)
            for (int64_t o = 0; o < out; o++)
                to[(p * channels + c) * out + o] = from[o * in + c * pixels + p];
}

/* [a, b, ...] to [a, ..., b]. */
static void turn_filters(double *to, const double *from, const struct fl_shape *own) {
    const int64_t a = own->dim[0], b = own->dim[own->ndim - 1], area = fl_shape_count(own) / (a * b);
    for (int64_t i = 0; i < a; i++)
        for (int64_t p = 0; p < area; p++)
            for (int64_t k = 0; k < b; k++)
                to[(i * area + p) * b + k] = from[(i * b + k) * area + p];
}

void fl_torch_order(double *to, const double *from, const struct fl_target *t) {
    switch (t->layout) {
    case FL_LAYOUT_MATRIX:
    case FL_LAYOUT_GATES:
        turn_matrix(to, from, t->shape->dim[0], t->shape->dim[1], t->image);
        break;
    case FL_LAYOUT_FILTERS:
    case FL_LAYOUT_LINES:
    case FL_LAYOUT_TURNED_FILTERS:
    case FL_LAYOUT_TURNED_LINES:
        turn_filters(to, from, t->shape);
        break;
    default:
        memcpy(to, from, (size_t)fl_shape_count(t->shape) * sizeof *to);
    }
}
