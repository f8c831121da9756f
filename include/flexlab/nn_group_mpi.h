/* nn_group_mpi.h - a group of the ranks of the program's own communicator. The only header that needs mpi.h, that of
 * the implementation for which libflexlab_mpi.so was built; no part of nn.h. */
#ifndef FLEXLAB_NN_GROUP_MPI_H
#define FLEXLAB_NN_GROUP_MPI_H

#include "flexlab/api.h"
#include "flexlab/nn_group.h"
#include <mpi.h>

/* Implementations of one kind have one binary interface. */
#if defined(MPI_ABI_VERSION)
#define NN_MPI_KIND "the standard's interface of MPI"
#elif defined(OPEN_MPI)
#define NN_MPI_KIND "Open MPI"
#elif defined(MPICH_VERSION) || defined(I_MPI_VERSION)
#define NN_MPI_KIND "MPICH"
#else
#define NN_MPI_KIND "another MPI"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* A group of the ranks of a communicator, of which all make this call; there may be several groups of communicators.
 * MPI is initialised by the program, with MPI_THREAD_FUNNELED or more, and finalised by it after nn_group_free; the
 * engine works on a copy of the communicator. NULL on failure, as nn_group_new, and TENSOR_E_ARGUMENT for
 * MPI_COMM_NULL, a communicator between two groups, one of another implementation than libflexlab_mpi.so was built for,
 * or a thread that MPI does not serve. After a failure of the group nn_group_free does not end the other ranks, as it
 * does else: the program decides what becomes of them (MPI_Abort). */
static inline nn_group *nn_group_from_mpi(MPI_Comm communicator) {
    return nn_group_from_handle(&communicator, sizeof communicator, NN_MPI_KIND);
}

#ifdef __cplusplus
}
#endif
#endif
