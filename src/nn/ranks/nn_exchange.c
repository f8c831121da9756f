/* nn_exchange.c - buckets of gradients on their way. Each bucket goes through the same phases on every rank; buckets
 * are in different ones at a time, and their order in time may differ between ranks, which the channels of the group
 * allow. By an engine in order a bucket follows when the one before it is added: then bucket and phase alone give the
 * order of all exchanges. */
#include "nn/ranks/nn_exchange.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "nn/shards/nn_shards.h"
#include "nn/ranks/nn_bucket.h"
#include <sched.h>
#include <stdio.h>

/* What is under way, but for the first and the last, and WRITTEN; COMING: from the device. */
enum phase { UNWRITTEN, COMING, WRITTEN, EXPONENTS, GRADIENTS, MAXIMA, SUMS, ADDED };

struct moving {
    struct fl_bucket bucket;
    enum phase phase;
    struct fl_fetch fetch;
    struct fl_flight flight;
};

struct fl_exchange {
    nn_graph *g;
    struct fl_gradients gradients;
    struct moving *all; /* in the order in which backward writes them: the last parameters first */
    int count;
};

enum { FIRST_CHANNEL = 1 /* nn_ranks.c has the one before */ };

/* Bytes of gradients in a bucket: a quarter of all, so that a small network has some, too; but messages that are long
 * enough to be worth sending, also to each of many ranks, and fewer buckets than there are channels. */
enum { LEAST_BUCKET = 128 << 10, MOST_BUCKET = 4 << 20, LEAST_MESSAGE = 16 << 10 };

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t bytes_of(const nn_graph *g, int number) {
    const tensor *t = fl_shard_gradient(g, 0, number);
    return tensor_count(t) * (int64_t)tensor_format_bytes(tensor_format_of(t));
}

static int64_t bytes_of_bucket(const nn_graph *g) {
    int64_t all = 0;
    for (int i = 0; i < fl_shard_gradients(g); i++)
        all += bytes_of(g, i);
    const int64_t quarter = all / 4 < MOST_BUCKET ? all / 4 : MOST_BUCKET, of_channels = all / (FL_GROUP_CHANNELS / 2);
    return larger(larger(quarter, LEAST_BUCKET), larger((int64_t)LEAST_MESSAGE * nn_group_size(g->group), of_channels));
}

static tensor_status make_buckets(struct fl_exchange *x) {
    const int64_t enough = bytes_of_bucket(x->g);
    for (int end = fl_shard_gradients(x->g), first = end; end; end = first) {
        int64_t bytes = 0;
        while (first && bytes < enough)
            bytes += bytes_of(x->g, --first);
        TRY(fl_bucket_make(&x->all[x->count++].bucket, &x->gradients, first, end - first));
    }
    return TENSOR_OK;
}

struct fl_exchange *fl_exchange_new(nn_graph *g) {
    struct fl_exchange *x = fl_alloc_zero(sizeof *x);
    if (x)
        x->g = g;
    if (!x || !(x->all = fl_alloc_zero((size_t)fl_shard_gradients(g) * sizeof *x->all)))
        fl_fail(TENSOR_E_MEMORY, "graph: no memory for %d gradients", fl_shard_gradients(g));
    else if (!fl_gradients_make(&x->gradients, g) && !make_buckets(x))
        return x;
    fl_exchange_free(x);
    return NULL;
}

void fl_exchange_free(struct fl_exchange *x) {
    if (!x)
        return;
    for (int i = 0; i < x->count; i++)
        fl_fetch_clear(x->g->device, &x->all[i].fetch);
    fl_exchange_restart(x);
    for (int i = 0; i < x->count; i++)
        fl_bucket_free(&x->all[i].bucket, x->g->group);
    fl_gradients_free(&x->gradients);
    fl_free(x->all);
    fl_free(x);
}

/* --- phases ------------------------------------------------------------------------------------------------------- */

/* Begins an exchange of the bucket. */
static tensor_status begin(struct fl_exchange *x, struct moving *m, enum phase phase) {
    char what[FL_GROUP_WHAT];
    snprintf(what, sizeof what, "gradients of step %llu", (unsigned long long)x->g->steps + 1);
    m->phase = phase;
    return fl_group_begin(x->g->group, &m->flight, what, FIRST_CHANNEL + (int)(m - x->all), m->bucket.to,
                          m->bucket.from);
}

/* Begins to share what every rank has at all + rank * bytes. */
static tensor_status begin_share(struct fl_exchange *x, struct moving *m, enum phase phase, void *all, int64_t bytes) {
    struct fl_bucket *b = &m->bucket;
    for (int r = 0; r < b->size; r++) {
        b->from[r] = (struct fl_piece){(char *)all + r * bytes, bytes};
        b->to[r] = (struct fl_piece){(char *)all + b->rank * bytes, bytes};
    }
    return begin(x, m, phase);
}

static tensor_status send_gradients(struct fl_exchange *x, struct moving *m) {
    fl_bucket_pack(&m->bucket, &x->gradients);
    return begin(x, m, GRADIENTS);
}

