/* nn_ranks.c - what the ranks of a training exchange in a step. */
#include "nn/step/nn_ranks.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/queue/part_write.h"
#include "core/values/tensor_state.h"
#include "flexlab/version.h"
#include "group/group.h"
#include "nn/shards/nn_shards.h"
#include "nn/step/nn_partial.h"
#include "nn/step/nn_step.h"
#include <stdio.h>

/* A parameter among the elements of all, one after the other. */
struct range {
    struct fl_parameter *parameter;
    int64_t at, count; /* its elements */
    int bytes;         /* of an element */
};

struct fl_ranks {
    int size, rank, first, own, shards;
    struct range *ranges;
    int count;        /* of parameters */
    int64_t elements; /* of all */
    int64_t moments;  /* of a shard: numbers that are averaged */
    char *block;      /* what each shard tells, shard by shard */
    int64_t block_bytes;
    char *send, *receive, *result; /* gradients of own shards for others; of theirs; the sums, packed */
    struct fl_piece *to, *from;
    struct fl_part_write *writes;
    struct fl_view *terms;      /* of a parameter, shard by shard */
    int32_t *exponents;         /* of all shards of a parameter */
    int32_t *sum_exponents;     /* of the sums of all ranks */
    struct fl_partial *partial; /* how each parameter is sent */
    double *doubles;            /* the sums of all ranks in this one's part */
    struct part *parts;         /* of all ranks and parameters: what they tell of their parts of a write */
    char *slots;
    int64_t slot_bytes; /* of a shard */
    bool flagged;       /* the slots brought last have an overflow, a NaN or Inf */
};

/* What a rank tells of its part of a gradient. */
struct part {
    double maximum;
    struct fl_stats stats;
};

/* What a shard tells: followed by the exponents of its gradients and its moments. */
struct told {
    double loss;
    int32_t correct, flagged;
};

tensor_status fl_ranks_check(const nn_config *c) {
    const int size = nn_group_size(c->group), shards = c->shards ? c->shards : 1;
    return shards % size == 0
               ? TENSOR_OK
               : fl_fail(TENSOR_E_ARGUMENT, "shards: %d, expected a multiple of the %d ranks", shards, size);
}

/* --- ranges ------------------------------------------------------------------------------------------------------- */

enum { LINE = 64 /* elements: parameters, and the parts of ranks, begin at multiples */ };

static int64_t whole_lines(int64_t elements) {
    return (elements + LINE - 1) / LINE * LINE;
}

/* The first of the elements of which rank r forms the sums, among those of all parameters. */
static int64_t first_of(const struct fl_ranks *k, int r) {
    const int64_t lines = k->elements / LINE;
    return (lines / k->size * r + lines % k->size * r / k->size) * LINE;
}

/* The elements of a parameter among those, from its own element *first on. */
static int64_t part_of(const struct fl_ranks *k, const struct range *range, int r, int64_t *first) {
    const int64_t begin = first_of(k, r), end = first_of(k, r + 1), from = begin > range->at ? begin : range->at,
                  to = end < range->at + range->count ? end : range->at + range->count;
    *first = from - range->at;
    return to > from ? to - from : 0;
}

/* The bytes of a rank's part of a parameter, and those that it takes among others. */
static int64_t bytes_of_part(const struct fl_ranks *k, const struct range *range, int r, int64_t *first) {
    return part_of(k, range, r, first) * range->bytes;
}
static int64_t room_of(int64_t bytes) {
    return (bytes + 7) / 8 * 8;
}

/* The room of all of a rank's parts in one shard. */
static int64_t bytes_of(const struct fl_ranks *k, int r) {
    int64_t bytes = 0, first;
    for (int i = 0; i < k->count; i++)
        bytes += room_of(bytes_of_part(k, &k->ranges[i], r, &first));
    return bytes;
}

/* The elements of this rank's parts. */
static int64_t elements_of_rank(const struct fl_ranks *k) {
    int64_t elements = 0, first;
    for (int i = 0; i < k->count; i++)
        elements += part_of(k, &k->ranges[i], k->rank, &first);
    return elements;
}

/* --- life --------------------------------------------------------------------------------------------------------- */

