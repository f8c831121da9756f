/* program_object.h - the members of a program (include/flexlab/program.h). */
#ifndef FL_PROGRAM_OBJECT_H
#define FL_PROGRAM_OBJECT_H

#include "program/network/network.h"
#include "flexlab/program.h"

struct fl_plan;
struct fl_operator;

/* A constant as a tensor, for all plans of the program. */
struct fl_program_constant {
    const void *owner; /* the value's constant, or the node */
    int key;           /* which one of a node; -1 for a value */
    tensor_format format;
    int layout[TENSOR_MAX_DIMS];
    tensor *t;
};

struct fl_program {
    struct fl_network *network;
    /* The operator of a node; NULL: there is none. */
    const struct fl_operator *(*find)(const char *domain, const char *op);
    tensor_device *device;
    int constant_count, constant_room;
    struct fl_program_constant *constants;
    struct fl_plan *plan;            /* of the shapes that it ran with last */
    struct fl_network *joined;       /* memory of the results of several batches */
    program_watcher *watcher;        /* of all results; NULL: none */
    void *watching;                  /* its context */
    bool observing;                  /* ranges are noted, and floats computed in fp32 */
    struct fl_network *statistics;   /* memory of histograms while they are needed; NULL: none */
    program_quantisation how;        /* nodes marked int8 are to be quantised */
    struct fl_program_layer *layers; /* of quantised nodes: plan_layers.c */
};
void fl_program_free_layers(struct fl_program *program);

/* The program of a network, which belongs to it from then on, also after a failure; stored: passes have run on it. */
tensor_status fl_program_of(program **p, struct fl_network *network, bool stored);

/* A node as callers see it. */
program_node fl_program_node(const struct fl_network *n, const struct fl_net_node *node);

/* Plans a program for inputs of these types and shapes; integers have their numbers too. */
tensor_status fl_plan_make(struct fl_plan **plan, struct fl_program *program, const program_array *inputs,
                           bool specialised);
void fl_plan_free(struct fl_plan *plan);
/* Whether a plan serves these inputs. */
bool fl_plan_serves(const struct fl_plan *plan, const program_array *inputs);
/* Runs it. outputs point to memory of the plan. */
tensor_status fl_plan_run(struct fl_plan *plan, program_array *outputs, const program_array *inputs);
/* TENSOR_E_UNSUPPORTED if nodes are to be quantised beside integers that are rounded otherwise. */
tensor_status fl_program_may_quantise(const struct fl_program *p);
/* Ends a calibration, if one has begun, and quantises marked nodes by the ranges of values. */
tensor_status fl_program_end_calibration(struct fl_program *p);
/* Forgets plan and constants: formats or exponents have changed. */
void fl_program_reset(struct fl_program *program);

/* Exponents of ranges are those of 16-bit mantissas. What is to be added for a tensor, so that the same numbers have
 * the same place below the largest mantissa, or below the largest power of two of floats. */
static inline int fl_exponent_shift(const tensor *t) {
    const struct autoflex *const a = tensor_autoflex(t);
    const int places = a->largest > 0 ? autoflex_floor_log2(a->largest) : tensor_format_bits(tensor_format_of(t)) - 1;
    return places - (AUTOFLEX_BITS - 1);
}

#endif
