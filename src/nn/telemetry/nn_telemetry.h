/* nn_telemetry.h - the internals of telemetry: the data of each tensor of a step, its shadows, the records in files. */
#ifndef FL_NN_TELEMETRY_H
#define FL_NN_TELEMETRY_H

#include "nn/graph/nn_graph.h"
#include "nn/telemetry/nn_recorder.h"
#include "core/queue/fetch.h"
#include "core/queue/sampled.h"
#include "core/rows/describe_there.h"
#include <stdio.h>

/* A format that shadows the network's. */
struct fl_shadow {
    char *name; /* as given */
    tensor_format format;
    bool shared;
    float beyond;          /* the least number that does not fit; of a shared exponent 0 */
    struct autoflex first; /* of a new tensor of that format and predictor */
};

/* One tensor in the place of one shadow. */
struct fl_shadow_state {
    struct autoflex a;
    int64_t saturated_writes, e_moves; /* since the last row */
};

/* A write, for the list of those before a NaN or Inf. */
struct fl_seen_write {
    int64_t step; /* 0: none yet */
    int32_t e;
    int32_t unused;
    double maximum;
    int64_t saturated, flushed;
};

/* One tensor of nn_tensor_at. */
struct fl_seen_tensor {
    bool chosen, loaded;          /* loaded: not written by an operation, but loaded each step */
    bool ordered, settled;        /* settled: its exponent is one that a write or load chose */
    bool of_shard;                /* of several ranks' */
    int rank;                     /* the one that looks at it */
    int stretch;                  /* of the shard's pass, in which it was first written (nn_graph.stretch) */
    nn_telemetry_row row;         /* of this step and since the row before */
    tensor_description *elements; /* NULL: not chosen */
    struct fl_interval since;
    uint64_t shadowed; /* writes of the tensor's life, until the shadows last looked */
    struct fl_seen_write last[2];
    double *weight;                   /* before the update; NULL: no weight, or not chosen */
    double *weight_there;             /* the same on a device; NULL until it examines one */
    int64_t weight_step;              /* of that update; 0: none yet */
    int64_t there_step;               /* the last step with a write that the device examined; 0: none yet */
    int tensors;                      /* of the parameter whose weight this is, as many follow it; 0: no parameter's */
    struct fl_shadow_state *shadows;  /* NULL: not chosen */
    nn_telemetry_shadow *shadow_rows; /* as many */
};

/* What a device has found of a tensor in a step with rows. */
struct fl_found {
    struct fl_described elements;
    struct fl_moved update; /* of a weight */
    struct fl_sampled_sums sampled;
};

/* A step whose slots are on their way from a device. */
enum { FL_LATE_STEPS = 4 };
struct fl_late_step {
    int64_t step;
    bool rows;
    bool has_loss;           /* the network then, and the updates that it had submitted: */
    struct fl_writes writes; /* which parts were written */
    uint64_t updates;
    struct fl_slot_copies *slots; /* NULL until the first use */
    struct fl_fetch fetch, found; /* found: with rows */
    double *shares;               /* of its shards in the loss; NULL until the first use */
};

/* Called of each step that was examined, in order; first: its first write that is not finite, by those slots. */
struct fl_first;
typedef tensor_status fl_step_arrived(void *context, int64_t step, const struct fl_slot_copies *slots,
                                      const struct fl_first *first, double skipped_in_a_row);

struct nn_telemetry {
    nn_graph *g;
    struct fl_recorder recorder; /* of that network */
    int rank;                    /* of the network's group; 0 writes */
    bool watched;                /* the caller watches */
    bool begun;                  /* the network knows of it */
    bool finished;
    char *pattern, *shadow_list;
    void (*row)(void *context, const nn_telemetry_row *row);
    void *context;
    struct fl_shadow shadows[FL_MOST_SHADOWS];
    int shadow_count;
    bool shadows_here;              /* the host alone can predict an exponent of theirs */
    struct fl_seen_tensor *tensors; /* as nn_tensor_at has them */
    int count, chosen;
    int *order, ordered; /* of writes: numbers of tensors */
    int merged;          /* as many of these are those of all ranks, in the order of one */
    bool all_ordered;    /* a step that made its update was watched */
    double *scratch;     /* as many as the largest weight has elements */
    bool wanted;         /* the next step has rows */
    bool describing;     /* the step under way has rows */
    bool there;          /* ... and the device examines its elements */
    int64_t steps, rows;
    struct fl_sampling sampling;  /* of the writes of steps with rows */
    struct fl_slot_copies *slots; /* of a device */
    fl_step_arrived *arrived;     /* NULL: nobody asks */
    bool may_be_late;             /* else each step is examined at its end */
    void *arrived_context;
    struct fl_late_step late[FL_LATE_STEPS]; /* a ring */
    int late_first, late_count;
    bool arriving;                        /* such steps are being examined */
    void *told_there, *told;              /* struct told: on the device one for each late step, and one here */
    double *numbers_there;                /* on the device: for the elements of a tensor */
    struct fl_found *found_there, *found; /* of each tensor: on the device, and a copy; NULL until the first use */
    struct fl_fetch found_now;            /* within a step */
    struct fl_measured *measured_there, *measured; /* of each tensor's shadows: behind these */
    struct fl_shadowed *shadows_there;             /* on the device, of each tensor; NULL until the first use */
    bool following;                                /* these follow all writes, as the host does some steps later */
    uint64_t forgotten;                            /* of the network, at the last step */
    tensor_status status;                          /* of what failed while watching */
    tensor_status owed; /* of steps that failed to arrive in a call that returns no status: the next one does */
    char message[512], owed_message[512];
    nn_nonfinite nonfinite; /* step 0: none so far */
    nn_seen_write before[NN_NONFINITE_BEFORE];
    bool nonfinite_known; /* in an earlier part of the training */
    struct fl_rows_file json, csv;
};