static void list_parameters(nn_graph *g, struct fl_ranks *k) {
    for (int i = 0; i < g->count; i++)
        for (int p = 0; p < g->nodes[i].parameters; p++) {
            struct fl_parameter *parameter = &g->nodes[i].parameter[p];
            k->ranges[k->count++] = (struct range){parameter, k->elements, tensor_count(parameter->g),
                                                   (int)tensor_format_bytes(tensor_format_of(parameter->g))};
            k->elements += whole_lines(tensor_count(parameter->g));
        }
}

static void count_moments(const nn_graph *g, struct fl_ranks *k) {
    for (int i = 0; i < g->count; i++)
        for (int s = 0; s < g->nodes[i].states; s++)
            if (g->nodes[i].state[s].averaged)
                k->moments += fl_shape_count(&g->nodes[i].state[s].shape);
}

/* Calls a function for every tensor of a shard that has a slot of its own. */
static tensor_status each_slot(const nn_graph *g, int shard, tensor_status (*call)(tensor *t, void *context),
                               void *context) {
    for (int i = 0; i < g->value_count; i++)
        if (fl_is_stored(g, i))
            TRY(call(fl_shard_value(g, shard, i), context));
    for (int i = 0; i < fl_shard_gradients(g); i++)
        TRY(call(fl_shard_gradient(g, shard, i), context));
    return TENSOR_OK;
}

static tensor_status add_slot(tensor *t, void *bytes) {
    *(int64_t *)bytes += (int64_t)fl_state_bytes(t, false);
    return TENSOR_OK;
}

static uint64_t mix(uint64_t hash, const void *bytes, size_t n) { /* FNV-1a */
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
    return hash;
}

/* All tensors by name, format and shape. */
static uint64_t hash_of_tensors(const nn_graph *g) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (int i = 0; i < g->info_count; i++) {
        const nn_tensor_info *info = &g->infos[i];
        const char *format = tensor_format_name(tensor_format_of(info->t));
        hash = mix(mix(hash, info->name, strlen(info->name) + 1), format, strlen(format) + 1);
        for (int d = 0; d < tensor_ndim(info->t); d++) {
            const int64_t size = tensor_dim(info->t, d);
            hash = mix(hash, &size, sizeof size);
        }
    }
    return hash;
}

static tensor_status agree(const nn_graph *g) {
    char text[700], scale[FL_SCALE_TEXT];
    const uint16_t order = 1;
    const struct fl_optimiser *o = &g->optimiser;
    fl_loss_scale_text(g, scale);
    snprintf(text, sizeof text,
             "flexlab-%s %s-endian batch-%d shards-%d seed-%llu format-%s tensors-%016llx optimiser-%d momentum-%.9g "
             "betas-%.9g,%.9g epsilon-%.9g decay-%.9g,%d clip-%.9g,%.9g nesterov-%d narrow-%d loss-%d,%.9g,%.9g,%d "
             "scale-%s",
             FLEXLAB_VERSION_STRING, *(const unsigned char *)&order ? "little" : "big", fl_whole_batch(g), g->shards,
             (unsigned long long)g->seed, g->variant->name, (unsigned long long)hash_of_tensors(g), (int)o->how.kind,
             (double)o->how.momentum, (double)o->how.beta1, (double)o->how.beta2, (double)o->how.epsilon,
             (double)o->how.weight_decay, o->decays_all, (double)o->clip_value, (double)o->how.clip_norm, o->nesterov,
             o->narrow, (int)g->objective.kind, (double)g->objective.smoothing, (double)g->objective.delta,
             g->objective.ignores ? g->objective.ignored : -1, scale);
    return fl_group_agree(g->group, "the network", text);
}

