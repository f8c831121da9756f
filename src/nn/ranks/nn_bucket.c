/* nn_bucket.c - gradients as they cross between ranks. */
#include "nn/ranks/nn_bucket.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "nn/shards/nn_shards.h"
#include <string.h>

/* --- which elements are whose ------------------------------------------------------------------------------------- */

enum { LINE = 64 /* elements: parameters, and the parts of ranks, begin at multiples */ };

static int64_t whole_lines(int64_t elements) {
    return (elements + LINE - 1) / LINE * LINE;
}

/* The first of the elements of which rank r forms the sums, among those of all parameters. */
static int64_t first_of(const struct fl_bucket *b, int r) {
    const int64_t lines = b->elements / LINE;
    return (lines / b->size * r + lines % b->size * r / b->size) * LINE;
}

/* The elements of a parameter among those, from its own element *first on. */
static int64_t part_of(const struct fl_bucket *b, const struct fl_range *range, int r, int64_t *first) {
    const int64_t begin = first_of(b, r), end = first_of(b, r + 1), from = begin > range->at ? begin : range->at,
                  to = end < range->at + range->count ? end : range->at + range->count;
    *first = from - range->at;
    return to > from ? to - from : 0;
}

/* The bytes that so many take among others. */
static int64_t room_of(int64_t bytes) {
    return (bytes + 7) / 8 * 8;
}

/* The room of all of a rank's parts in one shard. */
static int64_t bytes_of(const struct fl_bucket *b, int r) {
    int64_t bytes = 0, first;
    for (int i = 0; i < b->count; i++)
        bytes += room_of(part_of(b, &b->ranges[i], r, &first) * b->ranges[i].bytes);
    return bytes;
}

/* --- life --------------------------------------------------------------------------------------------------------- */

static void list_parameters(struct fl_bucket *b, const struct fl_gradients *of) {
    for (int i = 0; i < b->count; i++) {
        tensor *sum = fl_gradients_sum(of, b->first + i);
        b->ranges[i] =
            (struct fl_range){sum, b->elements, tensor_count(sum), (int)tensor_format_bytes(tensor_format_of(sum))};
        b->elements += whole_lines(tensor_count(sum));
    }
}

/* What precedes the bytes of gradients: the exponents of a rank's only shard. */
static int64_t head_of_gradients(const struct fl_bucket *b) {
    return b->own == 1 ? room_of(b->count * (int64_t)sizeof(int32_t)) : 0;
}

/* What precedes the bytes of sums. */
static int64_t head_of_sums(const struct fl_bucket *b) {
    return b->count * (int64_t)sizeof(struct fl_stats);
}

tensor_status fl_bucket_make(struct fl_bucket *b, const struct fl_gradients *of, int first, int count) {
    const nn_graph *g = of->g;
    const size_t n = (size_t)count, size = (size_t)nn_group_size(g->group), shards = (size_t)g->shards;
    *b = (struct fl_bucket){.size = (int)size, .rank = nn_group_rank(g->group), .shards = g->shards};
    b->own = g->shards / (int)size;
    b->first = first;
    b->count = count;
    if (!(b->ranges = fl_alloc_zero(n * sizeof *b->ranges)))
        return fl_fail(TENSOR_E_MEMORY, "graph: no memory for %d gradients", count);
    list_parameters(b, of);
    int64_t all = 0;
    for (int r = 0; r < b->size; r++)
        all += bytes_of(b, r);
    const int64_t head = head_of_gradients(b);
    /* room for shards one by one, of which sums of shards use a part: what nobody writes takes no memory */
    b->send = fl_alloc((size_t)(all * b->own + head * b->size + 1));
    b->receive = fl_alloc((size_t)(bytes_of(b, b->rank) * b->shards + head * b->size + 1));
    b->result = fl_alloc((size_t)(all + head_of_sums(b) * b->size + 1));
    b->told = fl_alloc_zero(n * shards * sizeof *b->told);
    b->exponents = fl_alloc_zero(n * shards * sizeof *b->exponents);
    b->sum_exponents = fl_alloc_zero(n * size * sizeof *b->sum_exponents);
    b->partial = fl_alloc_zero(n * sizeof *b->partial);
    b->writes = fl_alloc_zero(n * sizeof *b->writes);
    b->terms = fl_alloc_zero(n * shards * sizeof *b->terms);
    b->own_terms = fl_alloc_zero(n * (size_t)b->own * sizeof *b->own_terms);
    b->of_ranks = fl_alloc_zero(n * sizeof *b->of_ranks);
    b->maxima = fl_alloc_zero(n * size * sizeof *b->maxima);
    b->to = fl_alloc_zero(size * sizeof *b->to);
    b->from = fl_alloc_zero(size * sizeof *b->from);
    return b->send && b->receive && b->result && b->told && b->exponents && b->sum_exponents && b->partial &&
                   b->writes && b->terms && b->own_terms && b->of_ranks && b->maxima && b->to && b->from
               ? TENSOR_OK
               : fl_fail(TENSOR_E_MEMORY, "graph: no memory for what %d ranks exchange", b->size);
}

