/* what_if_measure.c - the numbers of each tensor, in the forward and backward passes of some batches, as other formats
 * would store them. */
#include "what_if/what_if.h"
#include "base/text.h"
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *what_if_role(int i) {
    static const char *const names[WHAT_IF_ROLES] = {"weight", "activation", "gradient", "weight gradient"};
    return names[i];
}

const char *what_if_roles(int i) {
    static const char *const names[WHAT_IF_ROLES] = {"weights", "activations", "gradients", "weight gradients"};
    return names[i];
}

/* --- one array ---------------------------------------------------------------------------------------------------- */

/* Sums have four parts, each in the order of the elements, in pairs of two, which every machine adds at a time: all get
 * the same bits. */
enum { LANES = 4, PAIRS = 2 };

struct scratch {
    float *x, *y;
    int64_t room;
};

typedef double pair __attribute__((vector_size(16)));
typedef int64_t masks __attribute__((vector_size(16))); /* of a lane all bits, or none */

static inline pair both(double x) {
    return (pair){x, x};
}

static inline pair choose(masks where, pair a, pair b) {
    return (pair)(((masks)a & where) | ((masks)b & ~where));
}

/* The numbers under one exponent, that of the largest magnitude, in mantissas of `bits` bits. Adding and subtracting
 * 1.5 * 2^52, where the last place of a double is 1, rounds |x| below 2^51 to the nearest integer, ties to even. */
static void take_bits(struct seen *t, int bits, const float *x, int64_t count, double largest, int64_t zeros) {
    const int e = bits - 2 - ilogb(largest);
    const pair scale = both(ldexp(1, e)), unit = both(ldexp(1, -e)), top = both(ldexp(1, bits - 1) - 1),
               shift = both(0x1.8p52);
    pair sum[PAIRS] = {{0}};
    masks zero[PAIRS] = {{0}};
    for (int64_t i = 0; i < count; i += LANES) /* the array is padded with zeros */
        for (int k = 0; k < PAIRS; k++) {
            const pair value = {x[i + 2 * k], x[i + 2 * k + 1]};
            pair m = value * scale + shift - shift;
            m = choose(m > top, top, m);
            m = choose(m < -top, -top, m);
            const pair d = m * unit - value;
            sum[k] += d * d;
            zero[k] -= m == 0; /* true: -1 */
        }
    const int64_t padding = (LANES - count % LANES) % LANES;
    t->bits_error2[bits - LEAST_BITS] += (sum[0][0] + sum[0][1]) + (sum[1][0] + sum[1][1]);
    t->bits_flushed[bits - LEAST_BITS] += zero[0][0] + zero[0][1] + zero[1][0] + zero[1][1] - padding - zeros;
}

static void take_effect(struct effect *e, const float *x, const float *y, int64_t count) {
    double sum = 0, worst = e->worst;
    int64_t flushed = 0, infinite = 0, at = -1;
    for (int64_t i = 0; i < count; i++) {
        const bool finite = isfinite(y[i]);
        const double d = finite ? fabs((double)y[i] - (double)x[i]) : INFINITY;
        sum += d * d;
        flushed += (y[i] == 0) & (x[i] != 0);
        infinite += !finite;
        if (d > worst) {
            worst = d;
            at = i;
        }
    }
    e->error2 += sum;
    e->flushed += flushed;
    e->infinite += infinite;
    if (at >= 0) {
        e->worst = worst;
        e->worst_from = x[at];
        e->worst_to = y[at];
    }
}

/* Reads the elements as binary32. NaN and Inf, which no format can make better, count and then become 0. */
static tensor_status read(struct seen *t, struct scratch *s, const tensor *from, int64_t *zeros, double *largest) {
    const int64_t count = tensor_count(from);
    tensor_description d;
    tensor *const single = tensor_new(FMT_FP32, TENSOR_SHAPE(count));
    tensor_status status = single ? tensor_store_f32(from, s->x, count) : tensor_error_status();
    if (!status)
        status = tensor_load_f32(single, s->x, count);
    if (!status)
        status = tensor_describe(&d, single);
    tensor_free(single);
    if (status)
        return status;
    for (int64_t i = 0; i < count && d.infinite + d.nan; i++)
        s->x[i] = isfinite(s->x[i]) ? s->x[i] : 0;
    for (int64_t i = count; i < count + LANES; i++)
        s->x[i] = 0;
    t->arrays++;
    t->elements += count;
    t->zeros += d.zeros;
    t->infinite += d.infinite;
    t->nan += d.nan;
    t->largest = fmax(t->largest, d.largest);
    t->smallest = t->smallest > 0 && !(d.smallest > 0 && d.smallest < t->smallest) ? t->smallest : d.smallest;
    t->power += d.l2 * d.l2;
    for (int i = 0; i < TENSOR_BINS; i++)
        t->bins[i] += d.bins[i];
    *zeros = d.zeros + d.infinite + d.nan;
    *largest = d.largest;
    return TENSOR_OK;
}