tensor_status fl_ranks_begin(nn_graph *g) {
    const int size = nn_group_size(g->group);
    if (size == 1)
        return TENSOR_OK;
    TRY(agree(g));
    struct fl_ranks *k = g->ranks = fl_alloc_zero(sizeof *k);
    if (!k || !(k->ranges = fl_alloc_zero((size_t)fl_shard_gradients(g) * sizeof *k->ranges)))
        return fl_fail(TENSOR_E_MEMORY, "graph: no memory for %d ranks", size);
    k->size = size;
    k->rank = nn_group_rank(g->group);
    k->shards = g->shards;
    k->own = g->shards / size;
    k->first = k->rank * k->own;
    list_parameters(g, k);
    count_moments(g, k);
    TRY(each_slot(g, 0, add_slot, &k->slot_bytes));
    k->block_bytes = (int64_t)(sizeof(struct told) + fl_line_bytes((size_t)k->count * sizeof(int32_t))) +
                     k->moments * (int64_t)sizeof(double);
    int64_t all = 0;
    for (int r = 0; r < size; r++)
        all += bytes_of(k, r);
    k->block = fl_alloc_zero((size_t)(k->block_bytes * k->shards));
    k->send = fl_alloc_zero((size_t)(all * k->own + 1));
    k->receive = fl_alloc_zero((size_t)(bytes_of(k, k->rank) * k->shards + 1));
    k->result = fl_alloc_zero((size_t)all + 1);
    k->to = fl_alloc_zero((size_t)size * sizeof *k->to);
    k->from = fl_alloc_zero((size_t)size * sizeof *k->from);
    k->writes = fl_alloc_zero((size_t)k->count * sizeof *k->writes);
    k->terms = fl_alloc_zero((size_t)k->count * (size_t)k->shards * sizeof *k->terms);
    k->exponents = fl_alloc_zero((size_t)k->count * (size_t)k->shards * sizeof *k->exponents);
    k->sum_exponents = fl_alloc_zero((size_t)k->count * (size_t)size * sizeof *k->sum_exponents);
    k->partial = fl_alloc_zero((size_t)k->count * sizeof *k->partial);
    k->doubles = fl_alloc(k->own > 1 ? (size_t)(elements_of_rank(k) * size + 1) * sizeof *k->doubles : 1);
    k->parts = fl_alloc_zero((size_t)k->count * (size_t)size * sizeof *k->parts);
    k->slots = fl_alloc_zero((size_t)(k->slot_bytes * k->shards));
    return k->block && k->send && k->receive && k->result && k->to && k->from && k->writes && k->terms &&
                   k->exponents && k->sum_exponents && k->partial && k->doubles && k->parts && k->slots
               ? TENSOR_OK
               : fl_fail(TENSOR_E_MEMORY, "graph: no memory for what %d ranks exchange", size);
}

void fl_ranks_free(nn_graph *g) {
    struct fl_ranks *k = g->ranks;
    if (!k)
        return;
    void *const all[] = {k->sum_exponents, k->partial, k->doubles,   k->ranges, k->block,
                         k->send,          k->receive, k->result,    k->to,     k->from,
                         k->writes,        k->terms,   k->exponents, k->parts,  k->slots};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        fl_free(all[i]);
    fl_free(k);
    g->ranks = NULL;
}

/* --- slots -------------------------------------------------------------------------------------------------------- */

static tensor_status get_slot(tensor *t, void *context) {
    char **at = context;
    TRY(fl_state_get(t, false, *at));
    *at += fl_state_bytes(t, false);
    return TENSOR_OK;
}

static tensor_status set_slot(tensor *t, void *context) {
    const char **at = context;
    TRY(fl_state_set(t, false, *at));
    *at += fl_state_bytes(t, false);
    return TENSOR_OK;
}

tensor_status fl_ranks_bring(const nn_graph *g) {
    struct fl_ranks *k = g->ranks;
    if (!k)
        return TENSOR_OK;
    for (int s = k->first; s < k->first + k->own; s++) {
        char *at = k->slots + s * k->slot_bytes;
        TRY(each_slot(g, s, get_slot, &at));
    }
    TRY(fl_group_share(g->group, "exponents and statistics", k->slots, k->slot_bytes * k->own));
    for (int s = 0; s < k->shards; s++) {
        const char *at = k->slots + s * k->slot_bytes;
        if (!fl_is_own_shard(g, s))
            TRY(each_slot(g, s, set_slot, &at));
    }
    return TENSOR_OK;
}

void fl_ranks_forget(nn_graph *g) {
    if (g->ranks)
        g->ranks->flagged = true; /* so that the next step brings those of its own */
}