void fl_bucket_free(struct fl_bucket *b, const nn_group *group) {
    void *const all[] = {b->ranges, b->told,      b->exponents, b->sum_exponents, b->partial, b->writes,
                         b->terms,  b->own_terms, b->of_ranks,  b->maxima,        b->send,    b->receive,
                         b->result, b->to,        b->from};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        fl_group_free_memory(group, all[i]);
}

/* --- gradients that are sent -------------------------------------------------------------------------------------- */

static char *elements_of(const struct fl_bucket *b, const struct fl_gradients *of, int shard, int i) {
    return tensor_data(fl_gradients_shard(of, shard, b->first + i));
}

static const struct fl_format *format_of(const struct fl_bucket *b, int i) {
    return fl_format_of(tensor_format_of(b->ranges[i].sum));
}

void fl_bucket_tell(struct fl_bucket *b, const struct fl_gradients *of) {
    for (int s = b->rank * b->own; s < (b->rank + 1) * b->own; s++)
        for (int i = 0; i < b->count; i++) {
            const tensor *t = fl_gradients_shard(of, s, b->first + i);
            b->told[s * b->count + i] = tensor_format_is_shared(tensor_format_of(t)) ? tensor_exponent(t) : 0;
        }
}

bool fl_bucket_tells_first(const struct fl_bucket *b) {
    return b->own > 1;
}

/* How each parameter is sent. Of one shard a rank, the exponents of others come with their gradients. */
static void plan(struct fl_bucket *b) {
    for (int i = 0; i < b->count; i++) {
        int32_t *e = &b->exponents[(int64_t)i * b->shards];
        for (int s = 0; s < b->shards; s++)
            e[s] = b->told[s * b->count + i];
        b->partial[i] = fl_partial_plan(format_of(b, i), e, b->shards, b->own);
    }
}

/* The bytes that a rank sends of n elements of a parameter, of all of its shards. */
static int64_t sent_of(const struct fl_bucket *b, int i, int64_t n) {
    const int bytes = b->partial[i].bytes;
    return bytes ? room_of(n * bytes) : b->own * room_of(n * b->ranges[i].bytes);
}

/* The elements of own shards from `first` on. */
static void view_own(const struct fl_bucket *b, const struct fl_gradients *of, int i, int64_t first, int64_t n,
                     struct fl_view *views) {
    const int begin = b->rank * b->own;
    for (int s = 0; s < b->own; s++)
        views[s] = (struct fl_view){.data = elements_of(b, of, begin + s, i) + first * b->ranges[i].bytes,
                                    .e = &b->exponents[(int64_t)i * b->shards + begin + s],
                                    .count = n};
}

/* The exponent of the sum of a rank's shards. */
static int32_t exponent_of(const struct fl_bucket *b, int i, int r) {
    return fl_partial_exponent(&b->exponents[(int64_t)i * b->shards + r * b->own], b->own);
}

static void pack_parameter(const struct fl_bucket *b, const struct fl_gradients *of, int i, int r, char *to) {
    struct fl_view views[FL_MOST_SHARDS];
    int64_t first;
    const int64_t n = part_of(b, &b->ranges[i], r, &first), bytes = n * b->ranges[i].bytes;
    if (!n)
        return;
    view_own(b, of, i, first, n, views);
    if (b->partial[i].bytes)
        fl_partial_pack(b->partial[i], format_of(b, i), views, b->own, exponent_of(b, i, b->rank), n, to);
    for (int s = 0; s < b->own && !b->partial[i].bytes; s++)
        memcpy(to + s * room_of(bytes), views[s].data, (size_t)bytes);
}

void fl_bucket_pack(struct fl_bucket *b, const struct fl_gradients *of) {
    const int64_t head = head_of_gradients(b);
    char *send = b->send, *receive = b->receive;
    int64_t first;
    plan(b);
    for (int r = 0; r < b->size; r++) {
        b->to[r] = (struct fl_piece){send, 0};
        b->from[r] = (struct fl_piece){receive, 0};
        if (r == b->rank)
            continue;
        if (head)
            memcpy(send, b->told + (int64_t)b->rank * b->count, (size_t)b->count * sizeof *b->told);
        send += head;
        receive += head;
        for (int i = 0; i < b->count; i++) {
            pack_parameter(b, of, i, r, send);
            send += sent_of(b, i, part_of(b, &b->ranges[i], r, &first));
            receive += sent_of(b, i, part_of(b, &b->ranges[i], b->rank, &first));
        }
        b->to[r].bytes = send - (char *)b->to[r].data;
        b->from[r].bytes = receive - (char *)b->from[r].data;
    }
}

/* --- sums --------------------------------------------------------------------------------------------------------- */