static tensor_status take(const struct what_if *w, struct seen *t, struct scratch *s, const tensor *from) {
    const int64_t count = tensor_count(from);
    int64_t zeros;
    double largest;
    tensor_status status = read(t, s, from, &zeros, &largest);
    if (status || !(largest > 0))
        return status;
    for (int i = 0; i < w->formats.count && !status; i++) {
        int64_t saturated;
        status = what_if_values(s->y, s->x, t->ndim, t->dim, t->summed, &w->formats.list[i], &saturated);
        if (!status)
            take_effect(&t->effects[i], s->x, s->y, count);
        t->effects[i].saturated += saturated;
    }
    for (int bits = LEAST_BITS; bits <= MOST_BITS && !status; bits++)
        take_bits(t, bits, s->x, count, largest, zeros);
    return status;
}

/* --- all tensors -------------------------------------------------------------------------------------------------- */

static bool is_chosen(const char *patterns, const char *name) {
    bool found = !patterns;
    for (const char *at = patterns; at && !found;) {
        const size_t length = strcspn(at, ",");
        char *const pattern = text_format("%.*s", (int)length, at);
        found = !fnmatch(pattern, name, 0);
        free(pattern);
        at = at[length] ? at + length + 1 : NULL;
    }
    return found;
}

static int role_number(const char *role) {
    for (int i = 0; i < WHAT_IF_ROLES; i++)
        if (!strcmp(role, what_if_role(i)))
            return i;
    return -1; /* the state of an optimiser, which no pass computes */
}

/* The dimension "in" of a layout such as "out, height, width, in"; -1: it has none. */
static int inputs(const char *layout) {
    for (int dim = 0;; dim++) {
        const size_t length = strcspn(layout, ",");
        if (length == 2 && !strncmp(layout, "in", 2))
            return dim;
        if (!layout[length])
            return -1;
        layout += length + 1 + strspn(layout + length + 1, " ");
    }
}

/* The dimension that the forward product sums over: the inputs of a weight, and the channels of what it multiplies,
 * the last one. A weight's gradient, "fc.weight.grad", has blocks as its weight has them. */
static int summed(const nn_graph *g, const nn_tensor_info *info, int ndim) {
    const bool is_weight = !strcmp(info->role, what_if_role(0)) || !strcmp(info->role, what_if_role(3));
    for (int i = 0; is_weight && i < nn_weight_count(g); i++) {
        const nn_weight_info weight = nn_weight_at(g, i);
        const size_t length = strlen(weight.name);
        if (!strncmp(info->name, weight.name, length) && (!info->name[length] || info->name[length] == '.')) {
            const int dim = inputs(weight.layout);
            return weight.ndim == ndim && dim >= 0 ? dim : ndim - 1;
        }
    }
    return ndim - 1;
}

/* The watch function of the network has what belongs to the step at hand. */
struct watched {
    struct what_if *w;
    struct scratch scratch;
    int *place; /* of each tensor of the network in w->tensors; -1: not chosen */
    int next;   /* where the last one was found, and a guess at the next */
    tensor_status status;
};

/* "conv1.shards" of "conv1.shard0", ...; of others the name itself. To be freed. */
static char *name_of(const struct what_if *w, const char *name) {
    const char *const dot = strrchr(name, '.');
    return w->trained.shards > 1 && dot && !strncmp(dot, ".shard", 6)
               ? text_format("%.*s.shards", (int)(dot - name), name)
               : text_format("%s", name);
}

static void begin_tensor(struct what_if *w, const nn_tensor_info *info, char *name) {
    struct seen *const t = &w->tensors[w->count++];
    t->ndim = tensor_ndim(info->t);
    for (int k = 0; k < t->ndim; k++)
        t->dim[k] = tensor_dim(info->t, k);
    t->summed = summed(w->g, info, t->ndim);
    t->name = name;
    t->role = info->role;
    t->role_number = role_number(info->role);
    t->format = tensor_format_name(tensor_format_of(info->t));
    t->shape = text_shape(t->ndim, t->dim);
    t->effects = text_alloc((size_t)w->formats.count, sizeof *t->effects);
}

