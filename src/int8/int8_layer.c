/* int8_layer.c - checks the description of a layer, turns its scales into multipliers, and packs its weights. */
#include "core/base/cpu.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/table/format.h"
#include "int8/int8_kernels.h"
#include "int8/int8_pool.h"
#include <string.h>

static const char *const names[FL_INT8_ROUNDINGS] = {"exact", "onnx", "tflite", "tflite-ruy", "tflite-xnnpack"};

const char *fl_int8_rounding_name(enum fl_int8_rounding rounding) {
    return (unsigned)rounding < FL_INT8_ROUNDINGS ? names[rounding] : NULL;
}

enum fl_int8_rounding fl_int8_rounding_named(const char *name) {
    int i = 0;
    while (i < FL_INT8_ROUNDINGS && strcmp(name, names[i]) != 0)
        i++;
    return (enum fl_int8_rounding)i;
}

/* round(real / scale) in binary32, ties away from zero, as an integer of the type. */
static int32_t bound(const struct fl_int8_type *type, float real) {
    const double low = int8_least(type->is_unsigned), high = int8_most(type->is_unsigned),
                 q = (double)roundf(real / type->scale) + (double)type->zero;
    return (int32_t)(q > high ? high : q >= low ? q : low);
}

struct fl_int8_range fl_int8_activation(const struct fl_int8_type *type, float low, float high) {
    const int32_t least = bound(type, low), most = bound(type, high);
    return (struct fl_int8_range){least, most, .only_zero = !least && !most};
}

/* --- checks ------------------------------------------------------------------------------------------------------- */

tensor_status int8_check_type(const char *name, const struct fl_int8_type *type) {
    if (!(type->scale > 0) || !isfinite(type->scale))
        return fl_fail(TENSOR_E_ARGUMENT, "scale of %s is %g, expected a positive number", name, (double)type->scale);
    if (type->zero < int8_least(type->is_unsigned) || type->zero > int8_most(type->is_unsigned))
        return fl_fail(TENSOR_E_ARGUMENT, "zero point of %s is %d, expected %d to %d", name, type->zero,
                       int8_least(type->is_unsigned), int8_most(type->is_unsigned));
    return TENSOR_OK;
}

tensor_status int8_check_range(const struct fl_int8_type *type, struct fl_int8_range range) {
    const int32_t least = int8_least(type->is_unsigned), most = int8_most(type->is_unsigned);
    if (range.low > range.high || range.low < least || range.high > most)
        return fl_fail(TENSOR_E_ARGUMENT, "the output is clamped to %d to %d, expected a range within %d to %d",
                       range.low, range.high, least, most);
    return TENSOR_OK;
}

enum { SIZE_MOST = 1 << 30, ELEMENTS_MOST = 1 << 30 }; /* of a dimension; of all weights */

static bool is_size(int64_t size) {
    return size >= 1 && size <= SIZE_MOST;
}

static tensor_status check_window(const struct fl_int8_window *w) {
    if (!is_size(w->height) || !is_size(w->width) || !is_size(w->stride_h) || !is_size(w->stride_w) ||
        !is_size(w->dilation_h) || !is_size(w->dilation_w))
        return fl_fail(TENSOR_E_SHAPE, "window %lld x %lld, strides %lld, %lld, dilations %lld, %lld: expected 1 to %d",
                       (long long)w->height, (long long)w->width, (long long)w->stride_h, (long long)w->stride_w,
                       (long long)w->dilation_h, (long long)w->dilation_w, SIZE_MOST);
    if (w->top < 0 || w->left < 0 || w->bottom < 0 || w->right < 0 || w->top > SIZE_MOST || w->left > SIZE_MOST ||
        w->bottom > SIZE_MOST || w->right > SIZE_MOST)
        return fl_fail(TENSOR_E_SHAPE, "padding is %lld, %lld, %lld, %lld, expected 0 to %d", (long long)w->top,
                       (long long)w->left, (long long)w->bottom, (long long)w->right, SIZE_MOST);
    return TENSOR_OK;
}

