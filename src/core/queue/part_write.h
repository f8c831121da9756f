/* part_write.h - writes of sums of tensors: as a whole, or, on the host, a part on each rank. The rules are those of
 * any write; for parts they are opened up between their phases, for the maximum and the statistics of all:
 *
 *     fl_part_measure(&w);     w.maximum is that of this part; 0 if the rules need none
 *     ... w.maximum becomes the largest of all parts ...
 *     fl_part_store(&w);       the part of the elements is written; w.stats are those of this part
 *     ... w.stats become those of all parts (fl_stats_merge) ...
 *     fl_part_end(&w);         exponent, history and statistics of the tensor */
#ifndef FL_PART_WRITE_H
#define FL_PART_WRITE_H

#include "autoflex/write_rules.h"
#include "core/tensor/sums.h"
#include "core/tensor/tensor_object.h"

struct fl_part_write {
    const tensor *out;
    struct fl_sum sum;    /* of the part: its terms begin at element `first` of out */
    int64_t first, count; /* which elements; may be none */
    struct fl_write_state state;
    double maximum;
    struct fl_stats stats;
};

/* On any device: writes the sum of `count` tensors of one format and of out's shape; stores the exact mean of such
 * tensors of f64, rounded once. */
tensor_status fl_write_sum(tensor *out, const tensor *const *terms, int count);
tensor_status fl_store_mean(tensor *out, const tensor *const *terms, int count);

/* w->out, w->sum, w->first and w->count are set. */
void fl_part_measure(struct fl_part_write *w);
void fl_part_store(struct fl_part_write *w);
void fl_part_end(struct fl_part_write *w);

#endif
