/* nn_program_weights.c - files of weights as programs: the network is built by its name, with the sizes that its
 * tensors have. */
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/base/text.h"
#include "flexlab/program.h"
#include "nn/checkpoints/nn_checkpoint.h"
#include "nn/checkpoints/nn_torch.h"
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { USUAL_SIDE = 32, USUAL_LENGTH = 128, DIGITS = 784 /* 28 x 28 */, MOST_CHANNELS = 4 };

/* Beside the weights, as for a checkpoint (nn_checkpoint_graph). */
#define MOST_BYTES ((int64_t)4 << 30)

/* Sizes of a model. */
struct sizes {
    int height, width, channels, classes; /* of texts, width is the length and classes the vocabulary */
};

static nn_node build(nn_graph *g, const char *model, const struct sizes *s) {
    return nn_model_reads_text(model) ? nn_model_text(g, model, s->width, s->classes)
                                      : nn_model(g, model, s->height, s->width, s->channels, s->classes);
}

/* Dimension d of a weight in this library's order, as the file has it; 0: it has no such tensor. An empty tensor claims
 * sizes without having them. */
static int64_t size_in_file(const struct fl_naming *naming, const struct fl_targets *all, const struct fl_target *t,
                            int d) {
    struct fl_place place;
    fl_place_of(&place, naming, all, t);
    if (!place.t || place.t->ndim != t->shape->ndim || place.t->begin == place.t->end)
        return 0;
    const int last = t->shape->ndim - 1;
    const bool turned = naming->torch_layout && last && t->layout != FL_LAYOUT_TOKENS && t->layout != FL_LAYOUT_PLACES;
    const int at = !turned ? d : t->shape->ndim == 2 ? 1 - d : d == last ? 1 : d && last > 1 ? d + 1 : d;
    return place.t->dim[at] <= INT_MAX ? place.t->dim[at] : 0;
}

/* Channels times pixels of the first matrix. */
static tensor_status take_pixels(struct sizes *s, const program_weight_file *how, int64_t inputs) {
    if (!how->height && inputs == DIGITS)
        s->height = s->width = 28;
    const int64_t pixels = (int64_t)s->height * s->width;
    s->channels = inputs % pixels ? 0 : (int)(inputs / pixels);
    return s->channels >= 1 && s->channels <= MOST_CHANNELS
               ? TENSOR_OK
               : fl_fail(TENSOR_E_ARGUMENT,
                         "weights: '%s' reads %lld numbers, expected height and width of images of 1 to %d channels "
                         "(--image HxW, program_weight_file); %dx%d does not divide them",
                         how->model, (long long)inputs, MOST_CHANNELS, s->height, s->width);
}

static tensor_status take_sizes(struct sizes *s, const program_weight_file *how, const struct fl_naming *naming,
                                const struct fl_targets *all) {
    const struct fl_target *const first = &all->list[0], *last = NULL;
    for (int i = 0; i < all->count; i++) {
        const struct fl_target *const t = &all->list[i];
        if (t->layout == FL_LAYOUT_MATRIX)
            last = t;
        if (t->layout == FL_LAYOUT_PLACES && !how->width && size_in_file(naming, all, t, 0))
            s->width = (int)size_in_file(naming, all, t, 0);
    }
    /* A bias says the number of outputs whatever the layout is. */
    const struct fl_target *const bias = last && last + 1 < all->list + all->count ? last + 1 : NULL;
    const int64_t classes = bias ? size_in_file(naming, all, bias, 0) : last ? size_in_file(naming, all, last, 1) : 0;
    const int64_t inputs = size_in_file(naming, all, first, first->shape->ndim - 1);
    if (classes > 1)
        s->classes = (int)classes;
    if (first->layout == FL_LAYOUT_FILTERS && inputs)
        s->channels = (int)inputs;
    const int64_t numbers = first->layout == FL_LAYOUT_MATRIX ? size_in_file(naming, all, first, 0) : 0;
    return numbers ? take_pixels(s, how, numbers) : TENSOR_OK;
}

