/* group_engine.h - what an engine offers: bytes from rank to rank. An engine that needs a library of its own is a
 * shared object (core/base/plugin.h) with the function fl_group_engine_v2. */
#ifndef FL_GROUP_ENGINE_H
#define FL_GROUP_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The bytes of a message: what goes to, or comes from, rank r. */
struct fl_piece {
    void *data;
    int64_t bytes;
};

enum { FL_GROUP_WHY = 600 };
enum fl_group_state { FL_GROUP_ARRIVED, FL_GROUP_UNDER_WAY, FL_GROUP_LOST };

struct fl_group_engine {
    int version; /* FL_GROUP_ENGINE */
    /* Joins. started: the number of processes that mpirun has started, 1 without it. NULL: `why` says what failed,
     * *unsupported whether the engine cannot run here at all. */
    void *(*join)(int started, int *rank, int *size, bool *unsupported, char why[FL_GROUP_WHY]);
    /* Begins to send a piece to each rank and to receive one from each, of any lengths, also 0; the engine leaves out
     * its own. tag: 0 ... 32767; messages of another tag are not taken for those of this one. The pieces stay where
     * they are until `end` or `drop`, of which one follows. NULL: `why` says what failed. */
    void *(*begin)(void *joined, int tag, const struct fl_piece *to, const struct fl_piece *from,
                   char why[FL_GROUP_WHY]);
    /* Whether all pieces have arrived and left, after `seconds` at most; 0: looks once, and not having arrived is no
     * failure. FL_GROUP_LOST after `seconds`, or if MPI fails: `why` names the ranks that did not arrive. The group can
     * then only be aborted or left. Unless it is under way still, `flight` no longer exists. */
    enum fl_group_state (*end)(void *joined, void *flight, double seconds, char why[FL_GROUP_WHY]);
    void (*drop)(void *joined, void *flight); /* nothing arrives any more: the group can then only be aborted or left */
    void (*abort)(void *joined);              /* ends all ranks; does not return */
    void (*leave)(void *joined, bool failed);
    bool in_order; /* tags mean nothing: all ranks begin in the same order, one exchange after the other */
};
enum { FL_GROUP_ENGINE = 2 };
typedef const struct fl_group_engine *(*fl_group_engine_function)(void);
#define FL_GROUP_ENGINE_SYMBOL "fl_group_engine_v2"

#endif
