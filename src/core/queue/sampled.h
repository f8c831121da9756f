/* sampled.h - the measured error of writes: some elements of a matmul or convolution are computed again from the same
 * operands, without any rounding, and compared with the stored ones. The elements are drawn from a number of the
 * caller alone, so that they are the same on every machine, for every kernel and number of threads. A device computes
 * those of its own writes. */
#ifndef FL_SAMPLED_H
#define FL_SAMPLED_H

#include "core/tensor/described.h"
#include "flexlab/tensor.h"

/* The most products of all elements of a write together, unless one element has more. */
enum { FL_SAMPLED_PRODUCTS = 1 << 14 };
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
        uint64_t number;  /* the number that the elements were drawn from */
        struct fl_sampled_sums of;
    } kept[FL_SAMPLED_KEPT];
    int next;
    struct fl_sampled_sums *there; /* of a device, in the place of each `of`; NULL: none */
};
/* Takes the memory of a device; fl_sampling.there is released by the caller. */
tensor_status fl_sampling_begin(struct fl_sampling *s, tensor_device *device);

/* Sets the turn of later writes of this thread, for `first` and the samplings beside it; NULL: none. */
void fl_sample_writes(struct fl_sampling *first, int turn);
/* The result for the last write of the tensor; no elements if it was not sampled with the number of `sampling`. (A
 * tensor whose state was restored counts the same writes again.) Waits for a device. */
struct fl_sampled fl_sampled_of(const struct fl_sampling *sampling, const tensor *t);

/* The same of a device, without waiting: queues a copy of what it has computed, if the write was sampled. */
tensor_status fl_sampled_note(const struct fl_sampling *sampling, const tensor *t, struct fl_sampled_sums *to);
/* The result that follows; none if the elements were drawn from another number, less 1, or the tensor was written
 * since.
 */
struct fl_sampled fl_sampled_from(const struct fl_sampled_sums *sums, int64_t number);

struct fl_call;
/* Samples a write that has ended on the host (device NULL), or was submitted to a device. */
tensor_status fl_sample_call(const struct fl_call *call, tensor_device *device);
/* A task of FL_CALL_SAMPLE on the host. */
tensor_status fl_sample_run(const struct fl_call *call);

#endif