/* The terms of this rank's part of a parameter: shards, of others where they were received. */
static void find_shards(struct fl_bucket *b, const struct fl_gradients *of, int i, char *const *received) {
    struct fl_part_write *w = &b->writes[i];
    struct fl_view *terms = &b->terms[(int64_t)i * b->shards];
    const int bytes = b->ranges[i].bytes;
    for (int s = 0; s < b->shards; s++) {
        const int r = s / b->own;
        char *data = r == b->rank ? elements_of(b, of, s, i) + w->first * bytes
                                  : received[r] + (s - r * b->own) * room_of(w->count * bytes);
        terms[s] = (struct fl_view){data, NULL, &b->exponents[(int64_t)i * b->shards + s], w->count};
    }
    w->sum = (struct fl_sum){.format = format_of(b, i), .terms = terms, .count = b->shards};
}

/* The same: sums of ranks. */
static void find_sums(struct fl_bucket *b, const struct fl_gradients *of, int i, char *const *received) {
    struct fl_part_write *w = &b->writes[i];
    struct fl_view *terms = &b->terms[(int64_t)i * b->shards], *own = &b->own_terms[(int64_t)i * b->own];
    for (int r = 0; r < b->size; r++) {
        int32_t *e = &b->sum_exponents[(int64_t)i * b->size + r];
        *e = exponent_of(b, i, r);
        terms[r] = (struct fl_view){received[r], NULL, e, w->count};
    }
    view_own(b, of, i, w->first, w->count, own);
    b->of_ranks[i] = (struct fl_partial_terms){b->partial[i], b->rank, own, b->own};
    w->sum = fl_partial_sum(&b->of_ranks[i], format_of(b, i), terms, b->size);
}

/* Takes the exponents that came before the gradients, and passes them over. */
static void take_heads(struct fl_bucket *b, char **received) {
    const int64_t head = head_of_gradients(b);
    for (int r = 0; r < b->size && head; r++) {
        if (r == b->rank)
            continue;
        memcpy(b->told + (int64_t)r * b->count, received[r], (size_t)b->count * sizeof *b->told);
        received[r] += head;
    }
    if (head)
        plan(b);
}

static void find_terms(struct fl_bucket *b, const struct fl_gradients *of) {
    char *received[FL_MOST_SHARDS];
    for (int r = 0; r < b->size; r++)
        received[r] = b->from[r].data;
    take_heads(b, received);
    for (int i = 0; i < b->count; i++) {
        struct fl_part_write *w = &b->writes[i];
        *w = (struct fl_part_write){.out = b->ranges[i].sum};
        w->count = part_of(b, &b->ranges[i], b->rank, &w->first);
        if (b->partial[i].bytes)
            find_sums(b, of, i, received);
        else
            find_shards(b, of, i, received);
        for (int r = 0; r < b->size; r++)
            received[r] += r == b->rank ? 0 : sent_of(b, i, w->count);
    }
}

bool fl_bucket_measure(struct fl_bucket *b, const struct fl_gradients *of) {
    bool asked = false;
    find_terms(b, of);
    for (int i = 0; i < b->count; i++) {
        fl_part_measure(&b->writes[i]);
        b->maxima[(int64_t)b->rank * b->count + i] = b->writes[i].maximum;
        asked = asked || b->writes[i].state.next == FL_WRITE_MEASURE;
    }
    return asked;
}

/* The statistics of a rank's parts of the writes. */
static struct fl_stats *stats_of(const struct fl_bucket *b, int r) {
    return b->from[r].data;
}

/* Copies the parts of a rank between the sums and the packed ones. */
static void copy_sums(const struct fl_bucket *b, int r, bool packing) {
    char *at = (char *)b->from[r].data + head_of_sums(b);
    for (int i = 0; i < b->count; i++) {
        int64_t first;
        const int64_t bytes = part_of(b, &b->ranges[i], r, &first) * b->ranges[i].bytes;
        char *own = (char *)tensor_data(b->ranges[i].sum) + first * b->ranges[i].bytes;
        if (bytes)
            memcpy(packing ? at : own, packing ? own : at, (size_t)bytes);
        at += room_of(bytes);
    }
}

void fl_bucket_store(struct fl_bucket *b) {
    char *at = b->result;
    for (int r = 0; r < b->size; r++) {
        b->from[r] = (struct fl_piece){at, head_of_sums(b) + bytes_of(b, r)};
        at += b->from[r].bytes;
    }
    for (int i = 0; i < b->count; i++) {
        struct fl_part_write *w = &b->writes[i];
        for (int r = 0; r < b->size; r++) {
            const double maximum = b->maxima[(int64_t)r * b->count + i];
            w->maximum = maximum > w->maximum ? maximum : w->maximum;
        }
        fl_part_store(w);
        stats_of(b, b->rank)[i] = w->stats;
    }
    copy_sums(b, b->rank, true);
    for (int r = 0; r < b->size; r++)
        b->to[r] = b->from[b->rank];
}

void fl_bucket_end(struct fl_bucket *b) {
    for (int r = 0; r < b->size; r++)
        if (r != b->rank)
            copy_sums(b, r, false);
    for (int i = 0; i < b->count; i++) {
        b->writes[i].stats = (struct fl_stats){0};
        for (int r = 0; r < b->size; r++)
            fl_stats_merge(&b->writes[i].stats, &stats_of(b, r)[i]);
        fl_part_end(&b->writes[i]);
    }
}
