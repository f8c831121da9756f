/* sampled.h - the measured error of writes: some elements of a matmul or convolution are computed again from the same
 * operands, without any rounding, and compared with what was stored. Which elements: drawn from a number of the
 * caller's alone, so that they are the same on every machine, for every kernel and number of threads. On the host. */
#ifndef FL_SAMPLED_H
#define FL_SAMPLED_H

#include "flexlab/tensor.h"

/* Elements of a write at most; products of all of them together, unless one element has more. */
enum { FL_SAMPLED_MOST = 256, FL_SAMPLED_PRODUCTS = 1 << 14 };
/* Positions of a network take turns: of a step with rows, one in so many is sampled. */
enum { FL_SAMPLED_TURNS = 16 };

/* Of one write: elements that were computed again, and how many of them are no finite number though they should be;
 * root mean square of (stored - exact) and of exact over the others whose exact result is finite, NAN without any. */
struct fl_sampled {
    int64_t elements, infinite;
    double error, size;
};

/* The last writes that were sampled, for one who asks. */
enum { FL_SAMPLED_KEPT = 64 };
struct fl_sampling {
    struct fl_sampling *beside; /* another who asks of the same writes; NULL: no more */
    int turn;                   /* writes of this turn are sampled; -1: none */
    uint64_t number; /* elements are drawn from it: a step's, which is the same in a training that was resumed */
    struct {
        const void *slot; /* of the tensor written; NULL: none yet */
        int64_t writes;   /* the tensor's, this one included */
        uint64_t number;  /* that it was drawn from */
        struct fl_sampled of;
    } kept[FL_SAMPLED_KEPT];
    int next;
};

/* Writes of this thread on the host belong to that turn from now on, for the first who asks and those beside it; NULL:
 * nobody. */
void fl_sample_writes(struct fl_sampling *first, int turn);
/* Of the tensor's last write; no elements where it was not sampled with the number that `sampling` has. (A tensor whose
 * state was set back counts the same writes again.) */
struct fl_sampled fl_sampled_of(const struct fl_sampling *sampling, const tensor *t);

struct fl_call;
/* After a write (run.c). */
void fl_sample_call(const struct fl_call *call);

#endif
