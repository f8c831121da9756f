/* nn_trace.c - exponents and extremes of every shared-exponent tensor, step by step, as CSV. The file gets its name
 * when it is complete; until then it is PATH.part. */
#include "nn/nn_graph.h"
#include "core/fail.h"
#include "core/memory.h"
#include "core/text.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

struct fl_trace {
    FILE *file;
    char *path, *part;
    int every;
    bool finished;
};

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
    if (!t->file || fputs("step,tensor,role,e,gamma,predicted_maximum,maximum,saturated,flushed\n", t->file) < 0) {
        tensor_status status = io_failed("write", t->part);
        fl_trace_free(t);
        return status;
    }
    *trace = t;
    return TENSOR_OK;
}

tensor_status fl_trace_step(struct fl_trace *trace, const nn_graph *g, int64_t step) {
    if (!trace || (step - 1) % trace->every)
        return TENSOR_OK;
    for (int i = 0; i < nn_tensor_count(g); i++) {
        nn_tensor_info info = nn_tensor_at(g, i);
        const struct autoflex *a = tensor_autoflex(info.t);
        tensor_stats last;
        if (!a)
            continue;
        FL_TRY(tensor_statistics(info.t, &last, NULL));
        if (fl_print(trace->file, "%lld,%s,%s,%d,%d,%.9g,%.9g,%lld,%lld\n", (long long)step, info.name, info.role,
                     tensor_exponent(info.t), (int)last.gamma, a->predicted, last.maximum, (long long)last.saturated,
                     (long long)last.flushed) < 0)
            return io_failed("write", trace->part);
    }
    return TENSOR_OK;
}

tensor_status fl_trace_finish(struct fl_trace *trace) {
    if (!trace)
        return TENSOR_OK;
    FILE *file = trace->file;
    trace->file = NULL;
    if (fclose(file))
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
    fl_free(trace->path);
    fl_free(trace->part);
    fl_free(trace);
}
