/* nn_trace.h - exponents, extremes and counts of every shared-exponent tensor, as CSV (docs/output.md). */
#ifndef FL_NN_TRACE_H
#define FL_NN_TRACE_H

#include "nn/graph/nn_graph.h"

struct fl_trace;
/* NULL path: *trace is NULL, on which the functions below do nothing. */
tensor_status fl_trace_open(struct fl_trace **trace, const char *path, int every);
/* After every training step, from 1; always the same graph. Rows at steps 1, 1 + every, 1 + 2 every, ... */
tensor_status fl_trace_step(struct fl_trace *trace, const nn_graph *g, int64_t step);
/* What a checkpoint keeps of a trace, to be freed with fl_trace_kept_clear: the file so far, and the intervals since
 * the last rows as plain numbers, FL_TRACE_WHOLE and one a tensor, after the last step and the last with rows. */
enum { FL_TRACE_WHOLE = 8 };
struct fl_trace_kept {
    char *text;
    int64_t *whole;
    double *real;
    int64_t bytes, whole_count, real_count;
};
tensor_status fl_trace_keep(struct fl_trace *trace, const nn_graph *g, struct fl_trace_kept *kept);
void fl_trace_kept_clear(struct fl_trace_kept *kept);
/* A trace just opened goes on from there; the graph has the state of that checkpoint. TENSOR_E_DATA for numbers that no
 * trace of this graph has. */
tensor_status fl_trace_resume(struct fl_trace *trace, const nn_graph *g, const struct fl_trace_kept *kept);
/* Rows of the steps since the last row, then gives the file its final name. The graph must still exist. */
tensor_status fl_trace_finish(struct fl_trace *trace);
/* Frees; removes what was not finished. */
void fl_trace_free(struct fl_trace *trace);

#endif