tensor_status int8_window(const struct fl_int8_window *given, struct fl_int8_window *window) {
    *window = *given;
    int64_t *const steps[] = {&window->stride_h, &window->stride_w, &window->dilation_h, &window->dilation_w};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (!*steps[i])
            *steps[i] = 1;
    return check_window(window);
}

static tensor_status check_spec(struct fl_int8_layer_spec *s) {
    if ((unsigned)s->rounding >= FL_INT8_ROUNDINGS)
        return fl_fail(TENSOR_E_ARGUMENT, "rounding %d is none", (int)s->rounding);
    s->groups = s->groups ? s->groups : 1;
    TRY(int8_window(&s->window, &s->window));
    if (!is_size(s->channels) || !is_size(s->filters) || !is_size(s->groups) || s->channels % s->groups ||
        s->filters % s->groups)
        return fl_fail(TENSOR_E_SHAPE,
                       "%lld channels and %lld filters in %lld groups: expected multiples of the groups",
                       (long long)s->channels, (long long)s->filters, (long long)s->groups);
    const int64_t area = s->window.height * s->window.width, channels = s->channels / s->groups;
    if (area > ELEMENTS_MOST || area * channels > ELEMENTS_MOST || area * channels * s->filters > ELEMENTS_MOST)
        return fl_fail(TENSOR_E_SHAPE, "weights have %lld x %lld x %lld x %lld elements, expected at most %d in all",
                       (long long)s->filters, (long long)s->window.height, (long long)s->window.width,
                       (long long)channels, ELEMENTS_MOST);
    const struct fl_int8_type weights = {1, s->weights_zero, s->weights_unsigned}, x = {1, s->x.zero, s->x.is_unsigned};
    TRY(int8_check_type("the weights", &weights));
    TRY(int8_check_type("the input", s->sums ? &x : &s->x));
    if (s->residual && (s->sums || s->rounding != FL_INT8_EXACT))
        return fl_fail(TENSOR_E_ARGUMENT, "a residual has a layer of rounding exact with an output of 8 bits alone");
    if (s->residual)
        TRY(int8_check_type("the residual", s->residual));
    if (s->sums)
        return TENSOR_OK;
    TRY(int8_check_type("the output", &s->y));
    s->range = int8_whole_range(&s->y, s->range);
    return int8_check_range(&s->y, s->range);
}

/* --- multipliers -------------------------------------------------------------------------------------------------- */

static enum int8_rule rule_of(const struct fl_int8_layer_spec *s) {
    switch (s->rounding) {
    case FL_INT8_TFLITE:
        return s->fully_connected ? INT8_ONCE_UP : INT8_TWICE;
    case FL_INT8_TFLITE_RUY:
        return INT8_TWICE;
    case FL_INT8_ONNX:
    case FL_INT8_TFLITE_XNNPACK:
        return INT8_BINARY32;
    default:
        return INT8_ONCE_EVEN;
    }
}

/* Ties of the shift in INT8_TWICE. The optimised kernels of depthwise layers compute filters in vectors of 8, whose
 * ties go up, and those that remain as the reference kernel does. */
static bool ties_away(const struct fl_int8_layer_spec *s, int64_t k) {
    return s->rounding == FL_INT8_TFLITE || (s->depthwise && k >= s->filters / 8 * 8);
}

/* s_x s_w / s_y as each runtime computes it: onnxruntime and XNNPACK in binary32; TensorFlow Lite in double, but the
 * product of a fully connected layer whose weights have one scale in binary32 (GetQuantizedConvolutionMultipler). */