/* nn_telemetry.c: watches the next step, where it has rows. */
tensor_status fl_telemetry_watch_next(nn_telemetry *t);

/* Tells the caller of each step that was examined; late: which may be some steps later. */
void fl_telemetry_tell(nn_telemetry *t, fl_step_arrived *arrived, void *context, bool late);
/* Takes a failure that the next call with a status returns. */
void fl_telemetry_owe(nn_telemetry *t, tensor_status status);
/* Lets shadows follow the tensor's write of that number in its life, unless they have. */
void fl_telemetry_see(const nn_telemetry *t, struct fl_seen_tensor *seen, uint64_t number, double maximum);
/* The size of an update of the tensor, by those sums. */
void fl_telemetry_moved(struct fl_seen_tensor *seen, double step, double size, int64_t moved);
void fl_telemetry_not_moved(nn_telemetry_row *row);
void fl_telemetry_set_sampled(nn_telemetry_row *row, struct fl_sampled s);
/* Examines the writes of a step; rows: it has records. */
tensor_status fl_telemetry_examine(nn_telemetry *t, bool rows, double skipped_in_a_row);

/* nn_telemetry_late.c */
/* Whether what the host needs of the step can be fetched behind it. */
bool fl_telemetry_can_fetch(const nn_telemetry *t);
/* Lets shadows on the device follow all writes from the next step on, and the device examine the elements of that step,
 * if it can. */
tensor_status fl_telemetry_examine_there(nn_telemetry *t);
/* Begins to copy what the last step has left, and waits for it where nothing may be late. */
tensor_status fl_telemetry_later(nn_telemetry *t);
/* Examines all steps but the last `left`, for which it waits. It returns the first failure; only such steps are lost.
 */
tensor_status fl_telemetry_arrive(nn_telemetry *t, int left);
/* The same of all, and lets shadows follow what the device has examined of the present step, before a pass of it writes
 * these tensors again. */
void fl_telemetry_pass_begins(nn_telemetry *t);
void fl_telemetry_late_free(nn_telemetry *t);

/* nn_telemetry_rows.c: files, NULL: none */
tensor_status fl_telemetry_open(nn_telemetry *t, const char *json, const char *csv);
tensor_status fl_telemetry_write_row(nn_telemetry *t, const nn_telemetry_row *row);
tensor_status fl_telemetry_write_nonfinite(nn_telemetry *t);
/* The last line; the files get their names. */
tensor_status fl_telemetry_close(nn_telemetry *t);
/* Removes what was not closed. */
void fl_telemetry_drop(nn_telemetry *t);

/* nn_telemetry_ranks.c: every tensor of a shard belongs to the rank that computes it; those of parameters, of which all
 * ranks have the same, to one rank each. What is known of a tensor is true on that rank. */
void fl_telemetry_place(nn_telemetry *t);
static inline bool fl_telemetry_is_own(const nn_telemetry *t, const struct fl_seen_tensor *seen) {
    return seen->rank == t->rank;
}
/* After a step, in which tensors may have been written for the first time: the order of their writes becomes that of
 * one rank. */
tensor_status fl_telemetry_bring_order(nn_telemetry *t);
/* Brings the rows of all tensors in the order of writes to rank 0. */
tensor_status fl_telemetry_bring_rows(nn_telemetry *t);

/* nn_telemetry_shadow.c */
tensor_status fl_shadows_parse(nn_telemetry *t, const char *list);
void fl_shadows_clear(nn_telemetry *t);
/* Before the first step that is looked at. */
tensor_status fl_shadows_begin(nn_telemetry *t, struct fl_seen_tensor *seen, const tensor *x, const char *role);
/* A write whose largest magnitude before rounding is known. */
void fl_shadows_see(const nn_telemetry *t, struct fl_seen_tensor *seen, double maximum);
/* What a shadow makes of a tensor's elements, for its row. */
void fl_shadow_measured(nn_telemetry_shadow *row, const tensor_measure *m, int e);
/* The elements of that write. */
tensor_status fl_shadows_measure(const nn_telemetry *t, struct fl_seen_tensor *seen, const tensor *x);

/* nn_telemetry_keep.c: in a checkpoint of a training */
struct fl_telemetry_kept {
    char *json, *csv;
    int64_t *whole;
    double *real;
    int64_t json_bytes, csv_bytes, whole_count, real_count;
};
/* Brings what a checkpoint has of each tensor to all ranks. */
tensor_status fl_telemetry_bring(nn_telemetry *t);
tensor_status fl_telemetry_keep(nn_telemetry *t, struct fl_telemetry_kept *kept);
void fl_telemetry_kept_clear(struct fl_telemetry_kept *kept);
/* Lets new telemetry resume from these numbers. TENSOR_E_DATA if they cannot belong to this network. */
tensor_status fl_telemetry_resume(nn_telemetry *t, const struct fl_telemetry_kept *kept);

#endif
