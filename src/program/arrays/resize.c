/* resize.c - arrays at other sizes: each element of the result lies at a coordinate of the operand, along each
 * dimension by itself, and takes the nearest element there or weighs two or four.
 *
 * Coordinates are computed in double. Where sizes are stated, scale means result / operand exactly, so that no
 * coordinate misses a whole number by a rounding. */
#include "program/arrays/arrays.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/base/parallel.h"
#include <math.h>
#include <string.h>

enum { TAPS = 4 };

enum coordinates {
    HALF_PIXEL,
    HALF_PIXEL_SYMMETRIC,
    PYTORCH_HALF_PIXEL,
    ALIGN_CORNERS,
    ASYMMETRIC,
    TF_HALF_PIXEL_FOR_NN,
    TF_CROP_AND_RESIZE
};
enum mode { NEAREST, LINEAR, CUBIC };
enum nearest { ROUND_PREFER_FLOOR, ROUND_PREFER_CEIL, FLOOR, CEIL };

/* One dimension. */
struct side {
    bool resized;       /* false: as it was */
    int64_t from, to;   /* elements of the operand, of the result */
    double length;      /* of the result before it was cut to a whole number */
    double over, under; /* scale = over / under */
    double begin, end;  /* of the region, for TF_CROP_AND_RESIZE */
};

struct resize {
    enum coordinates coordinates;
    enum mode mode;
    enum nearest nearest;
    bool excludes; /* weights outside the operand are 0 */
    double cubic, filler;
    int ndim;
    struct side side[FL_ARRAY_DIMS];
};

static tensor_status read_word(const struct fl_net_node *node, const char *name, int count, const char *const *words,
                               int *word) {
    const char *const given = fl_net_string(node, name, words[0]);
    for (int i = 0; i < count; i++)
        if (!strcmp(given, words[i])) {
            *word = i;
            return TENSOR_OK;
        }
    return fl_fail(TENSOR_E_DATA, "%s is \"%s\", expected %s or another word of ONNX", name, given, words[0]);
}

/* The dimensions that scales, sizes and the region are of, in their order. */
static tensor_status read_sides(const struct fl_arrays *a, int *axes, int *count) {
    const struct fl_net_attribute *const given = fl_net_find(a->node, "axes");
    const int ndim = a->in[0]->ndim;
    unsigned seen = 0;
    *count = given ? given->count : ndim;
    if (*count > ndim)
        return fl_fail(TENSOR_E_DATA, "%d axes, expected at most %d", *count, ndim);
    for (int i = 0; i < *count; i++) {
        axes[i] = i;
        if (given)
            TRY(fl_axis(&axes[i], given->ints[i], ndim));
        if (seen >> axes[i] & 1)
            return fl_fail(TENSOR_E_DATA, "axis %d is given twice", axes[i]);
        seen |= 1u << axes[i];
    }
    return TENSOR_OK;
}

static tensor_status read_scales(struct resize *r, const struct fl_array *scales, const int *axes, int count) {
    TRY(fl_known(scales, "scales"));
    TRY(fl_want_type(scales, TENSOR_TYPE_F32, "scales"));
    TRY(fl_want_numbers(scales, count, "scales"));
    for (int i = 0; i < count; i++) {
        struct side *const s = &r->side[axes[i]];
        const double scale = fl_array_number(scales, i);
        const double size = (double)s->from * (r->coordinates == TF_CROP_AND_RESIZE ? s->end - s->begin : 1);
        if (!(scale > 0) || scale > 0x1p30)
            return fl_fail(TENSOR_E_DATA, "scale %g of dimension %d, expected more than 0 and at most 2^30", scale,
                           axes[i]);
        s->over = scale;
        s->under = 1;
        s->length = scale * (double)s->from;
        const float whole = floorf((float)size * (float)scale);
        if (!(whole >= 0 && whole <= 0x1p37f))
            return fl_fail(TENSOR_E_SHAPE, "dimension %d of a result is %g, expected 0 to 2^37", axes[i],
                           (double)whole);
        s->to = (int64_t)whole;
        s->resized = scale != 1 || r->coordinates == TF_CROP_AND_RESIZE;
    }
    return TENSOR_OK;
}

