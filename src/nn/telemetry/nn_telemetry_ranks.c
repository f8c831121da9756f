/* nn_telemetry_ranks.c - telemetry of several ranks: which of them looks at which tensor, and how the order of writes
 * and the rows of all reach rank 0, which writes them. */
#include "nn/telemetry/nn_telemetry.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "group/group.h"
#include "nn/shards/nn_shards.h"
#include <stdio.h>
#include <string.h>

static void place_of_shard(struct fl_seen_tensor *seen, int rank) {
    seen->of_shard = true;
    seen->rank = rank;
}

/* A parameter's tensors are looked at by one of all ranks, which share the work so. */
static void place_parameters(nn_telemetry *t) {
    const int size = nn_group_size(t->g->group);
    for (int i = 0; i < t->g->count; i++)
        for (int k = 0; k < t->g->nodes[i].parameters; k++) {
            const struct fl_parameter *p = &t->g->nodes[i].parameter[k];
            for (int n = 0; n < p->infos; n++)
                t->tensors[p->info + n].rank = p->number % size;
        }
}

void fl_telemetry_place(nn_telemetry *t) {
    const nn_graph *g = t->g;
    place_parameters(t);
    for (int s = 0; g->ranks && s < g->shards; s++) {
        const int rank = s / fl_ranks_own(g);
        for (int i = 0; i < g->value_count; i++)
            if (fl_shard_info(g, s, i) >= 0)
                place_of_shard(&t->tensors[fl_shard_info(g, s, i)], rank);
        for (int i = 0; i < fl_shard_gradients(g); i++)
            place_of_shard(&t->tensors[fl_shard_gradient_info(g, s, i)], rank);
    }
}

/* --- bytes of all ranks ------------------------------------------------------------------------------------------- */

struct parcels {
    char *own, *all; /* that of this rank; those of all ranks, one after the other */
    int64_t *bytes;  /* of each rank */
    struct fl_piece *to, *from;
};

static void clear(const nn_telemetry *t, struct parcels *p) {
    fl_group_free_memory(t->g->group, p->own);
    fl_group_free_memory(t->g->group, p->all);
    fl_group_free_memory(t->g->group, p->bytes);
    fl_free(p->to);
    fl_free(p->from);
}

static tensor_status no_memory(int64_t bytes) {
    return fl_fail(TENSOR_E_MEMORY, "telemetry: no memory for %lld bytes of all ranks", (long long)bytes);
}

/* Sends `bytes` bytes of p->own to rank 0, or to all ranks. */
static tensor_status send(const nn_telemetry *t, struct parcels *p, int64_t bytes, bool to_all) {
    const int size = nn_group_size(t->g->group);
    const bool receives = to_all || !t->rank;
    int64_t all = 0;
    char what[60];
    p->bytes = fl_alloc_zero((size_t)size * sizeof *p->bytes);
    p->to = fl_alloc_zero((size_t)size * sizeof *p->to);
    p->from = fl_alloc_zero((size_t)size * sizeof *p->from);
    if (!p->bytes || !p->to || !p->from)
        return no_memory(size);
    p->bytes[t->rank] = bytes;
    snprintf(what, sizeof what, "telemetry of step %lld", (long long)t->recorder.step);
    TRY(fl_group_share(t->g->group, what, p->bytes, sizeof *p->bytes));
    for (int r = 0; r < size; r++)
        all += receives ? p->bytes[r] : 0;
    if (!(p->all = fl_alloc((size_t)all + 1)))
        return no_memory(all);
    all = 0;
    for (int r = 0; r < size; r++) {
        p->to[r] = (struct fl_piece){p->own, r && !to_all ? 0 : bytes};
        p->from[r] = (struct fl_piece){p->all + all, receives ? p->bytes[r] : 0};
        all += p->from[r].bytes;
    }
    return fl_group_move(t->g->group, what, p->to, p->from);
}

/* --- the order of writes ------------------------------------------------------------------------------------------ */

/* A tensor that a shard has written for the first time. */
struct first_write {
    int32_t tensor, stretch;
};

/* Adds the first writes of all ranks: stretch by stretch, in each rank by rank, which is shard by shard. */
static void merge(nn_telemetry *t, const struct parcels *p) {
    const int size = nn_group_size(t->g->group);
    int64_t left = 0;
    for (int r = 0; r < size; r++)
        left += p->bytes[r] / (int64_t)sizeof(struct first_write);
    for (int stretch = 0; left; stretch++)
        for (int r = 0; r < size; r++)
            for (struct first_write w; p->from[r].bytes; left--) {
                memcpy(&w, p->from[r].data, sizeof w);
                if (w.stretch > stretch)
                    break;
                t->order[t->ordered++] = w.tensor;
                t->tensors[w.tensor].ordered = true;
                p->from[r].data = (char *)p->from[r].data + sizeof w;
                p->from[r].bytes -= (int64_t)sizeof w;
            }
}