/* Finds the tensor of the name and role, or begins it; frees the name, or takes it. */
static int place_of(struct what_if *w, const nn_tensor_info *info, char *name) {
    int at = 0;
    while (at < w->count && (strcmp(w->tensors[at].name, name) != 0 || strcmp(w->tensors[at].role, info->role) != 0))
        at++;
    if (at == w->count)
        begin_tensor(w, info, name);
    else
        free(name);
    return at;
}

static int begin_tensors(struct watched *all, struct what_if *w) {
    const int count = nn_tensor_count(w->g);
    int64_t largest = 1;
    all->w = w;
    all->place = text_alloc((size_t)count, sizeof *all->place);
    w->tensors = text_alloc((size_t)count, sizeof *w->tensors);
    for (int i = 0; i < count; i++) {
        const nn_tensor_info info = nn_tensor_at(w->g, i);
        char *const name = name_of(w, info.name);
        all->place[i] = -1;
        if (role_number(info.role) < 0 || !is_chosen(w->settings->trace_tensors, name)) {
            free(name);
            continue;
        }
        all->place[i] = place_of(w, &info, name);
        largest = tensor_count(info.t) > largest ? tensor_count(info.t) : largest;
    }
    if (!w->count)
        return text_usage("--tensors '%s': matches none of the %d tensors (%s, %s, ...)", w->settings->trace_tensors,
                          count, nn_tensor_at(w->g, 0).name, nn_tensor_at(w->g, count > 1).name);
    all->scratch.x = text_alloc((size_t)largest + LANES, sizeof(float));
    all->scratch.y = text_alloc((size_t)largest + LANES, sizeof(float));
    return STATUS_OK;
}

static void watch(const nn_tensor_info *info, void *context) {
    struct watched *const all = context;
    const int count = nn_tensor_count(all->w->g);
    int found = -1;
    for (int i = 0; i < count && found < 0; i++) {
        const int k = (all->next + i) % count;
        if (nn_tensor_at(all->w->g, k).t == info->t)
            found = k;
    }
    if (found < 0 || all->status)
        return;
    all->next = found;
    if (all->place[found] >= 0 && strcmp(info->role, what_if_role(0)) != 0)
        all->status = take(all->w, &all->w->tensors[all->place[found]], &all->scratch, info->t);
}

/* Weights are the same in every batch. */
static tensor_status take_weights(struct watched *all) {
    tensor_status status = TENSOR_OK;
    for (int i = 0; i < nn_tensor_count(all->w->g) && !status; i++) {
        const nn_tensor_info info = nn_tensor_at(all->w->g, i);
        if (all->place[i] >= 0 && !strcmp(info.role, what_if_role(0)))
            status = take(all->w, &all->w->tensors[all->place[i]], &all->scratch, info.t);
    }
    return status;
}

/* The passes of each shard of a batch, one after the other. */
static tensor_status pass(const struct what_if *w, const data_batch *batch) {
    const struct trained *const t = &w->trained;
    const int64_t samples = w->batch / t->shards, tokens = samples * t->context,
                  pixels = samples * t->height * t->width * t->channels;
    tensor_status status = TENSOR_OK;
    for (int64_t s = 0; s < t->shards && !status; s++) {
        const nn_batch part =
            batch->tokens ? (nn_batch){.tokens = batch->tokens + s * tokens, .labels = batch->targets + s * tokens}
                          : (nn_batch){.images = batch->images + s * pixels, .labels = batch->labels + s * samples};
        status = nn_forward(w->g, &part);
        if (!status)
            status = nn_backward(w->g);
    }
    return status;
}

/* Each batch is the step after the stored one: the state is restored before each. */
static tensor_status take_batches(struct watched *all, data_loader *loader) {
    struct what_if *const w = all->w;
    const size_t bytes = nn_state_bytes(w->g);
    void *const state = text_alloc(1, bytes);
    data_batch batch;
    tensor_status status = nn_state_save(state, bytes, w->g);
    if (!status)
        status = data_loader_start(loader, 0);
    for (int64_t i = 0; i < w->batches && !status; i++) {
        double loss;
        status = data_loader_next(&batch, loader);
        if (!status && i)
            status = nn_state_restore(w->g, state, bytes);
        if (!status)
            status = pass(w, &batch);
        if (!status)
            status = nn_loss(&loss, NULL, w->g);
        if (!status)
            w->loss += loss / (double)w->batches;
        status = all->status ? all->status : status;
    }
    free(state);
    return status;
}