static tensor_status read_sizes(struct resize *r, const struct fl_net_node *node, const struct fl_array *sizes,
                                const int *axes, int count) {
    static const char *const words[] = {"stretch", "not_larger", "not_smaller"};
    double best = 0;
    int policy = 0;
    TRY(read_word(node, "keep_aspect_ratio_policy", 3, words, &policy));
    TRY(fl_known(sizes, "sizes"));
    TRY(fl_want_integer(sizes, "sizes"));
    TRY(fl_want_numbers(sizes, count, "sizes"));
    for (int i = 0; i < count; i++) {
        struct side *const s = &r->side[axes[i]];
        s->to = fl_array_integer(sizes, i);
        if (s->to < 0 || s->to > (int64_t)1 << 37)
            return fl_fail(TENSOR_E_DATA, "size %lld of dimension %d, expected 0 to 2^37", (long long)s->to, axes[i]);
        s->over = (double)s->to;
        s->under = (double)s->from;
        s->length = (double)s->to;
        const double scale = s->over / s->under;
        if (s->from)
            best = best == 0 || (policy == 1 ? scale < best : scale > best) ? scale : best;
    }
    for (int i = 0; i < count; i++) {
        struct side *const s = &r->side[axes[i]];
        if (policy && s->from) {
            s->over = best;
            s->under = 1;
            s->length = best * (double)s->from;
            s->to = (int64_t)floor(s->length + 0.5);
        }
        s->resized = s->to != s->from || r->coordinates == TF_CROP_AND_RESIZE;
    }
    return TENSOR_OK;
}

