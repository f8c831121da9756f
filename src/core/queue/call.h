/* call.h - a task of a queue. It holds only addresses, so that it can run later and on another device; a queue that
 * runs it later copies the task and its args. The header is C and C++, for devices that are not programmed in C. */
#ifndef FL_CALL_H
#define FL_CALL_H

#include "core/tensor/described.h"
#include "core/tensor/gather.h"
#include "core/queue/sequence_rules.h"
#include "core/queue/skipping.h"
#include "core/tensor/transfer.h"

enum fl_call_kind {
    FL_CALL_RUN,          /* the kernel runs; its results are numbers beside the formats */
    FL_CALL_WRITE,        /* the kernel writes `out` by the rules of its exponent */
    FL_CALL_LOAD,         /* `source` becomes the value of `out`, as a load sets exponents */
    FL_CALL_ROUND,        /* exact results of an operation, doubles or a sum, become the value of `out` by a write */
    FL_CALL_MEAN,         /* the mean of the terms of a sum becomes the value of `out`; all are f64 */
    FL_CALL_FOLLOW,       /* the wide part of `out` becomes exactly the value of its elements */
    FL_CALL_GATHER,       /* `gather`: a batch is taken from a set of images */
    FL_CALL_OPEN,         /* an incremental write of `out` begins */
    FL_CALL_CLOSE,        /* the incremental writes of a sequence end */
    FL_CALL_LOOK,         /* `skipping`: writes are looked at, and the tasks up to FOLLOW left out if one overflowed */
    FL_CALL_FOLLOW_SCALE, /* the loss scale follows, and tasks are left out no longer */
    FL_CALL_SHARE,        /* a number becomes a share of the loss scale */
    FL_CALL_EXAMINE,      /* of a device: `examining`: the elements of `source` are described, kept or compared; without
                           * a source shadows follow the last writes of their tensors */
    FL_CALL_SAMPLE        /* `examining`: elements of a product that was written are computed again */
};

/* The sequence of an OPEN, a CLOSE, or the WRITE of a part. */
struct fl_sequence_part {
    struct fl_sequence_state *state; /* NULL: the write is not incremental */
    int tensor, attempt;
    int64_t count; /* OPEN: elements of all parts of the tensor */
    size_t kept;   /* OPEN: bytes after the state that kernels may keep things in */
};

struct fl_call {
    enum fl_call_kind kind;
    fl_kernel kernel;
    fl_need need;
    bool measures_first; /* WRITE: the kernel must not store results twice */
    /* RUN, WRITE: complete but for stats and rounding, in memory of the operation while the task is submitted; NULL in
     * other tasks. */
    struct fl_args *args;
    struct fl_storage out;            /* as it is when the task is submitted; RUN, GATHER, EXAMINE: undefined */
    struct fl_sequence_part sequence; /* WRITE, OPEN, CLOSE */
    /* Undefined in RUN and WRITE: most tasks are of these kinds, and clearing it would slow small ones noticeably. */
    struct fl_source source;       /* LOAD, ROUND, MEAN, EXAMINE */
    double *doubles;               /* LOAD, ROUND: workspace, where a device takes a tensor or a sum as doubles first */
    const char *what;              /* LOAD: the name in messages */
    struct fl_gather gather;       /* GATHER */
    struct fl_skipping skipping;   /* LOOK, FOLLOW_SCALE, SHARE */
    struct fl_examining examining; /* EXAMINE, SAMPLE */
};

FL_BOTH bool fl_is_skipping(const struct fl_call *call) {
    return call->kind == FL_CALL_LOOK || call->kind == FL_CALL_FOLLOW_SCALE || call->kind == FL_CALL_SHARE;
}

#endif
