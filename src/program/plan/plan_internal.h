/* plan_internal.h - the members of a plan and of its planner, for plan.c, plan_memory.c and plan_run.c. */
#ifndef FL_PROGRAM_PLAN_INTERNAL_H
#define FL_PROGRAM_PLAN_INTERNAL_H

#include "program/arrays/operators.h"
#include "program/plan/plan.h"
#include "program/plan/program_object.h"

enum fl_slot_kind { FL_SLOT_OWN, FL_SLOT_VIEW, FL_SLOT_STRIDED, FL_SLOT_CONSTANT };

/* A tensor of the plan. Views have the format, exponent and life of their base. */
struct fl_slot {
    enum fl_slot_kind kind;
    tensor_format format;
    int ndim, base;
    int64_t dim[TENSOR_MAX_DIMS], stride[TENSOR_MAX_DIMS], offset;
    struct fl_range *range; /* whose exponent it has; NULL: a constant's own, or none */
    int first, last;        /* steps that write it first and use it last; -1: before the first step */
    size_t at, bytes;
    bool owned; /* a constant of this plan alone */
    bool copy;  /* of a tensor in another order or format, whose range it has */
    tensor *t;
};

/* An operand or result of a step on arrays of the host: an array, whose numbers a tensor has if slot >= 0. */
struct fl_host_operand {
    struct fl_array array;
    int slot;
    size_t at;   /* in the workspace, of a slot's numbers */
    bool absent; /* not given, or read by nobody */
    bool bytes;  /* the slot's own elements are those of the array */
};
struct fl_host_call {
    const struct fl_operator *of;
    int in_count, out_count;
    struct fl_host_operand *operands; /* in_count, then out_count */
    const struct fl_array **in;       /* their arrays, set before each run */
    struct fl_array **out;
};

struct fl_step {
    const struct fl_net_node *node;
    fl_step_run *run;
    const struct fl_host_call *host; /* in place of run */
    const void *with;
    int written, count;
    int slots[FL_STEP_SLOTS];
};

/* A known input or output of the program: where its numbers go. */
struct fl_port {
    int value, slot;
    struct fl_array array; /* its numbers where no tensor has them; else what the port looks like, without data */
};

/* A tensor for program_watch: a result of a node, or a cast of one. */
struct fl_mark {
    const struct fl_net_node *node; /* which computes it, or reads the cast */
    int value, slot;                /* slot -1: array has the numbers */
    int before, after;              /* steps ahead of the node; steps after which it is complete */
    bool cast;
    int layout[TENSOR_MAX_DIMS];
    struct fl_array array;
};

struct fl_plan {
    struct fl_program *program;
    bool specialised; /* integer inputs and short lists of floats are a part of the plan */
    int slot_count, slot_room, step_count, step_room, mark_count, mark_room;
    struct fl_slot *slots;
    struct fl_step *steps;
    struct fl_mark *marks; /* in the order in which they become complete */
    struct fl_port *inputs, *outputs;
    struct fl_network *memory; /* of everything that the plan points to */
    size_t arena_bytes, workspace_bytes;
    void *arena, *workspace;
};

/* A tensor that was prepared for another format or layout. */
struct fl_prepared {
    int value, slot;
    tensor_format format;
    int layout[TENSOR_MAX_DIMS];
};

struct fl_planner {
    struct fl_plan *plan;
    struct fl_program *program;
    struct fl_network *network;
    struct fl_known *known; /* of each value */
    int prepared_count, prepared_room;
    struct fl_prepared *prepared;
    int temporaries; /* that the node at hand has */
};

/* The numbers of an input as those of an array of its shape. */
void fl_port_numbers(const struct fl_array *a, const program_array *input);

/* Shows the watcher of the program what has become complete with the first `done` steps. *next: the first mark that was
 * not shown yet (plan_trace.c). */
tensor_status fl_trace(struct fl_plan *plan, int done, int *next);

/* Lays the slots out in one arena, and makes the tensors. */
tensor_status fl_plan_place(struct fl_plan *plan);

/* Puts the name of a node before the message of the last failure, whose status it returns. */
tensor_status fl_plan_failed(const struct fl_net_node *node, tensor_status status);

#endif
