/* group_engine.h - what an engine offers: bytes from rank to rank. An engine that needs a library of its own is a
 * shared object (core/base/plugin.h) with the function fl_group_engine_v1. */
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

struct fl_group_engine {
    int version; /* FL_GROUP_ENGINE */
    /* Joins. started: the number of processes that mpirun has started, 1 without it. NULL: `why` says what failed,
     * *unsupported whether the engine cannot run here at all. */
    void *(*join)(int started, int *rank, int *size, bool *unsupported, char why[FL_GROUP_WHY]);
    /* Sends and receives a piece from and to each rank at once, of any lengths, also 0; the engine leaves out its own.
     * False after `seconds`, or if MPI fails: `why` names the ranks that did not arrive. The group can then only be
     * aborted or left. */
    /* number: of this call, the same on all ranks; messages of other calls are not taken for those of this one. */
    bool (*move)(void *joined, uint64_t number, const struct fl_piece *to, const struct fl_piece *from, double seconds,
                 char why[FL_GROUP_WHY]);
    void (*abort)(void *joined); /* ends all ranks; does not return */
    void (*leave)(void *joined, bool failed);
};
enum { FL_GROUP_ENGINE = 1 };
typedef const struct fl_group_engine *(*fl_group_engine_function)(void);
#define FL_GROUP_ENGINE_SYMBOL "fl_group_engine_v1"

#endif