static tensor_status read_resize(struct resize *r, const struct fl_arrays *a) {
    static const char *const modes[] = {"nearest", "linear", "cubic"};
    static const char *const nearests[] = {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"};
    static const char *const coordinates[] = {"half_pixel",        "half_pixel_symmetric", "pytorch_half_pixel",
                                              "align_corners",     "asymmetric",           "tf_half_pixel_for_nn",
                                              "tf_crop_and_resize"};
    const struct fl_array *const x = a->in[0], *const region = fl_operand(a, 1),
                                 *scales = fl_operand(a, 2), *const sizes = fl_operand(a, 3);
    int word[3] = {0}, axes[FL_ARRAY_DIMS], count = 0;
    TRY(read_word(a->node, "mode", 3, modes, &word[0]));
    TRY(read_word(a->node, "nearest_mode", 4, nearests, &word[1]));
    TRY(read_word(a->node, "coordinate_transformation_mode", 7, coordinates, &word[2]));
    if (fl_net_int(a->node, "antialias", 0) && word[0] != NEAREST)
        return fl_fail(TENSOR_E_UNSUPPORTED, "antialias is 1, expected 0");
    *r = (struct resize){.mode = (enum mode)word[0],
                         .nearest = (enum nearest)word[1],
                         .coordinates = (enum coordinates)word[2],
                         .excludes = fl_net_int(a->node, "exclude_outside", 0) != 0,
                         .cubic = fl_net_float(a->node, "cubic_coeff_a", -0.75f),
                         .filler = fl_net_float(a->node, "extrapolation_value", 0),
                         .ndim = x->ndim};
    for (int d = 0; d < x->ndim; d++)
        r->side[d] = (struct side){
            .from = x->dim[d], .to = x->dim[d], .length = (double)x->dim[d], .over = 1, .under = 1, .end = 1};
    TRY(read_sides(a, axes, &count));
    if (r->coordinates == TF_CROP_AND_RESIZE) {
        if (!region)
            return fl_fail(TENSOR_E_DATA, "tf_crop_and_resize wants a region, which is not given");
        TRY(fl_known(region, "region"));
        TRY(fl_want_type(region, TENSOR_TYPE_F32, "the region"));
        TRY(fl_want_numbers(region, 2 * (int64_t)count, "the region"));
        for (int i = 0; i < count; i++) {
            r->side[axes[i]].begin = fl_array_number(region, i);
            r->side[axes[i]].end = fl_array_number(region, count + i);
        }
    }
    if (scales && sizes && !scales->count)
        scales = NULL;
    if (!scales == !sizes)
        return fl_fail(TENSOR_E_DATA, "%s scales and sizes are given, expected one of them",
                       scales ? "both" : "neither");
    TRY(scales ? read_scales(r, scales, axes, count) : read_sizes(r, a->node, sizes, axes, count));
    for (int d = 0; d < r->ndim; d++)
        if (!r->side[d].from && r->side[d].to)
            return fl_fail(TENSOR_E_SHAPE, "dimension %d has no element, expected one to make %lld of", d,
                           (long long)r->side[d].to);
    return TENSOR_OK;
}

tensor_status fl_shape_resize(const struct fl_arrays *a) {
    struct resize r;
    int64_t dim[FL_ARRAY_DIMS];
    TRY(read_resize(&r, a));
    for (int d = 0; d < r.ndim; d++)
        dim[d] = r.side[d].to;
    return fl_shape_set(a->out[0], a->in[0]->type, r.ndim, dim);
}

/* --- coordinates -------------------------------------------------------------------------------------------------- */

static double coordinate(const struct resize *r, const struct side *s, int64_t index) {
    const double x = (double)index, most = (double)s->from - 1;
    switch (r->coordinates) {
    case PYTORCH_HALF_PIXEL:
        if (s->to == 1)
            return 0;
        break;
    case HALF_PIXEL_SYMMETRIC: {
        const double centre = (double)s->from / 2, offset = centre * (1 - (double)s->to / s->length);
        return offset + (x + 0.5) * s->under / s->over - 0.5;
    }
    case ALIGN_CORNERS:
        return s->length == 1 ? 0 : x * most / (s->length - 1);
    case ASYMMETRIC:
        return x * s->under / s->over;
    case TF_HALF_PIXEL_FOR_NN:
        return (x + 0.5) * s->under / s->over;
    case TF_CROP_AND_RESIZE:
        return s->to > 1 ? s->begin * most + x * (s->end - s->begin) * most / (s->length - 1)
                         : 0.5 * (s->begin + s->end) * most;
    default:
        break;
    }
    return (x + 0.5) * s->under / s->over - 0.5;
}

static bool is_outside(const struct resize *r, const struct side *s, double x) {
    return r->coordinates == TF_CROP_AND_RESIZE && s->resized && !(x >= 0 && x <= (double)s->from - 1);
}

static int64_t clamped(double x, int64_t size) {
    return x >= (double)size ? size - 1 : x >= 0 ? (int64_t)x : 0;
}

static int64_t nearest_to(enum nearest how, double x, int64_t size) {
    const double whole = how == ROUND_PREFER_FLOOR  ? ceil(x - 0.5)
                         : how == ROUND_PREFER_CEIL ? floor(x + 0.5)
                         : how == FLOOR             ? floor(x)
                                                    : ceil(x);
    return clamped(whole, size);
}

static tensor_status compute_nearest(const struct resize *r, const struct fl_array *x, struct fl_array *y) {
    double number = r->filler;
    const struct fl_array filler = {.type = TENSOR_TYPE_F64, .count = 1, .data = &number};
    struct fl_pick pick;
    int64_t stride[FL_ARRAY_DIMS];
    TRY(fl_pick_new(&pick, y->ndim, y->dim));
    fl_strides(x, stride);
    for (int d = 0; d < y->ndim; d++) {
        const struct side *const s = &r->side[d];
        for (int64_t i = 0; i < s->to; i++) {
            const double at = s->resized ? coordinate(r, s, i) : (double)i;
            pick.from[d][i] = is_outside(r, s, at) ? -1 : nearest_to(r->nearest, at, s->from) * stride[d];
        }
    }
    fl_pick_copy(&pick, y, x, r->coordinates == TF_CROP_AND_RESIZE ? &filler : NULL);
    fl_pick_free(&pick);
    return TENSOR_OK;
}

/* --- weights ------------------------------------------------------------------------------------------------------ */

/* What elements of one dimension are made of. */
struct tap {
    int count; /* 0: the filler */
    int64_t from[TAPS];
    double weight[TAPS];
};

/* The weights of 2 or 4 neighbours around a place `part` beyond the second of 4, or the first of 2. */
static int weigh(const struct resize *r, double part, double *weight) {
    const double a = r->cubic;
    if (r->mode == LINEAR) {
        weight[0] = 1 - part;
        weight[1] = part;
        return 2;
    }
    for (int i = 0; i < TAPS; i++) {
        const double t = fabs(part - (i - 1));
        weight[i] = t <= 1 ? ((a + 2) * t - (a + 3)) * t * t + 1 : ((a * t - 5 * a) * t + 8 * a) * t - 4 * a;
    }
    return TAPS;
}

static void make_tap(const struct resize *r, const struct side *s, int64_t index, struct tap *tap) {
    const double x = coordinate(r, s, index), below = floor(x);
    double weight[TAPS], sum = 0;
    *tap = (struct tap){.count = 0};
    if (is_outside(r, s, x))
        return;
    const int count = weigh(r, x - below, weight);
    for (int i = 0; i < count; i++) {
        const double at = below + i - (count == TAPS ? 1 : 0);
        const bool outside = at < 0 || at >= (double)s->from;
        if (weight[i] == 0 || (outside && r->excludes))
            continue;
        tap->from[tap->count] = clamped(at, s->from);
        tap->weight[tap->count++] = weight[i];
        sum += weight[i];
    }
    for (int i = 0; i < tap->count && r->excludes; i++)
        tap->weight[i] /= sum;
}

struct pass {
    const double *x;
    double *y;
    const struct tap *taps;
    int64_t from, to, inner, rows, rows_of_part;
    double filler;
};

/* Rows of `inner` elements. */
static void pass_part(void *context, int part, int worker) {
    const struct pass *const p = context;
    (void)worker;
    for (int64_t row = part * p->rows_of_part; row < (part + 1) * p->rows_of_part && row < p->rows; row++) {
        const struct tap *const tap = &p->taps[row % p->to];
        double *const y = p->y + row * p->inner;
        for (int64_t i = 0; i < p->inner; i++)
            y[i] = tap->count ? 0 : p->filler;
        for (int t = 0; t < tap->count; t++) {
            const double *const x = p->x + (row / p->to * p->from + tap->from[t]) * p->inner, w = tap->weight[t];
            for (int64_t i = 0; i < p->inner; i++)
                y[i] += w * x[i];
        }
    }
}

/* One dimension after the other, the last first. */
static tensor_status compute_weighed(const struct resize *r, const struct fl_array *x, struct fl_array *y) {
    double *now = NULL, *next = NULL;
    struct tap *taps = NULL;
    tensor_status status = fl_memory(&now, x->count, sizeof *now);
    if (!status)
        fl_load_numbers(now, x, 0, 1, x->count);
    int64_t inner = 1, outer = x->count;
    for (int d = r->ndim - 1; d >= 0 && !status; d--) {
        const struct side *const s = &r->side[d];
        outer /= s->from;
        if (s->resized) {
            struct pass p = {.from = s->from, .to = s->to, .inner = inner, .rows = outer * s->to, .filler = r->filler};
            status = fl_memory(&taps, s->to, sizeof *taps);
            if (!status)
                status = fl_memory(&next, p.rows * inner, sizeof *next);
            if (!status) {
                for (int64_t i = 0; i < s->to; i++)
                    make_tap(r, s, i, &taps[i]);
                p.x = now;
                p.y = next;
                p.taps = taps;
                p.rows_of_part = (1 << 14) / (inner + 1) + 1 + p.rows / (1 << 30);
                fl_parallel((int)((p.rows + p.rows_of_part - 1) / p.rows_of_part), pass_part, &p);
                fl_free(now);
                now = next;
                next = NULL;
            }
            fl_free(taps);
            taps = NULL;
        }
        inner *= s->to;
    }
    if (!status)
        fl_store_numbers(y, 0, 1, now, y->count);
    fl_free(now);
    return status;
}

tensor_status fl_compute_resize(const struct fl_arrays *a) {
    struct resize r;
    TRY(read_resize(&r, a));
    if (!a->out[0] || !a->out[0]->count)
        return TENSOR_OK;
    return (r.mode == NEAREST ? compute_nearest : compute_weighed)(&r, a->in[0], a->out[0]);
}
