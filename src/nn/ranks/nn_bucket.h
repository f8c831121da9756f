/* nn_bucket.h - the gradients of some parameters, as they cross between ranks together: which elements each rank adds,
 * and their bytes. nn_exchange.c moves them. */
#ifndef FL_NN_BUCKET_H
#define FL_NN_BUCKET_H

#include "core/queue/part_write.h"
#include "group/group.h"
#include "nn/graph/nn_graph.h"
#include "nn/ranks/nn_partial.h"

/* A parameter among the elements of its bucket, one after the other. */
struct fl_range {
    struct fl_parameter *parameter;
    int64_t at, count; /* its elements */
    int bytes;         /* of an element */
};

struct fl_bucket {
    int size, rank, own, shards; /* ranks, this one, and the shards of a rank and of all */
    int first, count;            /* parameters, by their numbers */
    int64_t elements;            /* of all */
    struct fl_range *ranges;
    int32_t *told;              /* shard by shard: the exponents of its gradients */
    int32_t *exponents;         /* parameter by parameter: those of all shards */
    int32_t *sum_exponents;     /* the same of the sums of all ranks */
    struct fl_partial *partial; /* how each parameter is sent */
    struct fl_part_write *writes;
    struct fl_view *terms;     /* of a parameter, shard by shard, or rank by rank */
    struct fl_view *own_terms; /* of those, where they are sums: this rank's shards */
    struct fl_partial_terms *of_ranks;
    double *maxima; /* rank by rank: of its part of each parameter */
    char *send, *receive, *result;
    struct fl_piece *to, *from;
};

/* Makes room for a bucket of `count` parameters of a compiled graph, from number `first` on. What was made is freed by
 * fl_bucket_free, also after a failure. */
tensor_status fl_bucket_make(struct fl_bucket *b, nn_graph *g, int first, int count);
void fl_bucket_free(struct fl_bucket *b, const nn_group *group);

/* In this order, with an exchange between two of them: */

/* The exponents of own shards; exchanged beforehand where the bytes of gradients depend on those of all ranks. */
void fl_bucket_tell(struct fl_bucket *b, const nn_graph *g);
bool fl_bucket_tells_first(const struct fl_bucket *b);
/* Own gradients for other ranks: b->to and b->from become what is sent and received. */
void fl_bucket_pack(struct fl_bucket *b, const nn_graph *g);
/* Begins the write of this rank's part of each sum. Whether the rules ask for maxima: then b->maxima are exchanged. */
bool fl_bucket_measure(struct fl_bucket *b, const nn_graph *g);
/* Writes the sums. b->to and b->from become what is gathered. */
void fl_bucket_store(struct fl_bucket *b);
/* Takes the sums of others; exponents, histories and statistics of the gradients follow. */
void fl_bucket_end(struct fl_bucket *b);

#endif