static tensor_status make_multiplier(const struct fl_int8_layer *l, float weights_scale, int64_t k) {
    const struct fl_int8_layer_spec *s = &l->spec;
    struct int8_multiplier *m = l->multipliers + int8_slot(l, k);
    const float in_binary32 = s->x.scale * weights_scale;
    const double product = s->fully_connected && !s->per_channel && l->rule != INT8_ONCE_EVEN
                               ? (double)in_binary32
                               : (double)s->x.scale * (double)weights_scale,
                 real = product / (double)s->y.scale;
    m->factor = in_binary32 / s->y.scale;
    bool fits = real < 0x1p31;
    if (l->rule == INT8_ONCE_EVEN)
        fits = int8_exact_multiplier(real, m);
    else if (l->rule != INT8_BINARY32 && fits)
        int8_tflite_multiplier(real, ties_away(s, k), m);
    if (!fits)
        return fl_fail(
            TENSOR_E_ARGUMENT,
            "scales %g of the input, %g of the weights and %g of the output make a multiplier of %g, expected "
            "%s",
            (double)s->x.scale, (double)weights_scale, (double)s->y.scale, real,
            l->rule == INT8_ONCE_EVEN ? "2^-96 to 2^31" : "less than 2^31");
    return TENSOR_OK;
}

static tensor_status make_multipliers(struct fl_int8_layer *l, const float *weights_scale) {
    const struct fl_int8_layer_spec *s = &l->spec;
    for (int64_t k = 0; k < s->filters && !s->sums; k++) {
        const float scale = weights_scale[s->per_channel ? k : 0];
        const struct fl_int8_type weights = {scale, 0, false};
        TRY(int8_check_type("the weights", &weights));
        TRY(make_multiplier(l, scale, k));
    }
    if (s->residual && !int8_exact_multiplier((double)l->residual_type.scale / (double)s->y.scale, &l->residual))
        return fl_fail(TENSOR_E_ARGUMENT,
                       "scale %g of the residual for %g of the output: expected a ratio of 2^-96 to 2^31",
                       (double)l->residual_type.scale, (double)s->y.scale);
    return TENSOR_OK;
}

/* --- weights ------------------------------------------------------------------------------------------------------ */

static void copy_weights(struct fl_int8_layer *l, const void *from) {
    const struct fl_int8_layer_spec *s = &l->spec;
    for (int64_t k = 0; k < s->filters; k++)
        for (int64_t i = 0; i < l->length; i++)
            l->weight[k * l->length + i] =
                (int16_t)(int8_get(from, s->weights_unsigned,
                                   s->order == FL_INT8_KRSC ? k * l->length + i : i * s->filters + k) -
                          s->weights_zero);
}

/* Whether no sum, nor a part of one, nor what is added to it, leaves 32 bits, whatever the input is. */
static bool needs_wide(const struct fl_int8_layer *l) {
    const struct fl_int8_layer_spec *s = &l->spec;
    const int64_t below = s->x.zero - int8_least(s->x.is_unsigned), above = int8_most(s->x.is_unsigned) - s->x.zero;
    for (int64_t k = 0; k < s->filters; k++) {
        int64_t sum = 0;
        for (int64_t i = 0; i < l->length; i++)
            sum += l->weight[k * l->length + i] < 0 ? -l->weight[k * l->length + i] : l->weight[k * l->length + i];
        if (sum * (above > below ? above : below) + (l->bias[k] < 0 ? -(int64_t)l->bias[k] : l->bias[k]) > INT32_MAX)
            return true;
    }
    return false;
}

/* --- packing ------------------------------------------------------------------------------------------------------ */

/* Whether weights less their zero point are int8. */
static bool fit_bytes(const struct fl_int8_layer *l) {
    for (int64_t i = 0; i < l->spec.filters * l->length; i++)
        if (l->weight[i] < INT8_MIN || l->weight[i] > INT8_MAX)
            return false;
    return true;
}

