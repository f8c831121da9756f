/* group.h - what the training step asks of its group. Only bytes cross between ranks; every rank computes what follows
 * from them itself, in the order of ranks. All ranks make the same calls in the same order. */
#ifndef FL_GROUP_H
#define FL_GROUP_H

#include "flexlab/nn_group.h"
#include "group/group_engine.h"
#include <stdbool.h>

/* Sends to[r] to rank r and receives from[r] of it; both have a piece for each rank. The piece of the rank itself is
 * copied; their lengths must agree. what: in messages, "gradients of step 12". */
tensor_status fl_group_move(nn_group *group, const char *what, const struct fl_piece *to, const struct fl_piece *from);
/* The same begun and ended, with computation in between. The pieces' memory stays where it is until the end; their list
 * may go. */
enum { FL_GROUP_WHAT = 80, FL_GROUP_CHANNELS = 16384 };
struct fl_flight {
    void *of_engine; /* NULL: nothing is under way */
    int64_t sent, received;
    char what[FL_GROUP_WHAT];
};
/* channel: below FL_GROUP_CHANNELS; of those under way at once each has its own, the same on all ranks. */
tensor_status fl_group_begin(nn_group *group, struct fl_flight *flight, const char *what, int channel,
                             const struct fl_piece *to, const struct fl_piece *from);
/* waits: until all have arrived. Else *arrived says whether they have. */
tensor_status fl_group_end(nn_group *group, struct fl_flight *flight, bool waits, bool *arrived);
/* Gives up what is under way; nothing else can then be exchanged. */
void fl_group_drop(nn_group *group, struct fl_flight *flight);
/* Frees memory from which or into which bytes were moved; after a failure it stays, because the engine may use it. */
void fl_group_free_memory(const nn_group *group, void *memory);
/* Whether all ranks of several must begin their exchanges in the same order, which channels do not replace. */
bool fl_group_is_in_order(const nn_group *group);
/* Every rank has its own bytes in place, at all + rank * bytes; afterwards all have those of all ranks. */
tensor_status fl_group_share(nn_group *group, const char *what, void *all, int64_t bytes);
/* The same with parts of different lengths: rank r has part[r]. */
tensor_status fl_group_gather(nn_group *group, const char *what, const struct fl_piece *part);
/* TENSOR_E_ARGUMENT on all ranks if they have different texts: names what differs, one rank of each side and the first
 * word in which its text is another. */
tensor_status fl_group_agree(nn_group *group, const char *what, const char *text);
/* Begins what fl_group_all ends on all ranks. */
void fl_group_fresh(nn_group *group);
/* If one rank has failed, all return a failure: the first failing rank's own, and on the others one with its number and
 * message. `status` is that of this rank, with tensor_error() set. Calls may be nested: a rank that
 * has learned of a failure in an inner one does not ask again in the outer one, where the failing rank has told it. */
tensor_status fl_group_all(nn_group *group, const char *what, tensor_status status);
/* The same by a rank that may come long before others, whose work takes longer: it waits ten times the timeout. */
tensor_status fl_group_await(nn_group *group, const char *what, tensor_status status);

#endif