static tensor_status bring_order(nn_telemetry *t, struct parcels *p, int *once) {
    const int ordered = t->ordered;
    struct first_write *own = fl_alloc((size_t)(ordered - t->merged) * sizeof *own);
    int of_shards = 0, others = 0;
    p->own = (char *)own;
    if (!own)
        return no_memory(ordered);
    for (int at = t->merged; at < ordered; at++)
        if (t->tensors[t->order[at]].of_shard)
            own[of_shards++] = (struct first_write){t->order[at], t->tensors[t->order[at]].stretch};
        else
            once[others++] = t->order[at];
    TRY(send(t, p, of_shards * (int64_t)sizeof *own, true));
    t->ordered = t->merged;
    merge(t, p);
    memcpy(t->order + t->ordered, once, (size_t)others * sizeof *once); /* of all shards, written after their passes */
    t->ordered += others;
    t->merged = t->ordered;
    return TENSOR_OK;
}

tensor_status fl_telemetry_bring_order(nn_telemetry *t) {
    struct parcels p = {0};
    if (nn_group_size(t->g->group) == 1 || t->ordered == t->merged)
        return TENSOR_OK;
    int *once = fl_alloc((size_t)t->count * sizeof *once);
    const tensor_status status = once ? bring_order(t, &p, once) : no_memory(t->count);
    fl_free(once);
    clear(t, &p);
    return status;
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

/* A row on its way; followed by its description, where it has one, without the empty bins around the others, and by its
 * shadows. */
struct sent_row {
    nn_telemetry_row row; /* whose pointers mean nothing elsewhere */
    int32_t tensor, described, first_bin, bins;
};
enum { DESCRIBED = offsetof(tensor_description, bins) };

static char *put(char *at, const void *bytes, size_t count) {
    memcpy(at, bytes, count);
    return at + count;
}

static const char *get(const char *at, void *bytes, size_t count) {
    memcpy(bytes, at, count);
    return at + count;
}

static char *put_row(const nn_telemetry *t, int i, char *at) {
    const struct fl_seen_tensor *seen = &t->tensors[i];
    const tensor_description *d = seen->row.elements;
    int first = 0, end = d ? TENSOR_BINS : 0;
    while (end && !d->bins[end - 1])
        end--;
    while (first < end && !d->bins[first])
        first++;
    const struct sent_row sent = {seen->row, i, d != NULL, first, end - first};
    at = put(at, &sent, sizeof sent);
    if (d)
        at = put(put(at, d, DESCRIBED), d->bins + first, (size_t)sent.bins * sizeof *d->bins);
    return put(at, seen->shadow_rows, (size_t)t->shadow_count * sizeof *seen->shadow_rows);
}

static const char *get_row(nn_telemetry *t, const char *at) {
    struct sent_row sent;
    at = get(at, &sent, sizeof sent);
    struct fl_seen_tensor *seen = &t->tensors[sent.tensor];
    const nn_telemetry_row own = seen->row;
    tensor_description *d = seen->elements;
    seen->row = sent.row;
    seen->row.tensor = own.tensor;
    seen->row.role = own.role;
    seen->row.format = own.format;
    seen->row.shadows = own.shadows;
    seen->row.elements = sent.described ? d : NULL;
    if (sent.described) {
        memset(d, 0, sizeof *d);
        at = get(get(at, d, DESCRIBED), d->bins + sent.first_bin, (size_t)sent.bins * sizeof *d->bins);
    }
    at = get(at, seen->shadow_rows, (size_t)t->shadow_count * sizeof *seen->shadow_rows);
    for (int i = 0; i < t->shadow_count; i++)
        seen->shadow_rows[i].name = t->shadows[i].name;
    return at;
}

static bool is_sent(const nn_telemetry *t, int i) {
    return t->tensors[i].chosen && fl_telemetry_is_own(t, &t->tensors[i]);
}

static tensor_status bring_rows(nn_telemetry *t, struct parcels *p) {
    const size_t most =
        sizeof(struct sent_row) + sizeof(tensor_description) + (size_t)t->shadow_count * sizeof(nn_telemetry_shadow);
    size_t rows = 0;
    for (int at = 0; at < t->ordered; at++)
        rows += is_sent(t, t->order[at]);
    char *end = p->own = fl_alloc(rows * most + 1);
    if (!end)
        return no_memory((int64_t)(rows * most));
    for (int at = 0; at < t->ordered && t->rank; at++)
        if (is_sent(t, t->order[at]))
            end = put_row(t, t->order[at], end);
    TRY(send(t, p, end - p->own, false));
    const char *const last =
        (const char *)p->from[nn_group_size(t->g->group) - 1].data + p->from[nn_group_size(t->g->group) - 1].bytes;
    for (const char *at = p->all; at < last && !t->rank;)
        at = get_row(t, at);
    return TENSOR_OK;
}

tensor_status fl_telemetry_bring_rows(nn_telemetry *t) {
    struct parcels p = {0};
    if (nn_group_size(t->g->group) == 1)
        return TENSOR_OK;
    const tensor_status status = bring_rows(t, &p);
    clear(t, &p);
    return status;
}