tensor_status int8_choose_kernels(bool bytes, const struct int8_kernels **kernels) {
    enum fl_backend cap;
    TRY(fl_backend_cap(&cap));
    *kernels = cap == FL_REF ? NULL : &fl_int8_portable;
#ifdef FL_HAVE_AVX2
    if (cap >= FL_AVX2 && fl_backend_runs(FL_AVX2))
        *kernels = &fl_int8_avx2;
#endif
#ifdef FL_HAVE_AVX512
    if (bytes && cap >= FL_AVX512 && fl_backend_runs(FL_AVX512))
        *kernels = &fl_int8_avx512;
#else
    (void)bytes;
#endif
    return TENSOR_OK;
}

static tensor_status choose_kernels(struct fl_int8_layer *l) {
    const bool bytes = fit_bytes(l);
    enum fl_backend cap;
    TRY(fl_backend_cap(&cap));
    TRY(int8_choose_kernels(bytes, &l->kernels));
#ifdef FL_HAVE_AVX512_AMX
    if (bytes && cap >= FL_AVX512_AMX && !l->is_depthwise && !fl_cpu_tiles_refused())
        l->kernels = &fl_int8_avx512_amx;
#endif
    if (l->wide)
        l->kernels = NULL;
    return TENSOR_OK;
}

static void put_weight(const struct fl_int8_layer *l, int64_t k, int64_t run, int64_t i, int16_t weight) {
    const int64_t per_group = INT8_GROUP / l->kernels->element, slot = int8_slot(l, k);
    uint8_t *to = l->packed + slot / INT8_COLUMNS * l->panel_bytes +
                  ((run * l->groups + i / per_group) * INT8_COLUMNS + slot % INT8_COLUMNS) * INT8_GROUP +
                  i % per_group * l->kernels->element;
    if (l->kernels->element == 1)
        *to = (uint8_t)weight;
    else
        memcpy(to, &weight, sizeof weight);
}

static tensor_status pack_panels(struct fl_int8_layer *l) {
    const struct fl_int8_window *w = &l->spec.window;
    const int64_t per_group = INT8_GROUP / l->kernels->element, at_least = l->kernels->run_groups;
    const bool whole_lines = w->dilation_w == 1 || w->width == 1;
    l->runs = whole_lines ? w->height : w->height * w->width;
    l->run_elements = l->length / l->runs;
    l->groups = ((l->run_elements + per_group - 1) / per_group + at_least - 1) / at_least * at_least;
    l->panel_bytes = l->runs * l->groups * INT8_GROUP * INT8_COLUMNS;
    l->packed = fl_alloc_zero((size_t)(l->slots / INT8_COLUMNS * l->panel_bytes));
    if (!l->packed)
        return fl_fail(TENSOR_E_MEMORY, "no memory for packed weights");
    const int32_t zero = l->spec.x.zero - int8_least(l->spec.x.is_unsigned); /* of x as unsigned bytes */
    for (int64_t k = 0; k < l->spec.filters; k++) {
        int64_t sum = 0;
        for (int64_t i = 0; i < l->length; i++) {
            sum += l->weight[k * l->length + i];
            put_weight(l, k, i / l->run_elements, i % l->run_elements, l->weight[k * l->length + i]);
        }
        if (l->kernels->element == 1)
            l->start[int8_slot(l, k)] = int8_wrap(l->bias[k] - zero * sum);
    }
    return TENSOR_OK;
}

static tensor_status pack_depthwise(struct fl_int8_layer *l) {
    l->depthwise = fl_alloc_zero((size_t)(l->length * l->slots) * sizeof *l->depthwise);
    if (!l->depthwise)
        return fl_fail(TENSOR_E_MEMORY, "no memory for packed weights");
    for (int64_t k = 0; k < l->spec.filters; k++)
        for (int64_t i = 0; i < l->length; i++)
            l->depthwise[i * l->slots + k] = l->weight[k * l->length + i];
    return TENSOR_OK;
}

