/* gpu_blocks.h - products whose operands are taken in blocks, or whose operands and result are of different formats, on
 * the device: what the host says of such a task. */
#ifndef FL_GPU_BLOCKS_H
#define FL_GPU_BLOCKS_H

#include "blocks/block_geometry.h"
#include "flexlab/version.h"
#include "gpu/gpu_plugin.h"

enum { FL_GPU_ADDENDS = 2 }; /* bias, residual */

/* A tensor as doubles in the workspace, or for chains as binary32. view.data NULL: there is none. */
struct fl_gpu_numbers {
    const struct fl_format *format;
    struct fl_view view;
    bool is_made; /* from its parameters, which are */
    struct fl_minifloat made;
    void *to;
};

/* The exponents of a row that are neither zero nor NaN; least > most: there are none. */
struct fl_gpu_row {
    int16_t least, most;
    bool has_nan;
};

struct fl_gpu_block_operand {
    struct fl_gpu_numbers from;
    struct fl_block_format format; /* without a block: mantissas, as they are */
    struct fl_block_source source;
    struct fl_block_rows out;
    struct fl_gpu_row *rows;
    uint32_t *maximum; /* the word of the largest finite magnitude, where the tensor has a scale */
    uint64_t key;      /* of draws */
};

struct fl_gpu_blocks {
    struct fl_gpu_block_operand in[2];
    struct fl_gpu_numbers addend[FL_GPU_ADDENDS];
    struct fl_block_matrices matrices;
    uint32_t signs; /* of Hadamard transforms */
    int64_t count;  /* of results */
    double *high, *low;
    bool chains;    /* of binary32: only `from` of the operands, addends and `results` are used */
    float *results; /* of chains; NULL: they are those of the task */
};

/* What the backend and the library must agree on. */
static inline struct fl_gpu_sources fl_gpu_sources(void) {
    const struct fl_gpu_sources of = {
        FL_GPU_VERSION,
        FLEXLAB_VERSION_STRING,
        sizeof(struct fl_call) + sizeof(struct fl_args) + sizeof(struct fl_gpu_floats) + sizeof(struct fl_gpu_blocks) +
            2 * sizeof(struct fl_described) + 4 * sizeof(struct fl_moved) + 8 * sizeof(struct fl_sampled_sums) +
            16 * sizeof(struct fl_gpu_shadow) + 32 * sizeof(struct fl_shadowed) + 64 * sizeof(struct fl_measured),
        sizeof(struct fl_slot),
        sizeof(struct fl_gpu_failure),
        sizeof(struct fl_gpu_facts),
        fl_gpu_operations()};
    return of;
}

#endif