/* The sizes of the tensors, by the names of a network of the usual ones. */
static tensor_status find_sizes(struct sizes *sizes, const char *path, const program_weight_file *how) {
    struct fl_targets all;
    struct fl_safetensors s;
    struct fl_naming naming;
    const bool text = nn_model_reads_text(how->model);
    *sizes = (struct sizes){how->height ? how->height : USUAL_SIDE,
                            how->width ? how->width
                            : text     ? USUAL_LENGTH
                                       : USUAL_SIDE,
                            3, text ? 256 : 10};
    nn_graph *const g = nn_graph_new(&(nn_config){.variant = "fp32", .batch = 1});
    tensor_status status = !g || build(g, how->model, sizes) < 0 ? tensor_error_status() : TENSOR_OK;
    if (!status)
        status = fl_safetensors_open(&s, path);
    if (!status) {
        status = fl_targets_list(&all, g);
        if (!status) {
            status = fl_naming_of(&naming, &all, &s, how->layout);
            if (!status)
                status = take_sizes(sizes, how, &naming, &all);
            fl_targets_clear(&all);
        }
        fl_safetensors_close(&s);
    }
    nn_graph_free(g);
    return status;
}

/* --- the checksum of a file's own network ------------------------------------------------------------------------- */

#define PROBE "flexlab.probe"

/* The image or sequence that the note is about, and the checksum of what the source network gives for it. */
struct probe {
    int64_t dim[3];
    int count; /* 3, 1 for a text; 0: there is no note */
    program_sum sum;
};

/* "32x32x3 SUM SIZE", "128 SUM SIZE". A note may not claim any amount of memory. */
enum { MOST_SIDE = 512 };
static bool read_probe(struct probe *probe, const char *note) {
    char *end;
    for (probe->count = 0; probe->count < 3;) {
        const size_t digits = strspn(note, "0123456789");
        if (!digits || digits > 6)
            return false;
        probe->dim[probe->count++] = strtol(note, &end, 10);
        if (probe->dim[probe->count - 1] < 1 || probe->dim[probe->count - 1] > MOST_SIDE)
            return false;
        note = end;
        if (*note != 'x')
            break;
        note++;
    }
    if ((probe->count != 1 && probe->count != 3) || *note++ != ' ')
        return false;
    probe->sum.sum = fl_to_real(note, &end);
    if (end == note || *end != ' ')
        return false;
    note = end + 1;
    probe->sum.magnitude = fl_to_real(note, &end);
    return end != note && !*end && isfinite(probe->sum.sum) && probe->sum.magnitude >= 0;
}

static tensor_status find_probe(struct probe *probe, const char *path) {
    struct fl_safetensors s;
    *probe = (struct probe){.count = 0};
    TRY(fl_safetensors_open(&s, path));
    const char *const note = fl_safetensors_note(&s, PROBE);
    const tensor_status status =
        !note || read_probe(probe, note)
            ? TENSOR_OK
            : fl_fail(TENSOR_E_DATA,
                      "weights: %s: %s is %s, expected sizes up to 512 and two numbers such as \"32x32x3 -1.25 3.5\"",
                      path, PROBE, fl_quote(note).text);
    fl_safetensors_close(&s);
    return status;
}

/* Sums of fp32 in two orders differ by a millionth of the size; a wrong tensor, by the size itself. */
#define PROBE_TOLERANCE 1e-4

static tensor_status run_probe(program *p, const struct probe *probe, const char *path, program_array *in) {
    program_array out;
    int64_t count = 1;
    TRY(program_probe(in));
    TRY(program_run(p, &out, in));
    for (int d = 0; d < out.ndim; d++)
        count *= out.shape[d];
    const program_sum sum = program_checksum(out.data, count);
    if (fabs(sum.sum - probe->sum.sum) <= PROBE_TOLERANCE * probe->sum.magnitude)
        return TENSOR_OK;
    return fl_fail(
        TENSOR_E_DATA,
        "weights: %s: with these tensors the output has the checksum %.6g (size %.6g), its note %s says %.6g "
        "(size %.6g): tensors, their layouts or layers are not those of the network that it is from",
        path, sum.sum, sum.magnitude, PROBE, probe->sum.sum, probe->sum.magnitude);
}

/* Compares the program with the note. */
static tensor_status check_probe(program *p, const struct probe *probe, const char *path) {
    program_port port;
    int64_t count = 1;
    TRY(program_input_at(&port, p, 0));
    program_array in = {.type = port.type, .ndim = probe->count + 1, .shape = {1}};
    for (int d = 0; d < probe->count; d++)
        count *= in.shape[d + 1] = probe->dim[d];
    for (int d = 0; d < probe->count; d++)
        if (port.ndim != in.ndim || port.shape[d + 1] != in.shape[d + 1])
            return fl_fail(TENSOR_E_DATA, "weights: %s: %s is about an input of other sizes than the network has", path,
                           PROBE);
    in.data = fl_alloc((size_t)count * sizeof(float));
    const tensor_status status =
        in.data ? run_probe(p, probe, path, &in) : fl_fail(TENSOR_E_MEMORY, "weights: no memory for an input");
    fl_free(in.data);
    return status;
}