static tensor_status pack(struct fl_int8_layer *l, const struct fl_int8_layer_spec *s) {
    TRY(make_multipliers(l, s->weights_scale));
    if (s->bias)
        memcpy(l->bias, s->bias, (size_t)s->filters * sizeof *l->bias);
    copy_weights(l, s->weights);
    l->wide = l->rule == INT8_ONCE_EVEN && !s->sums && needs_wide(l);
    TRY(choose_kernels(l));
    for (int64_t k = 0; k < s->filters; k++) {
        const int64_t slot = int8_slot(l, k);
        l->start[slot] = l->bias[k];
        l->real[slot] = ldexp(l->multipliers[slot].coefficient, -l->multipliers[slot].shift);
        l->factor[slot] = l->rule == INT8_ONCE_EVEN ? (float)l->real[slot] : l->multipliers[slot].factor;
    }
    l->residual_real = s->residual ? ldexp(l->residual.coefficient, -l->residual.shift) : 0;
    l->beyond_double = l->residual_real > 0x1p12;
    if (!l->kernels)
        return TENSOR_OK;
    return l->is_depthwise ? pack_depthwise(l) : pack_panels(l);
}

enum { DEPTHWISE_FILTERS = 4 }; /* of a channel; more fill panels */

/* Slots of a depthwise layer are its filters, as if in one group. */
static void make_slots(struct fl_int8_layer *l) {
    const struct fl_int8_layer_spec *s = &l->spec;
    l->group_channels = s->channels / s->groups;
    l->group_filters = s->filters / s->groups;
    l->is_depthwise = l->group_channels == 1 && s->groups > 1 && l->group_filters <= DEPTHWISE_FILTERS;
    const int64_t filters = l->is_depthwise ? s->filters : l->group_filters;
    l->group_slots = l->is_depthwise ? l->group_filters : (filters + INT8_COLUMNS - 1) / INT8_COLUMNS * INT8_COLUMNS;
    l->slots =
        l->is_depthwise ? (filters + INT8_COLUMNS - 1) / INT8_COLUMNS * INT8_COLUMNS : l->group_slots * s->groups;
}

tensor_status fl_int8_pack(const struct fl_int8_layer_spec *spec, struct fl_int8_layer **result) {
    struct fl_int8_layer_spec checked = *spec;
    TRY(check_spec(&checked));
    struct fl_int8_layer *l = fl_alloc_zero(sizeof *l);
    if (!l)
        return fl_fail(TENSOR_E_MEMORY, "no memory for a layer");
    l->spec = checked;
    l->length = checked.window.height * checked.window.width * (checked.channels / checked.groups);
    l->rule = rule_of(&checked);
    if (checked.residual)
        l->residual_type = *checked.residual;
    l->low = checked.range.low - checked.y.zero;
    l->high = checked.range.high - checked.y.zero;
    make_slots(l);
    l->multipliers = fl_alloc_zero((size_t)l->slots * sizeof *l->multipliers);
    l->start = fl_alloc_zero((size_t)l->slots * sizeof *l->start);
    l->factor = fl_alloc_zero((size_t)l->slots * sizeof *l->factor);
    l->real = fl_alloc_zero((size_t)l->slots * sizeof *l->real);
    l->bias = fl_alloc_zero((size_t)checked.filters * sizeof *l->bias);
    l->weight = fl_alloc((size_t)(checked.filters * l->length) * sizeof *l->weight);
    const bool complete = l->multipliers && l->start && l->factor && l->real && l->bias && l->weight;
    const tensor_status status =
        complete ? pack(l, &checked)
                 : fl_fail(TENSOR_E_MEMORY, "no memory for %lld weights", (long long)(checked.filters * l->length));
    if (status) {
        fl_int8_free(l);
        return status;
    }
    *result = l;
    return TENSOR_OK;
}

void fl_int8_free(struct fl_int8_layer *layer) {
    if (!layer)
        return;
    fl_free(layer->multipliers);
    fl_free(layer->start);
    fl_free(layer->factor);
    fl_free(layer->real);
    fl_free(layer->bias);
    fl_free(layer->weight);
    fl_free(layer->packed);
    fl_free(layer->depthwise);
    fl_free(layer);
}