/* Whether a write overflowed or was not finite: then the step needs the slots of all shards. */
static tensor_status look(tensor *t, void *found) {
    const struct fl_slot *slot = fl_slot_then(NULL, t);
    const bool shared = tensor_format_is_shared(tensor_format_of(t));
    *(bool *)found = *(bool *)found || slot->last.nonfinite > 0 ||
                     (shared && slot->last.saturated > 0 && slot->e == slot->autoflex.e_min);
    return TENSOR_OK;
}

/* --- what shards tell --------------------------------------------------------------------------------------------- */

static struct told *told_by(const struct fl_ranks *k, int shard) {
    return (struct told *)(void *)(k->block + shard * k->block_bytes);
}

static int32_t *exponents_of(const struct fl_ranks *k, int shard) {
    return (int32_t *)(void *)(told_by(k, shard) + 1);
}

static double *moments_of(const struct fl_ranks *k, int shard) {
    return (double *)(void *)((char *)exponents_of(k, shard) + fl_line_bytes((size_t)k->count * sizeof(int32_t)));
}

/* Copies the moments of a shard to what it tells, or from there. */
static tensor_status move_moments(nn_graph *g, int shard, bool tell) {
    double *at = moments_of(g->ranks, shard);
    int number = 0;
    for (int i = 0; i < g->count; i++)
        for (int s = 0; s < g->nodes[i].states; s++) {
            const struct fl_state *state = &g->nodes[i].state[s];
            if (state->lasts)
                continue;
            tensor *t = fl_shard_state(g, shard, number++);
            if (!state->averaged)
                continue;
            TRY(tell ? tensor_store_f64(t, at, tensor_count(t)) : tensor_load_f64(t, at, tensor_count(t)));
            at += tensor_count(t);
        }
    return TENSOR_OK;
}

static tensor_status tell(nn_graph *g, int shard) {
    struct fl_ranks *k = g->ranks;
    struct told *told = told_by(k, shard);
    bool flagged = false;
    TRY(fl_shard_loss(g, shard, &told->loss, &told->correct));
    TRY(each_slot(g, shard, look, &flagged));
    told->flagged = flagged;
    for (int i = 0; i < k->count; i++) {
        const tensor *t = fl_shard_gradient(g, shard, i);
        exponents_of(k, shard)[i] = tensor_format_is_shared(tensor_format_of(t)) ? tensor_exponent(t) : 0;
    }
    return move_moments(g, shard, true);
}

static tensor_status share_told(nn_graph *g, const char *what) {
    struct fl_ranks *k = g->ranks;
    bool flagged = false;
    for (int s = k->first; s < k->first + k->own; s++)
        TRY(tell(g, s));
    TRY(fl_group_share(g->group, what, k->block, k->block_bytes * k->own));
    for (int s = 0; s < k->shards; s++) {
        flagged = flagged || told_by(k, s)->flagged;
        if (fl_is_own_shard(g, s))
            continue;
        fl_shard_tell(g, s, told_by(k, s)->loss, told_by(k, s)->correct);
        TRY(move_moments(g, s, false));
    }
    const bool before = k->flagged;
    k->flagged = flagged;
    return flagged || before ? fl_ranks_bring(g) : TENSOR_OK;
}

/* --- gradients ---------------------------------------------------------------------------------------------------- */

static char *elements_of(const nn_graph *g, int shard, int parameter) {
    return tensor_data(fl_shard_gradient(g, shard, parameter));
}

/* The exponents of all shards of a parameter, and how its gradients are sent. */
static void plan_exchange(const nn_graph *g) {
    struct fl_ranks *k = g->ranks;
    for (int i = 0; i < k->count; i++) {
        int32_t *e = &k->exponents[(int64_t)i * k->shards];
        for (int s = 0; s < k->shards; s++)
            e[s] = exponents_of(k, s)[i];
        k->partial[i] =
            fl_partial_plan(fl_format_of(tensor_format_of(k->ranges[i].parameter->g)), e, k->shards, k->own);
    }
}

/* The bytes that a rank sends of n elements of a parameter, of all of its shards. */
static int64_t sent_of(const struct fl_ranks *k, int i, int64_t n) {
    const int bytes = k->partial[i].bytes;
    return bytes ? room_of(n * bytes) : k->own * room_of(n * k->ranges[i].bytes);
}

