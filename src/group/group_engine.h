/* group_engine.h - what an engine offers: bytes from rank to rank. An engine that needs a library of its own is a
 * shared object (core/base/plugin.h) with the function fl_group_engine_v3. */
#ifndef FL_GROUP_ENGINE_H
#define FL_GROUP_ENGINE_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* The bytes of a message: what goes to, or comes from, rank r. */
struct fl_piece {
    void *data;
    int64_t bytes;
};

/* A rank that asks again and again leaves its processor to others, of which there may be more than processors: after 5
 * ms of waiting for 50 us, which is little beside what a message in pieces takes. */
static inline void fl_group_rest(double waited) {
    if (waited < 5e-3)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
}

enum { FL_GROUP_WHY = 600 };
enum fl_group_state { FL_GROUP_ARRIVED, FL_GROUP_UNDER_WAY, FL_GROUP_LOST };

/* FL_GROUP_ALONE: broken, and the other ranks may not know. */
enum fl_group_refusal { FL_GROUP_BROKEN, FL_GROUP_UNSUPPORTED, FL_GROUP_ARGUMENT, FL_GROUP_ALONE };

/* A communicator that the program brings. */
struct fl_communicator {
    const void *handle; /* points to one of the engine's type */
    size_t bytes;       /* of the type */
    const char *kind;   /* which implementation's: NN_MPI_KIND of nn_group_mpi.h */
};

/* What group.c hands to an engine that cannot start ranks: those of another engine, which it leaves with its own once
 * it has joined them. */
struct fl_group_below {
    const struct fl_group_engine *engine; /* NULL: none */
    void *joined;
    int rank, size;
    double seconds; /* that a rank waits for the others */
};
#define FL_GROUP_BELOW "ranks of another engine" /* kind of a communicator that is one */

struct fl_group_engine {
    int version; /* FL_GROUP_ENGINE */
    /* Joins. brought: NULL for all processes that mpirun has started, which are `started`, 1 without it. NULL: `why`
     * says what failed, *refusal of which kind it is: FL_GROUP_UNSUPPORTED if the engine cannot run here at all. */
    void *(*join)(int started, const struct fl_communicator *brought, int *rank, int *size,
                  enum fl_group_refusal *refusal, char why[FL_GROUP_WHY]);
    /* Begins to send a piece to each rank and to receive one from each, of any lengths, also 0; the engine leaves out
     * its own. tag: 0 ... 32767; messages of another tag are not taken for those of this one. The pieces stay where
     * they are until `end` or `drop`, of which one follows. NULL: `why` says what failed. */
    void *(*begin)(void *joined, int tag, const struct fl_piece *to, const struct fl_piece *from,
                   char why[FL_GROUP_WHY]);
    /* Whether all pieces have arrived and left, after `seconds` at most; 0: looks once, and not having arrived is no
     * failure. FL_GROUP_LOST after `seconds`, or if MPI fails: `why` names the ranks that did not arrive, and the
     * flight is dropped. Unless it is under way still, `flight` no longer exists. */
    enum fl_group_state (*end)(void *joined, void *flight, double seconds, char why[FL_GROUP_WHY]);
    /* Gives up what is under way, without waiting: the group can then only be aborted or left. The memory of all pieces
     * that had not arrived may still be read and written, and stays. */
    void (*drop)(void *joined, void *flight);
    void (*abort)(void *joined); /* ends all ranks, and this one in any case after some seconds; does not return */
    /* failed: the ranks are out of step. Ends all of them, but for those of a communicator that was brought. */
    void (*leave)(void *joined, bool failed);
    bool in_order; /* tags mean nothing: all ranks begin in the same order, one exchange after the other */
};
enum { FL_GROUP_ENGINE = 3 };
typedef const struct fl_group_engine *(*fl_group_engine_function)(void);
#define FL_GROUP_ENGINE_SYMBOL "fl_group_engine_v3"

#endif
