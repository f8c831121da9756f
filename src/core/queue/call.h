/* call.h - what an operation asks of a queue: addresses alone, so that it can run later and elsewhere. A queue that
 * runs it later copies the call and its args. C and C++: devices whose side is not C read it too. */
#ifndef FL_CALL_H
#define FL_CALL_H

#include "core/tensor/gather.h"
#include "core/queue/sequence_rules.h"
#include "core/tensor/transfer.h"

enum fl_call_kind {
    FL_CALL_RUN,    /* the kernel alone: its results are numbers */
    FL_CALL_WRITE,  /* the kernel writes `out` by the rules of its exponent */
    FL_CALL_LOAD,   /* `source` becomes the value of `out`, as a load sets exponents */
    FL_CALL_ROUND,  /* doubles that are exact results of an operation become the value of `out`, as a write */
    FL_CALL_FOLLOW, /* the wide part of `out` becomes exactly the value of its elements */
    FL_CALL_GATHER, /* `gather`: a batch out of a set of images; no format takes part */
    FL_CALL_OPEN,   /* `out` is about to be written part by part, */
    FL_CALL_CLOSE   /* and all tensors of the sequence have been */
};

/* Of OPEN and CLOSE, and of a WRITE of a part. */
struct fl_sequence_part {
    struct fl_sequence_state *state; /* NULL: the write is no part of anything */
    int tensor, attempt;
    int64_t count; /* OPEN: elements of all parts of the tensor */
};

struct fl_call {
    enum fl_call_kind kind;
    fl_kernel kernel;
    fl_need need;
    bool measures_first; /* WRITE: the kernel is not to run twice with results */
    /* RUN, WRITE: complete but for stats and rounding, in memory of the operation while the call is submitted; NULL in
     * other calls. */
    struct fl_args *args;
    struct fl_storage out;            /* as it is when the call is submitted; RUN, GATHER: undefined */
    struct fl_sequence_part sequence; /* WRITE, OPEN, CLOSE */
    /* Undefined in RUN and WRITE: most calls are those, and small ones would notice the time that clearing takes. */
    struct fl_source source; /* LOAD, ROUND */
    const char *what;        /* LOAD: the name in messages */
    struct fl_gather gather; /* GATHER */
};

#endif
