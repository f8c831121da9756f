/* ranks.h - the program as several ranks that mpirun has started. Rank 0 reads and writes as the program alone does.
 * The others compute their shards and are silent: what they would write goes to a folder of their own, which is
 * removed by the rank or, if it is killed, by the next one on that machine; and what they would say is only said if
 * rank 0 has not failed too. */
#ifndef FLEXLAB_RANKS_H
#define FLEXLAB_RANKS_H

#include "options/options.h"
#include "flexlab/nn_group.h"

/* Whether this process is the first of those that mpirun or srun has started, or alone. */
bool ranks_is_first(void);
/* Joins the ranks, if several were started: before anything that can fail. A STATUS_ code. */
int ranks_begin(void);
/* After the trainings, before anything is published, which takes rank 0 as long as it takes: leaves the others. Returns
 * the worst status of all ranks; if this one alone has failed, all end. */
int ranks_leave(int status);
/* The status of the process; leaves the others if they are still there. */
int ranks_end(int status);
/* The group from ranks_train to ranks_leave, NULL otherwise and for one rank. */
nn_group *ranks_group(void);
void ranks_train(void);
/* This rank has failed in a step, or others did not come: it makes no further step, and ranks_leave ends all ranks
 * unless they have failed alike. */
void ranks_lose(bool others);
bool ranks_are_together(void);
/* Moves the bytes of all ranks by that engine from now on: "mpi", or "nccl". A STATUS_ code. */
int ranks_carry(const char *engine);
/* Whether this rank writes results: rank 0, and the program alone. */
bool ranks_writes(void);
/* Directs a rank that does not write to its own folder; for --resume of a folder, with a copy of what it resumes from.
 * All ranks call it, before anything is written. */
int ranks_move_out(struct settings *s);
/* Shares signals and failures: all ranks call it at the same step, which `when` names. Returns the worst status of
 * all, whose first rank says why. */
int ranks_agree(int status, const char *when);
/* The same, and STATUS_FAILED on all ranks if they have not the same text, which describes the command. */
int ranks_compare(const char *text);

#endif
