/* part_write.h - a write of a sum of tensors of which each rank computes a part: the same rules as for any write, with
 * maximum and statistics of all parts between their phases. On the host.
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
    struct fl_sum sum;    /* of the part: its terms begin at element `first` */
    int64_t first, count; /* which elements; may be none */
    struct fl_write_state state;
    double maximum;
    struct fl_stats stats;
};

void fl_part_measure(struct fl_part_write *w);
void fl_part_store(struct fl_part_write *w);
void fl_part_end(struct fl_part_write *w);

#endif