/* The elements of own shards from `first` on. */
static void view_own(const nn_graph *g, int i, int64_t first, int64_t n, struct fl_view *views) {
    struct fl_ranks *k = g->ranks;
    for (int s = 0; s < k->own; s++)
        views[s] = (struct fl_view){.data = elements_of(g, k->first + s, i) + first * k->ranges[i].bytes,
                                    .e = &k->exponents[(int64_t)i * k->shards + k->first + s],
                                    .count = n};
}

static const struct fl_format *format_of(const struct fl_ranks *k, int i) {
    return fl_format_of(tensor_format_of(k->ranges[i].parameter->g));
}

/* The exponent of the sum of a rank's shards. */
static int32_t exponent_of(const struct fl_ranks *k, int i, int r) {
    return fl_partial_exponent(&k->exponents[(int64_t)i * k->shards + r * k->own], k->own);
}

static void pack_parameter(const nn_graph *g, int i, int r, char *to) {
    struct fl_ranks *k = g->ranks;
    struct fl_view views[FL_MOST_SHARDS];
    int64_t first;
    const int64_t n = part_of(k, &k->ranges[i], r, &first), bytes = n * k->ranges[i].bytes;
    if (!n)
        return;
    view_own(g, i, first, n, views);
    if (k->partial[i].bytes)
        fl_partial_pack(k->partial[i], format_of(k, i), views, k->own, exponent_of(k, i, k->rank), n, to);
    for (int s = 0; s < k->own && !k->partial[i].bytes; s++)
        memcpy(to + s * room_of(bytes), views[s].data, (size_t)bytes);
}

/* Packs the parts of other ranks of this rank's gradients, rank by rank, parameter by parameter. */
static void pack(const nn_graph *g) {
    struct fl_ranks *k = g->ranks;
    char *send = k->send, *receive = k->receive;
    int64_t first;
    for (int r = 0; r < k->size; r++) {
        k->to[r] = (struct fl_piece){send, 0};
        k->from[r] = (struct fl_piece){receive, 0};
        for (int i = 0; i < k->count && r != k->rank; i++) {
            pack_parameter(g, i, r, send);
            send += sent_of(k, i, part_of(k, &k->ranges[i], r, &first));
            receive += sent_of(k, i, part_of(k, &k->ranges[i], k->rank, &first));
        }
        k->to[r].bytes = send - (char *)k->to[r].data;
        k->from[r].bytes = receive - (char *)k->from[r].data;
    }
}

/* The terms of this rank's part of a parameter: shards, of others where they were received. */
static void find_shards(const nn_graph *g, int i, char *const *received) {
    struct fl_ranks *k = g->ranks;
    struct fl_part_write *w = &k->writes[i];
    struct fl_view *terms = &k->terms[(int64_t)i * k->shards];
    const int bytes = k->ranges[i].bytes;
    for (int s = 0; s < k->shards; s++) {
        const int r = s / k->own;
        char *data = r == k->rank ? elements_of(g, s, i) + w->first * bytes
                                  : received[r] + (s - r * k->own) * room_of(w->count * bytes);
        terms[s] = (struct fl_view){data, NULL, &k->exponents[(int64_t)i * k->shards + s], w->count};
    }
    fl_part_begin(w, k->ranges[i].parameter->g, terms, k->shards, 0);
}

/* The same: sums of ranks, as doubles at `doubles`. */
static void find_sums(const nn_graph *g, int i, char *const *received, double *doubles) {
    struct fl_ranks *k = g->ranks;
    struct fl_part_write *w = &k->writes[i];
    struct fl_view own[FL_MOST_SHARDS], *terms = &k->terms[(int64_t)i * k->shards];
    const struct fl_format *format = format_of(k, i);
    for (int r = 0; r < k->size; r++, doubles += w->count) {
        int32_t *e = &k->sum_exponents[(int64_t)i * k->size + r];
        *e = exponent_of(k, i, r);
        if (r != k->rank) {
            fl_partial_unpack(k->partial[i], format, received[r], *e, w->count, doubles);
        } else {
            view_own(g, i, w->first, w->count, own);
            fl_sum_fetch(&(struct fl_sum){.format = format, .terms = own, .count = k->own}, 0, w->count, doubles);
        }
        terms[r] = (struct fl_view){doubles, NULL, e, w->count};
    }
    fl_part_begin(w, k->ranges[i].parameter->g, terms, k->size, k->partial[i].bits ? k->partial[i].bits : 24);
}

