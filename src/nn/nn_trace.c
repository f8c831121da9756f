/* nn_trace.c - exponents, extremes and counts of every shared-exponent tensor as CSV, a row each `every` steps. Counts
 * and maxima of the steps between two rows are in the later one, so that the counts of all rows add up to those of the
 * run. The file gets its name when it is complete; until then it is PATH.part. */
#include "nn/nn_graph.h"
#include "core/fail.h"
#include "core/memory.h"
#include "core/text.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* One tensor since its last row. */
struct interval {
    double maximum;
    int maximum_e; /* the exponent that the write with that maximum had */
    int gamma;
    tensor_stats before; /* totals at the last row */
    uint64_t low, high;  /* clamped until the last row */
    int64_t writes;      /* until the last step */
};

struct fl_trace {
    FILE *file;
    char *path, *part;
    int every;
    bool finished;
    const nn_graph *graph; /* of the last step */
    struct interval *intervals;
    int64_t step, row_step; /* the last step, and the last with rows */
};

static const char heading[] = "step,tensor,role,e,gamma,predicted_maximum,maximum,saturated,flushed,nonfinite,"
                              "clamped_low,clamped_high,maximum_e\n";

static tensor_status io_failed(const char *what, const char *path) {
    return fl_fail(errno == ENOMEM ? TENSOR_E_MEMORY : TENSOR_E_IO, "trace: cannot %s %s: %s", what, path,
                   strerror(errno));
}

tensor_status fl_trace_open(struct fl_trace **trace, const char *path, int every) {
    *trace = NULL;
    if (!path)
        return TENSOR_OK;
    if (every < 1)
        return fl_fail(TENSOR_E_ARGUMENT, "trace: every %d steps, expected at least 1", every);
    struct fl_trace *t = fl_alloc_zero(sizeof *t);
    if (!t)
        return fl_fail(TENSOR_E_MEMORY, "trace: no memory");
    t->every = every;
    t->path = fl_strdup(path);
    t->part = fl_alloc(strlen(path) + sizeof ".part");
    if (!t->path || !t->part) {
        fl_trace_free(t);
        return fl_fail(TENSOR_E_MEMORY, "trace: no memory for the path");
    }
    strcpy(t->part, path);
    strcat(t->part, ".part");
    t->file = fopen(t->part, "w");
    if (!t->file || fputs(heading, t->file) < 0) {
        tensor_status status = io_failed("write", t->part);
        fl_trace_free(t);
        return status;
    }
    *trace = t;
    return TENSOR_OK;
}

static tensor_status begin(struct fl_trace *trace, const nn_graph *g) {
    trace->graph = g;
    if (!trace->intervals)
        trace->intervals = fl_alloc_zero((size_t)nn_tensor_count(g) * sizeof *trace->intervals);
    return trace->intervals ? TENSOR_OK
                            : fl_fail(TENSOR_E_MEMORY, "trace: no memory for %d tensors", nn_tensor_count(g));
}

/* A training step writes a tensor once, so that its last write is all that the step adds. */
static tensor_status observe(struct interval *since, const tensor *t) {
    tensor_stats last, total;
    FL_TRY(tensor_statistics(t, &last, &total));
    if (total.writes == since->writes)
        return TENSOR_OK;
    since->writes = total.writes;
    if (last.gamma > since->gamma)
        since->gamma = last.gamma;
    if (last.maximum >= since->maximum) {
        since->maximum = last.maximum;
        since->maximum_e = tensor_exponent(t);
    }
    return TENSOR_OK;
}

static tensor_status write_row(struct fl_trace *trace, const nn_tensor_info *info, struct interval *since) {
    const struct autoflex *state = tensor_autoflex(info->t);
    if (!state)
        return tensor_error_status();
    const struct autoflex now = *state, *a = &now;
    const tensor_stats *before = &since->before;
    tensor_stats total;
    FL_TRY(tensor_statistics(info->t, NULL, &total));
    if (fl_print(trace->file, "%lld,%s,%s,%d,%d,%.9g,%.9g,%lld,%lld,%lld,%llu,%llu,%d\n", (long long)trace->step,
                 info->name, info->role, tensor_exponent(info->t), since->gamma, a->predicted, since->maximum,
                 (long long)(total.saturated - before->saturated), (long long)(total.flushed - before->flushed),
                 (long long)(total.nonfinite - before->nonfinite), (unsigned long long)(a->clamped_low - since->low),
                 (unsigned long long)(a->clamped_high - since->high), since->maximum_e) < 0)
        return io_failed("write", trace->part);
    *since = (struct interval){.maximum_e = since->maximum_e,
                               .before = total,
                               .low = a->clamped_low,
                               .high = a->clamped_high,
                               .writes = total.writes};
    return TENSOR_OK;
}

static tensor_status write_rows(struct fl_trace *trace) {
    for (int i = 0; i < nn_tensor_count(trace->graph); i++) {
        nn_tensor_info info = nn_tensor_at(trace->graph, i);
        if (tensor_autoflex(info.t))
            FL_TRY(write_row(trace, &info, &trace->intervals[i]));
    }
    trace->row_step = trace->step;
    return TENSOR_OK;
}

tensor_status fl_trace_step(struct fl_trace *trace, const nn_graph *g, int64_t step) {
    if (!trace)
        return TENSOR_OK;
    FL_TRY(begin(trace, g));
    trace->step = step;
    for (int i = 0; i < nn_tensor_count(g); i++) {
        const tensor *t = nn_tensor_at(g, i).t;
        if (tensor_autoflex(t))
            FL_TRY(observe(&trace->intervals[i], t));
    }
    return (step - 1) % trace->every ? TENSOR_OK : write_rows(trace);
}

tensor_status fl_trace_finish(struct fl_trace *trace) {
    if (!trace)
        return TENSOR_OK;
    if (trace->step != trace->row_step)
        FL_TRY(write_rows(trace));
    FILE *file = trace->file;
    bool failed = ferror(file) != 0;
    trace->file = NULL;
    const bool closed = fclose(file) == 0;
    if (closed && failed)
        errno = EIO; /* that of the write is gone */
    if (!closed || failed)
        return io_failed("write", trace->part);
    if (rename(trace->part, trace->path))
        return io_failed("rename the finished trace to", trace->path);
    trace->finished = true;
    return TENSOR_OK;
}

void fl_trace_free(struct fl_trace *trace) {
    if (!trace)
        return;
    if (trace->file)
        fclose(trace->file);
    if (trace->part && !trace->finished)
        remove(trace->part);
    fl_free(trace->intervals);
    fl_free(trace->path);
    fl_free(trace->part);
    fl_free(trace);
}
