/* plan_internal.h - the members of a plan and of its planner, and what its files share. */
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

/* --- slots (plan_slots.c) ----------------------------------------------------------------------------------------- */

extern const int fl_plan_in_order[TENSOR_MAX_DIMS]; /* the layout of the network */

/* A list of the plan's memory that gets one more element. */
void *fl_plan_grown(struct fl_plan *plan, void *list, int used, int *room, size_t size);
/* The number of a new slot; -1 with tensor_error(). */
int fl_plan_add_slot(struct fl_plan *plan, struct fl_slot slot);
/* Dimensions of a value's tensor in an order. One with more than tensors have is a line of numbers in the order of the
 * network; only compute() takes it (plan.c). */
int fl_plan_ordered(const struct fl_array *a, const int *layout, int64_t *dim);
/* The slot that a view is of, or the slot itself. */
int fl_plan_root_of(const struct fl_plan *plan, int slot);
/* Sets the shape of a slot; a scalar is one element in one dimension. False with tensor_error() if it has too many. */
bool fl_plan_set_shape(struct fl_slot *slot, int ndim, const int64_t *dim);
/* A slot for a constant: found, or made. Without an owner it is the plan's. */
int fl_plan_constant_slot(struct fl_planner *p, const void *owner, int key, tensor_format format,
                          const struct fl_array *array, const int *layout);

/* --- marks, which program_watch sees (plan_trace.c) --------------------------------------------------------------- */

/* Marks a value whose tensor is the slot, complete after the steps that there are now; before: steps ahead of the node.
 */
tensor_status fl_plan_add_mark(struct fl_planner *p, const struct fl_net_node *node, int value, int slot,
                               const int *layout, int before, bool cast);
/* Marks what a node has computed; results that are known before a run are none. */
tensor_status fl_plan_mark_results(struct fl_planner *p, const struct fl_net_node *node, int before);
/* Shows the watcher of the program what has become complete with the first `done` steps. *next: the first mark that was
 * not shown yet. */
tensor_status fl_trace(struct fl_plan *plan, int done, int *next);

/* --- the whole ---------------------------------------------------------------------------------------------------- */

static inline bool fl_plan_is_bytes(tensor_type type) {
    return type == TENSOR_TYPE_I8 || type == TENSOR_TYPE_U8;
}

/* The numbers of an input as those of an array of its shape. */
void fl_port_numbers(const struct fl_array *a, const program_array *input);

/* Lays the slots out in one arena, and makes the tensors. */
tensor_status fl_plan_place(struct fl_plan *plan);

/* Puts the name of a node before the message of the last failure, whose status it returns. */
tensor_status fl_plan_failed(const struct fl_net_node *node, tensor_status status);

#endif