static int take_all(struct watched *all, const data_set *set) {
    struct what_if *const w = all->w;
    const struct trained *const t = &w->trained;
    const data_loader_config how = {.batch = (int)w->batch,
                                    .seed = w->seed,
                                    .shuffle = true,
                                    .augment = t->augment,
                                    .drop_last = true,
                                    .mean = t->text ? NULL : t->mean,
                                    .deviation = t->text ? NULL : t->deviation,
                                    .context = (int)t->context};
    data_loader *const loader = data_loader_new(set, &how);
    nn_loss_scale scale;
    int status = STATUS_OK;
    if (loader && data_loader_batches(loader) < w->batches)
        status =
            text_usage("--batches %lld: the training part of the data has %lld of %lld %s", (long long)w->batches,
                       (long long)data_loader_batches(loader), (long long)w->batch, t->text ? "sequences" : "images");
    else if (!loader || nn_loss_scale_of(&scale, w->g) || nn_watch(w->g, watch, all) || take_weights(all) ||
             take_batches(all, loader))
        status = text_failed("%s", tensor_error());
    else
        w->loss_scale = scale.scale;
    data_loader_free(loader);
    return status;
}

int what_if_measure(struct what_if *w, const data_set *set) {
    struct watched all = {0};
    int status = begin_tensors(&all, w);
    if (status == STATUS_OK)
        status = take_all(&all, set);
    (void)nn_watch(w->g, NULL, NULL);
    free(all.scratch.x);
    free(all.scratch.y);
    free(all.place);
    return status;
}

void what_if_clear(struct what_if *w) {
    for (int i = 0; i < w->count; i++) {
        free(w->tensors[i].name);
        free(w->tensors[i].shape);
        free(w->tensors[i].effects);
    }
    free(w->tensors);
    what_if_formats_clear(&w->formats);
    nn_graph_free(w->g);
}

/* --- figures of a tensor ------------------------------------------------------------------------------------------ */

static double decibels(double power, double error2) {
    return !(power > 0) ? NAN : !(error2 > 0) ? INFINITY : isinf(error2) ? -INFINITY : 10 * log10(power / error2);
}

double effect_snr(const struct seen *t, const struct effect *e) {
    return decibels(t->power, e->error2);
}

double effect_relative(const struct seen *t, const struct effect *e) {
    return t->power > 0 ? sqrt(e->error2 / t->power) : NAN;
}

int64_t seen_nonzero(const struct seen *t) {
    return t->elements - t->zeros - t->infinite - t->nan;
}

double effect_flushed(const struct seen *t, const struct effect *e) {
    return seen_nonzero(t) ? (double)e->flushed / (double)seen_nonzero(t) : 0;
}

int seen_bits(const struct seen *t) {
    for (int i = 0; i < WIDTHS && t->power > 0; i++)
        if (decibels(t->power, t->bits_error2[i]) >= ENOUGH_DB &&
            (double)t->bits_flushed[i] <= ENOUGH_FLUSHED * (double)seen_nonzero(t))
            return i + LEAST_BITS;
    return 0;
}

double seen_octaves(const struct seen *t) {
    return t->largest > 0 ? log2(t->largest) - log2(t->smallest) : NAN;
}

double seen_worst(const struct what_if *w, const struct seen *t) {
    double worst = INFINITY;
    for (int i = 0; i < w->formats.count; i++)
        worst = fmin(worst, effect_snr(t, &t->effects[i])); /* NAN counts as nothing */
    return worst;
}

/* --- roles -------------------------------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

struct role_effect what_if_role_effect(const struct what_if *w, int role, int format) {
    struct role_effect r = {.median = NAN, .worst = NAN, .worst_tensor = -1};
    double *const all = text_alloc((size_t)w->count + 1, sizeof *all);
    for (int i = 0; i < w->count; i++) {
        const struct seen *const t = &w->tensors[i];
        const struct effect *const e = &t->effects[format];
        const double snr = effect_snr(t, e);
        if (t->role_number != role)
            continue;
        r.saturated += e->saturated;
        r.flushed += e->flushed;
        if (isnan(snr))
            continue;
        if (r.worst_tensor < 0 || snr < r.worst) {
            r.worst = snr;
            r.worst_tensor = i;
        }
        all[r.tensors++] = snr;
    }
    qsort(all, (size_t)r.tensors, sizeof *all, by_size);
    if (r.tensors)
        r.median = all[(r.tensors - 1) / 2]; /* of an even number the lower one of the two */
    free(all);
    return r;
}

struct role_sum what_if_role_sum(const struct what_if *w, int role) {
    struct role_sum r = {0};
    for (int i = 0; i < w->count; i++) {
        const struct seen *const t = &w->tensors[i];
        if (t->role_number != role)
            continue;
        r.tensors++;
        r.elements += t->elements;
        r.zeros += t->zeros;
        r.nonfinite += t->infinite + t->nan;
    }
    return r;
}
