/* sampled.h - the measured error of writes: some elements of a matmul or convolution are computed again from the same
 * operands, without any rounding, and compared with the stored ones. The elements are drawn from a number of the
 * caller alone, so that they are the same on every machine, for every kernel and number of threads. The host computes
 * them, from copies of what lies on a device. */
#ifndef FL_SAMPLED_H
#define FL_SAMPLED_H

#include "flexlab/tensor.h"

/* The most elements of a write, and the most products of all of them together, unless one element has more. */
enum { FL_SAMPLED_MOST = 256, FL_SAMPLED_PRODUCTS = 1 << 14 };
/* In a step that records telemetry, one in so many positions of a network is sampled. */
enum { FL_SAMPLED_TURNS = 16 };

/* The result for one write: elements computed again, and how many of them are stored as NaN or Inf although they are
 * finite; root mean square of (stored - exact) and of exact over the other finite ones, NAN if there are none. */
struct fl_sampled {
    int64_t elements, infinite;
    double error, size;
};

/* The last writes that were sampled for one network. */
enum { FL_SAMPLED_KEPT = 64 };
struct fl_sampling {
    struct fl_sampling *beside; /* another sampling of the same writes; NULL: none */
    int turn;                   /* writes of this turn are sampled; -1: none */
    uint64_t number;            /* the elements are drawn from it: the step, which a resumed training repeats */
    struct {
        const void *slot; /* of the tensor written; NULL: none yet */
        int64_t writes;   /* the tensor's, this one included */
        uint64_t number;  /* the number that the elements were drawn from */
        struct fl_sampled of;
    } kept[FL_SAMPLED_KEPT];
    int next;
};

/* Sets the turn of later writes of this thread, for `first` and the samplings beside it; NULL: none. */
void fl_sample_writes(struct fl_sampling *first, int turn);
/* The result for the last write of the tensor; no elements if it was not sampled with the number of `sampling`. (A
 * tensor whose state was restored counts the same writes again.) Waits for a device. */
struct fl_sampled fl_sampled_of(const struct fl_sampling *sampling, const tensor *t);

struct fl_call;
/* Samples a write that has ended, of a tensor that is known by its slot; run.c calls it. */
void fl_sample_call(const struct fl_call *call, const void *slot);
/* Whether it would sample a write now. */
bool fl_is_sampled(void);
/* The same of a write that was submitted to a device; waits for it. */
struct fl_queue;
tensor_status fl_sample_there(struct fl_queue *queue, const struct fl_call *call);

#endif
