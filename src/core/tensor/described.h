/* described.h - what is counted and added up of a tensor's elements, by threads of a processor or by a device, before
 * the numbers of a tensor_description follow from it; and what an update has done to a weight. C and CUDA.
 *
 * Sums of doubles have one order: elements lie in parts, whose size depends on their number alone, and in blocks within
 * a part. Number i of a block is added to sum i mod 8, the sums of a part from the first to the last, then part by
 * part.
 */
#ifndef FL_DESCRIBED_H
#define FL_DESCRIBED_H

#include "autoflex/both.h"
#include <stdint.h>

enum {
    FL_DESCRIBED_BLOCK = 1024, /* numbers of a block; the last may have fewer */
    FL_DESCRIBED_LANES = 8,    /* number i of a block is added to sum i mod 8 */
    FL_DESCRIBED_PARTS = 64,
    FL_DESCRIBED_PART = 32 * FL_DESCRIBED_BLOCK, /* elements of a part, at least */
    FL_DESCRIBED_SUBNORMALS = 23,
    /* Counts by binade, from 2^-149 on for binary32, by the number of bits for mantissas; then of other elements. */
    FL_DESCRIBED_ZEROS = 280,
    FL_DESCRIBED_INFINITE,
    FL_DESCRIBED_NAN,
    FL_DESCRIBED_COUNTS
};

struct fl_described {
    int64_t number; /* of a device: of the task that described them */
    int64_t counts[FL_DESCRIBED_COUNTS];
    double sums[FL_DESCRIBED_PARTS][4]; /* over finite x, of x - centre, (x - centre)^2, |x|, x^2 */
    int64_t whole[FL_DESCRIBED_PARTS];  /* of mantissas: sums of m, |m| and m^2 */
    uint64_t sizes[FL_DESCRIBED_PARTS], squares[FL_DESCRIBED_PARTS];
    double centre;        /* the first finite element, of binary32 */
    uint32_t most, least; /* the largest finite |x|, and the smallest above zero minus one: words, or mantissas */
    int32_t e;
};

/* Elements of a part. */
FL_BOTH int64_t fl_described_share(int64_t count) {
    const int64_t share = (count + FL_DESCRIBED_PARTS - 1) / FL_DESCRIBED_PARTS, least = FL_DESCRIBED_PART;
    return share > least ? (share + FL_DESCRIBED_BLOCK - 1) / FL_DESCRIBED_BLOCK * FL_DESCRIBED_BLOCK : least;
}

/* Elements that a device takes as doubles at a time: whole parts, about 32 MiB of at most 2^28 elements. */
FL_BOTH int64_t fl_described_room(int64_t count) {
    const int64_t share = fl_described_share(count), most = 4 << 20, parts = most > share ? most / share : 1;
    return count < parts * share ? count : parts * share;
}

/* A weight and its values before an update: the serial sums of (w - before)^2 and of before^2. */
struct fl_moved {
    int64_t number; /* as above */
    double step, size;
    int64_t moved; /* elements that differ */
};

enum { FL_SAMPLED_MOST = 256 }; /* elements of a product computed again */

/* Elements of a product computed again (core/queue/sampled.h): how many, and over those whose exact value and stored
 * one are finite, the squares of their difference and of the exact value. */
struct fl_sampled_sums {
    int64_t number; /* that the elements were drawn from, plus 1 */
    int64_t elements, infinite, finite;
    double errors, sizes;
    uint64_t writes, writes_since; /* of the tensor: this one included, and where the sums are read */
};

/* Shadow formats of a tensor (core/tensor/shadowed.h): `count` states follow its last write, after which its elements
 * are measured in each; measured NULL: states of any tensors, which only follow their writes. */
struct fl_shadowing {
    struct fl_shadowed *states;
    struct fl_measured *measured;
    const struct fl_format *const *formats; /* in memory of the host while the task is submitted */
    int64_t count;
};

/* What a task of a device does with the elements of a tensor. `number` is written with the results, which those of a
 * task that did not run lack. */
struct fl_examining {
    struct fl_described *described; /* gets a description; NULL: none is wanted */
    double *numbers;                /* memory for fl_described_room doubles, to describe and to compare */
    double *before;                 /* without a description: gets the values with the wide part, if moved is NULL */
    struct fl_moved *moved;         /* gets what the values are off from those in `before` */
    int64_t number;
    struct fl_sampled_sums *sampled; /* of a product, of which `elements` are computed again */
    int64_t elements;
    const struct fl_gpu_sampled *operands; /* how the device reads its operands */
    struct fl_shadowing shadows;           /* count 0: none */
    const struct fl_gpu_shadow *rules;     /* how the device converts to their formats */
};

#endif