static void find_all_terms(const nn_graph *g) {
    struct fl_ranks *k = g->ranks;
    char *received[FL_MOST_SHARDS];
    double *doubles = k->doubles;
    for (int r = 0; r < k->size; r++)
        received[r] = k->from[r].data;
    for (int i = 0; i < k->count; i++) {
        struct fl_part_write *w = &k->writes[i];
        *w = (struct fl_part_write){.first = 0};
        w->count = part_of(k, &k->ranges[i], k->rank, &w->first);
        if (k->partial[i].bytes)
            find_sums(g, i, received, doubles);
        else
            find_shards(g, i, received);
        doubles += k->partial[i].bytes ? w->count * k->size : 0;
        for (int r = 0; r < k->size; r++)
            received[r] += r == k->rank ? 0 : sent_of(k, i, w->count);
    }
}

static struct part *parts_of(const struct fl_ranks *k, int r) {
    return k->parts + (int64_t)r * k->count;
}

static tensor_status share_parts(const nn_graph *g, const char *what) {
    struct fl_ranks *k = g->ranks;
    for (int i = 0; i < k->count; i++)
        parts_of(k, k->rank)[i] = (struct part){k->writes[i].maximum, k->writes[i].stats};
    return fl_group_share(g->group, what, k->parts, k->count * (int64_t)sizeof *k->parts);
}

/* The sums, of each rank those of its part. */
static tensor_status write_parts(const nn_graph *g, const char *what) {
    struct fl_ranks *k = g->ranks;
    for (int i = 0; i < k->count; i++)
        fl_part_measure(&k->writes[i]);
    TRY(share_parts(g, what));
    for (int i = 0; i < k->count; i++) {
        for (int r = 0; r < k->size; r++)
            k->writes[i].maximum =
                parts_of(k, r)[i].maximum > k->writes[i].maximum ? parts_of(k, r)[i].maximum : k->writes[i].maximum;
        fl_part_store(&k->writes[i]);
    }
    TRY(share_parts(g, what));
    for (int i = 0; i < k->count; i++) {
        k->writes[i].stats = (struct fl_stats){0};
        for (int r = 0; r < k->size; r++)
            fl_stats_merge(&k->writes[i].stats, &parts_of(k, r)[i].stats);
        fl_part_end(&k->writes[i]);
    }
    return TENSOR_OK;
}

/* Copies the parts of a rank between the sums and the packed ones. */
static void copy_sums(const struct fl_ranks *k, int r, char *at, bool packing) {
    for (int i = 0; i < k->count; i++) {
        int64_t first;
        const int64_t bytes = bytes_of_part(k, &k->ranges[i], r, &first);
        char *own = (char *)tensor_data(k->ranges[i].parameter->g) + first * k->ranges[i].bytes;
        if (bytes)
            memcpy(packing ? at : own, packing ? own : at, (size_t)bytes);
        at += room_of(bytes);
    }
}

static tensor_status gather_sums(const nn_graph *g, const char *what) {
    struct fl_ranks *k = g->ranks;
    char *at = k->result;
    for (int r = 0; r < k->size; r++) {
        k->to[r] = (struct fl_piece){at, bytes_of(k, r)};
        at += k->to[r].bytes;
    }
    copy_sums(k, k->rank, k->to[k->rank].data, true);
    TRY(fl_group_gather(g->group, what, k->to));
    for (int r = 0; r < k->size; r++)
        if (r != k->rank)
            copy_sums(k, r, k->to[r].data, false);
    return TENSOR_OK;
}

tensor_status fl_ranks_reduce(nn_graph *g) {
    char what[60];
    snprintf(what, sizeof what, "gradients of step %llu", (unsigned long long)g->steps + 1);
    TRY(share_told(g, what));
    plan_exchange(g);
    pack(g);
    TRY(fl_group_move(g->group, what, g->ranks->to, g->ranks->from));
    find_all_terms(g);
    TRY(write_parts(g, what));
    return gather_sums(g, what);
}