static tensor_status send_sums(struct fl_exchange *x, struct moving *m) {
    fl_bucket_store(&m->bucket);
    return begin(x, m, SUMS);
}

/* What follows when the bucket's exchange has ended. */
static tensor_status follow(struct fl_exchange *x, struct moving *m) {
    struct fl_bucket *b = &m->bucket;
    switch (m->phase) {
    case WRITTEN:
        fl_bucket_tell(b, &x->gradients);
        return fl_bucket_tells_first(b)
                   ? begin_share(x, m, EXPONENTS, b->told, (int64_t)b->own * b->count * (int64_t)sizeof *b->told)
                   : send_gradients(x, m);
    case EXPONENTS:
        return send_gradients(x, m);
    case GRADIENTS:
        return fl_bucket_measure(b, &x->gradients)
                   ? begin_share(x, m, MAXIMA, b->maxima, b->count * (int64_t)sizeof *b->maxima)
                   : send_sums(x, m);
    case MAXIMA:
        return send_sums(x, m);
    case SUMS:
        fl_bucket_end(b);
        m->phase = ADDED;
        break;
    case UNWRITTEN:
    case COMING:
    case ADDED:
        break;
    }
    return TENSOR_OK;
}

static bool is_moving(const struct moving *m) {
    return m->phase != UNWRITTEN && m->phase != ADDED;
}

/* What comes from the device. */
static tensor_status receive(struct fl_exchange *x, struct moving *m, bool waits, bool *arrived) {
    *arrived = true;
    if (!waits)
        TRY(fl_fetch_look(x->g->device, &m->fetch, arrived));
    if (!*arrived)
        return TENSOR_OK;
    m->phase = WRITTEN;
    return fl_gradients_end(&x->gradients, m->bucket.first, m->bucket.count, &m->fetch);
}

/* Whether the bucket may begin an exchange. */
static bool has_turn(const struct fl_exchange *x, const struct moving *m) {
    return !fl_group_is_in_order(x->g->group) || m == x->all || m[-1].phase == ADDED;
}

/* Takes a bucket to its next exchange; *arrived: it has begun that, or has none. */
static tensor_status step(struct fl_exchange *x, struct moving *m, bool waits, bool *arrived) {
    TRY(m->phase == COMING ? receive(x, m, waits, arrived) : fl_group_end(x->g->group, &m->flight, waits, arrived));
    *arrived = *arrived && has_turn(x, m);
    return *arrived ? follow(x, m) : TENSOR_OK;
}

/* Takes buckets as far as they go without waiting. */
static tensor_status advance(struct fl_exchange *x, int first) {
    for (int i = first; i < x->count; i++)
        for (bool arrived = true; arrived && is_moving(&x->all[i]);)
            TRY(step(x, &x->all[i], false, &arrived));
    return TENSOR_OK;
}

tensor_status fl_exchange_written(struct fl_exchange *x, int from) {
    const bool elsewhere = fl_gradients_are_elsewhere(&x->gradients);
    for (int i = 0; i < x->count; i++) {
        struct moving *m = &x->all[i];
        if (m->phase != UNWRITTEN || m->bucket.first < from)
            continue;
        if (elsewhere)
            TRY(fl_gradients_begin(&x->gradients, m->bucket.first, m->bucket.count, &m->fetch));
        m->phase = elsewhere ? COMING : WRITTEN;
    }
    /* the sums of joined normalisations, which cross between two calls, have no place in an order of buckets */
    return elsewhere || (x->g->together && fl_group_is_in_order(x->g->group)) ? TENSOR_OK : advance(x, 0);
}

tensor_status fl_exchange_accompany(struct fl_exchange *x) {
    for (bool computing = true; computing; sched_yield()) {
        computing = false;
        TRY(advance(x, 0));
        for (int i = 0; i < x->count; i++)
            computing = computing || x->all[i].phase == COMING;
    }
    return TENSOR_OK;
}

tensor_status fl_exchange_finish(struct fl_exchange *x) {
    bool arrived;
    TRY(fl_exchange_written(x, 0));
    for (int i = 0; i < x->count; i++)
        while (is_moving(&x->all[i])) {
            TRY(step(x, &x->all[i], true, &arrived));
            TRY(advance(x, i + 1));
        }
    for (int i = 0; i < x->count; i++)
        x->all[i].phase = UNWRITTEN;
    return fl_gradients_return(&x->gradients);
}

int fl_exchange_bucket(const struct fl_exchange *x, int number) {
    return number < x->count ? x->all[number].bucket.first : 0;
}

void fl_exchange_restart(struct fl_exchange *x) {
    for (int i = 0; i < x->count; i++) {
        struct moving *m = &x->all[i];
        fl_group_drop(x->g->group, &m->flight);
        if (m->fetch.under_way) /* what it reads is written again */
            (void)fl_gradients_end(&x->gradients, m->bucket.first, m->bucket.count, &m->fetch);
        m->phase = UNWRITTEN;
    }
}