static tensor_status from_weights(program **p, const char *path, const program_weight_file *given) {
    struct sizes sizes;
    struct probe probe;
    program_weight_file how = *given;
    TRY(find_probe(&probe, path));
    if (probe.count && !how.width) {
        how.height = probe.count == 3 ? (int)probe.dim[0] : 0;
        how.width = (int)probe.dim[probe.count == 3];
    }
    TRY(find_sizes(&sizes, path, &how));
    nn_graph *const g = nn_graph_new(&(nn_config){.variant = "fp32", .batch = 1});
    const nn_node logits = g ? build(g, how.model, &sizes) : -1;
    tensor_status status = logits < 0 ? tensor_error_status() : nn_graph_limit(g, MOST_BYTES);
    if (!status)
        status = fl_weights_check(g, path, how.layout); /* before memory is taken for what the file may not have */
    if (!status)
        status = nn_compile(g, logits);
    if (!status)
        status = fl_weights_load(g, path, how.layout, true);
    if (!status)
        status = program_from_graph(p, g);
    nn_graph_free(g);
    if (!status && probe.count)
        status = check_probe(*p, &probe, path);
    if (status) {
        program_free(*p);
        *p = NULL;
    }
    return status;
}

/* --- checkpoints -------------------------------------------------------------------------------------------------- */

/* A number of the training that wrote the file. */
static tensor_status whole(int *value, const struct fl_safetensors *s, const char *key) {
    int64_t number;
    TRY(fl_checkpoint_whole(s, key, 1, INT_MAX, &number));
    *value = (int)number;
    return TENSOR_OK;
}

static tensor_status read_sizes(struct sizes *sizes, const struct fl_safetensors *s, const char *model) {
    TRY(whole(&sizes->classes, s, "training.classes"));
    if (nn_model_reads_text(model))
        return whole(&sizes->width, s, "training.context");
    TRY(whole(&sizes->height, s, "training.height"));
    TRY(whole(&sizes->width, s, "training.width"));
    return whole(&sizes->channels, s, "training.channels");
}

/* The whole state: formats, wide parts, exponents. */
static tensor_status from_checkpoint(program **p, const char *path, const char *model, const struct sizes *sizes) {
    nn_graph *const g = nn_checkpoint_graph(path, NULL);
    const nn_node logits = g ? build(g, model, sizes) : -1;
    tensor_status status = logits < 0 ? tensor_error_status() : nn_compile(g, logits);
    if (!status)
        status = nn_checkpoint_load(g, path);
    if (!status)
        status = program_from_graph(p, g);
    nn_graph_free(g);
    return status;
}

tensor_status program_read_weights(program **p, const char *path, const program_weight_file *how) {
    static const program_weight_file nothing;
    struct fl_safetensors s;
    struct sizes sizes = {0};
    char model[100] = "";
    how = how ? how : &nothing;
    if (!p || !path)
        return fl_fail(TENSOR_E_ARGUMENT, "program_read_weights: %s is NULL", p ? "path" : "p");
    *p = NULL;
    if (how->height < 0 || how->width < 0 || (how->height && !how->width))
        return fl_fail(TENSOR_E_ARGUMENT, "weights: images of %dx%d, expected positive numbers, or 0 for both",
                       how->height, how->width);
    TRY(fl_safetensors_open(&s, path));
    const char *const note = fl_safetensors_note(&s, "training.model");
    const bool checkpoint = fl_safetensors_note(&s, FL_CHECKPOINT_KEY) && note && strlen(note) < sizeof model;
    tensor_status status = TENSOR_OK;
    if (checkpoint)
        strcpy(model, note);
    if (checkpoint && (!how->model || !strcmp(model, how->model)))
        status = read_sizes(&sizes, &s, model);
    else if (!how->model)
        status =
            fl_fail(TENSOR_E_ARGUMENT,
                    "weights: %s does not say its model, expected a name (--model, program_weight_file.model)", path);
    fl_safetensors_close(&s);
    return status ? status : sizes.classes > 0 ? from_checkpoint(p, path, model, &sizes) : from_weights(p, path, how);
}
