/* nn_group.h - the ranks of one training: processes on one machine or on several, each of which computes some shards of
 * every step (nn_config.shards). The results do not depend on how many there are: docs/several-machines.md. Part of
 * nn.h, whose conventions hold. */
#ifndef FLEXLAB_NN_GROUP_H
#define FLEXLAB_NN_GROUP_H

#include "flexlab/api.h"
#include "flexlab/tensor_life.h"
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A group of ranks. Every rank makes the same calls in the same order; a call that concerns all ranks waits for them.
 * One thread uses a group at a time. */
typedef struct nn_group nn_group;

/* Joins the group that an engine has started: "none" is a group of one rank; "mpi" has the ranks of mpirun, and needs
 * libflexlab_mpi.so beside the library, or the file that the environment variable FLEXLAB_MPI_LIBRARY names by its
 * absolute path. The engine initialises MPI unless the program has done so, and works on a communicator of its own.
 * "nccl" has ranks with a CUDA device each, and needs libflexlab_nccl.so, or FLEXLAB_NCCL_LIBRARY likewise. They are
 * those of mpirun, which find each other by the engine "mpi"; or, where the environment of each says so, those of
 * FLEXLAB_NCCL_RANK=RANK/RANKS (0/4 ... 3/4) and NCCL_COMM_ID=HOST:PORT, the same for all, with a free port of rank 0's
 * host; or one. The n-th rank of a host takes the n-th device that it sees, modulo their number, and makes it the
 * current one of the calling thread. It has run on no GPU yet.
 * NULL on failure: TENSOR_E_ARGUMENT for an unknown engine or a FLEXLAB_NCCL_RANK that is no such text,
 * TENSOR_E_UNSUPPORTED without its library, if MPI offers no threads (MPI_THREAD_FUNNELED) or without a CUDA device,
 * TENSOR_E_DEVICE for a failure of MPI, CUDA or NCCL. One group of an engine exists at a time. */
FLEXLAB_API nn_group *nn_group_new(const char *engine);
/* Engine "nccl" moves the bytes of a group that engine "mpi" or a communicator has made, from now on; the ranks and
 * their numbers stay. The statuses are those of nn_group_new, and TENSOR_E_ARGUMENT for another engine, another group
 * or one within a step. If all ranks have failed alike, as without a device, the group is what it was. If one has
 * failed while the others began, every later call of it returns TENSOR_E_DEVICE: it says why and calls
 * nn_group_abort. */
FLEXLAB_API tensor_status nn_group_set_engine(nn_group *group, const char *engine);
/* What nn_group_from_mpi of nn_group_mpi.h calls: the ranks of a communicator that the program brings. communicator
 * points to an MPI_Comm, which has that many bytes; kind is NN_MPI_KIND. */
FLEXLAB_API nn_group *nn_group_from_handle(const void *communicator, size_t bytes, const char *kind);
/* The number of processes that mpirun, or Slurm's srun by PMIx or PMI-2, says it has started, this one among them; 1
 * without either. It initialises nothing: a program that joins a group only where there are others asks it first. */
FLEXLAB_API int nn_group_started(void);
/* Leaves the group, after the last network that uses it was freed; finalises MPI if nn_group_new has initialised it.
 * All ranks do so. NULL is allowed. */
FLEXLAB_API void nn_group_free(nn_group *group);
/* The number of this rank, from 0, and of all ranks. 0 and 1 for NULL. */
FLEXLAB_API int nn_group_rank(const nn_group *group);
FLEXLAB_API int nn_group_size(const nn_group *group);
/* The device of that name for this rank, as nn_config.device chooses it: the ranks of a host share its GPUs, of which
 * "cuda" is the first for the first of these ranks, the second for the second, and so on, counted round. Any other
 * name, and any for NULL, is that of tensor_device_find. */
FLEXLAB_API tensor_device *nn_group_device(const nn_group *group, const char *name);
/* The seconds that a call waits for other ranks before it fails with TENSOR_E_DEVICE and the names of those that did
 * not arrive: 30, or what the environment variable FLEXLAB_GROUP_TIMEOUT says. Where ranks work for unequally long
 * (compilation, evaluation, a checkpoint) it waits ten times as many. TENSOR_E_ARGUMENT for a number that is not above
 * 0 and at most 10^6. */
FLEXLAB_API tensor_status nn_group_set_timeout(nn_group *group, double seconds);
/* Ends all ranks, whatever they do: prints the message with this rank's number, and does not return. For a failure of
 * one rank that the others cannot know. If MPI does not return, this process ends after some seconds. Ranks of NCCL
 * that mpirun has not started end when they learn of it, or after their timeout. */
FLEXLAB_API void nn_group_abort(nn_group *group, const char *message);

/* Every rank gives a number; all learn that of rank 0 and the largest: of statuses, whether a rank has failed.
 * TENSOR_E_ARGUMENT for NULL; TENSOR_E_DEVICE if a rank does not arrive. */
FLEXLAB_API tensor_status nn_group_worst(nn_group *group, int32_t own, int32_t *first, int32_t *largest);

/* Since the group was made. */
typedef struct nn_group_statistics {
    int64_t sent, received; /* bytes between ranks, by this one */
    int64_t calls;          /* exchanges between ranks */
    double waited;          /* seconds in which this rank did nothing else but exchange */
    double overlapped;      /* seconds in which bytes were under way while it computed */
} nn_group_statistics;
/* TENSOR_E_ARGUMENT for NULL. */
FLEXLAB_API tensor_status nn_group_statistics_of(nn_group_statistics *now, const nn_group *group);

#ifdef __cplusplus
}
#endif
#endif
