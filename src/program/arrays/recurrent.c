/* recurrent.c - RNN, GRU and LSTM, step by step along sequences. */
#include "program/arrays/functions.h"
#include "program/arrays/windows.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/base/parallel.h"
#include <string.h>

enum { GATES = 4, OPERANDS = 8 };
enum activation { TANH, SIGMOID, RELU };
enum { X, W, R, B, LENGTHS, START, CELL, PEEPHOLES };

struct recurrent {
    const struct fl_arrays *a;
    char kind;        /* the first letter of the operator */
    int gates, steps; /* activations of a direction: one less than the gates of LSTM */
    bool batch_first, linear_before_reset, coupled;
    int64_t length, batch, input, hidden, directions;
    int backwards; /* the direction that goes backwards; -1: none */
    double clip;
    enum activation activation[2 * GATES]; /* of each direction */
    const double *numbers[OPERANDS];       /* NULL: not given */
    double *scratch;                       /* of each sequence: state, cell, sums */
};

static tensor_status read_activations(struct recurrent *r) {
    static const char *const names[] = {"Tanh", "Sigmoid", "Relu"};
    static const enum activation usual[3][3] = {{TANH}, {SIGMOID, TANH}, {SIGMOID, TANH, TANH}};
    const struct fl_net_attribute *const given = fl_net_find(r->a->node, "activations");
    const int all = r->steps * (int)r->directions;
    if (given && given->count != all)
        return fl_fail(TENSOR_E_DATA, "%d activations, expected %d", given->count, all);
    for (int i = 0; i < all; i++) {
        int found = given ? 0 : (int)usual[r->steps - 1][i % r->steps];
        while (given && found < 3 && strcmp(given->strings[i], names[found]) != 0)
            found++;
        if (found == 3)
            return fl_fail(TENSOR_E_UNSUPPORTED, "activation \"%s\", expected Tanh, Sigmoid or Relu",
                           given->strings[i]);
        r->activation[i] = (enum activation)found;
    }
    return TENSOR_OK;
}

static tensor_status want_shape(const struct recurrent *r, int operand, const char *what, int ndim,
                                const int64_t *dim) {
    const struct fl_array *const x = fl_operand(r->a, operand);
    for (int d = 0; x && d < ndim; d++)
        if (x->ndim != ndim || x->dim[d] != dim[d])
            return fl_fail(TENSOR_E_SHAPE, "dimension %d of %s (of %d) is %lld, expected %lld (of %d)", d, what,
                           x->ndim, d < x->ndim ? (long long)x->dim[d] : 0, (long long)dim[d], ndim);
    return TENSOR_OK;
}

static tensor_status read_recurrent(struct recurrent *r, const struct fl_arrays *a) {
    const struct fl_array *const x = a->in[X], *const recurrence = a->in[R];
    const char *const direction = fl_net_string(a->node, "direction", "forward");
    *r = (struct recurrent){.a = a, .kind = a->node->op[0]};
    TRY(fl_want_float(a, 0));
    if (x->ndim != 3 || a->in[W]->ndim != 3 || recurrence->ndim != 3)
        return fl_fail(TENSOR_E_SHAPE, "operands of %d, %d and %d dimensions, expected 3 each", x->ndim, a->in[W]->ndim,
                       recurrence->ndim);
    r->gates = r->kind == 'L' ? 4 : r->kind == 'G' ? 3 : 1;
    r->steps = r->kind == 'L' ? 3 : r->kind == 'G' ? 2 : 1;
    r->batch_first = fl_net_int(a->node, "layout", 0) != 0;
    r->linear_before_reset = fl_net_int(a->node, "linear_before_reset", 0) != 0;
    r->coupled = fl_net_int(a->node, "input_forget", 0) != 0;
    r->clip = fl_net_find(a->node, "clip") ? (double)fl_net_float(a->node, "clip", 0) : HUGE_VAL;
    r->length = x->dim[r->batch_first];
    r->batch = x->dim[!r->batch_first];
    r->input = x->dim[2];
    r->hidden = recurrence->dim[2];
    r->directions = !strcmp(direction, "bidirectional") ? 2 : 1;
    r->backwards = r->directions == 2 ? 1 : !strcmp(direction, "reverse") ? 0 : -1;
    if (r->backwards < 0 && strcmp(direction, "forward") != 0)
        return fl_fail(TENSOR_E_DATA, "direction \"%s\", expected forward, reverse or bidirectional", direction);
    if (fl_net_int(a->node, "hidden_size", r->hidden) != r->hidden)
        return fl_fail(TENSOR_E_DATA, "hidden_size is %lld, expected the %lld columns of R",
                       (long long)fl_net_int(a->node, "hidden_size", 0), (long long)r->hidden);
    const int64_t d = r->directions, rows = r->gates * r->hidden;
    const int64_t b = r->batch_first ? d : r->batch, outer = r->batch_first ? r->batch : d;
    TRY(want_shape(r, W, "W", 3, (const int64_t[]){d, rows, r->input}));
    TRY(want_shape(r, R, "R", 3, (const int64_t[]){d, rows, r->hidden}));
    TRY(want_shape(r, B, "B", 2, (const int64_t[]){d, 2 * rows}));
    TRY(want_shape(r, LENGTHS, "sequence_lens", 1, &r->batch));
    TRY(want_shape(r, START, "initial_h", 3, (const int64_t[]){outer, b, r->hidden}));
    TRY(want_shape(r, CELL, "initial_c", 3, (const int64_t[]){outer, b, r->hidden}));
    TRY(want_shape(r, PEEPHOLES, "P", 2, (const int64_t[]){d, 3 * r->hidden}));
    return read_activations(r);
}

tensor_status fl_shape_recurrent(const struct fl_arrays *a) {
    struct recurrent r;
    const tensor_type type = a->in[0]->type;
    TRY(read_recurrent(&r, a));
    TRY(fl_shape_set(fl_result(a, 0), type, 4,
                     r.batch_first ? (const int64_t[]){r.batch, r.length, r.directions, r.hidden}
                                   : (const int64_t[]){r.length, r.directions, r.batch, r.hidden}));
    for (int i = 1; i < a->out_count; i++)
        TRY(fl_shape_set(fl_result(a, i), type, 3,
                         r.batch_first ? (const int64_t[]){r.batch, r.directions, r.hidden}
                                       : (const int64_t[]){r.directions, r.batch, r.hidden}));
    return TENSOR_OK;
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

static double activated(const struct recurrent *r, int64_t direction, int step, double x) {
    x = x < -r->clip ? -r->clip : x > r->clip ? r->clip : x;
    switch (r->activation[direction * r->steps + step]) {
    case TANH:
        return fl_tanh(x);
    case SIGMOID:
        return fl_sigmoid(x);
    case RELU:
        return x < 0 ? 0 : x;
    }
    return x;
}

static double dot(const double *a, const double *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* One gate's sum of the input, and of the state, with their biases. */
static double of_input(const struct recurrent *r, int64_t direction, int gate, int64_t i, const double *x) {
    const int64_t row = (direction * r->gates + gate) * r->hidden + i;
    const double *const b = r->numbers[B] ? r->numbers[B] + 2 * direction * r->gates * r->hidden : NULL;
    return dot(r->numbers[W] + row * r->input, x, r->input) + (b ? b[gate * r->hidden + i] : 0);
}

static double of_state(const struct recurrent *r, int64_t direction, int gate, int64_t i, const double *h) {
    const int64_t row = (direction * r->gates + gate) * r->hidden + i;
    const double *const b = r->numbers[B] ? r->numbers[B] + (2 * direction + 1) * r->gates * r->hidden : NULL;
    return dot(r->numbers[R] + row * r->hidden, h, r->hidden) + (b ? b[gate * r->hidden + i] : 0);
}

/* GRU: gates z, r and the new state. */
static void gru_step(const struct recurrent *r, int64_t d, const double *x, double *h, double *next, double *reset) {
    const int64_t n = r->hidden;
    for (int64_t i = 0; i < n; i++) {
        next[i] = activated(r, d, 0, of_input(r, d, 0, i, x) + of_state(r, d, 0, i, h));
        reset[i] = activated(r, d, 0, of_input(r, d, 1, i, x) + of_state(r, d, 1, i, h));
    }
    if (r->linear_before_reset)
        for (int64_t i = 0; i < n; i++)
            reset[i] *= of_state(r, d, 2, i, h);
    else
        for (int64_t i = 0; i < n; i++)
            reset[i] *= h[i];
    for (int64_t i = 0; i < n; i++) {
        const double sum = of_input(r, d, 2, i, x) + (r->linear_before_reset ? reset[i] : of_state(r, d, 2, i, reset));
        next[i] = (1 - next[i]) * activated(r, d, 1, sum) + next[i] * h[i];
    }
    memcpy(h, next, (size_t)n * sizeof *h);
}

/* LSTM: gates i, o, f, c. */
static void lstm_step(const struct recurrent *r, int64_t d, const double *x, double *h, double *next, double *c) {
    const int64_t n = r->hidden;
    const double *const p = r->numbers[PEEPHOLES] ? r->numbers[PEEPHOLES] + 3 * d * n : NULL;
    for (int64_t i = 0; i < n; i++) {
        double sum[GATES];
        for (int g = 0; g < GATES; g++)
            sum[g] = of_input(r, d, g, i, x) + of_state(r, d, g, i, h) + (p && !(g & 1) ? p[g * n + i] * c[i] : 0);
        const double in = activated(r, d, 0, sum[0]), forget = r->coupled ? 1 - in : activated(r, d, 0, sum[2]);
        c[i] = forget * c[i] + in * activated(r, d, 1, sum[3]);
        next[i] = activated(r, d, 0, sum[1] + (p ? p[n + i] * c[i] : 0)) * activated(r, d, 2, c[i]);
    }
    memcpy(h, next, (size_t)n * sizeof *h);
}

static void rnn_step(const struct recurrent *r, int64_t d, const double *x, double *h, double *next) {
    for (int64_t i = 0; i < r->hidden; i++)
        next[i] = activated(r, d, 0, of_input(r, d, 0, i, x) + of_state(r, d, 0, i, h));
    memcpy(h, next, (size_t)r->hidden * sizeof *h);
}

/* One sequence in one direction. */
static void run_sequence(void *context, int part, int worker) {
    const struct recurrent *const r = context;
    const int64_t n = r->hidden, d = part / r->batch, b = part % r->batch;
    const int64_t state = (r->batch_first ? b * r->directions + d : d * r->batch + b) * n;
    double *const h = r->scratch + 3 * part * n, *const c = h + n, *const next = c + n;
    const struct fl_array *const lengths = fl_operand(r->a, LENGTHS);
    struct fl_array *const y = fl_result(r->a, 0), *const last = fl_result(r->a, 1), *const cell = fl_result(r->a, 2);
    int64_t length = lengths ? fl_array_integer(lengths, b) : r->length;
    (void)worker;
    length = length < 0 ? 0 : length > r->length ? r->length : length;
    for (int64_t i = 0; i < n; i++) {
        h[i] = r->numbers[START] ? r->numbers[START][state + i] : 0;
        c[i] = r->numbers[CELL] ? r->numbers[CELL][state + i] : 0;
        next[i] = 0;
    }
    for (int64_t step = 0; step < r->length; step++) {
        const bool ended = step >= length;
        const int64_t t = !ended && r->backwards == d ? length - 1 - step : step;
        const double *const x = r->numbers[X] + (r->batch_first ? b * r->length + t : t * r->batch + b) * r->input;
        if (ended)
            memset(next, 0, (size_t)n * sizeof *next);
        else if (r->kind == 'L')
            lstm_step(r, d, x, h, next, c);
        else if (r->kind == 'G')
            gru_step(r, d, x, h, next, c);
        else
            rnn_step(r, d, x, h, next);
        if (y)
            fl_store_numbers(
                y,
                (r->batch_first ? (b * r->length + t) * r->directions + d : (t * r->directions + d) * r->batch + b) * n,
                1, next, n);
    }
    if (last)
        fl_store_numbers(last, state, 1, h, n);
    if (cell)
        fl_store_numbers(cell, state, 1, c, n);
}

tensor_status fl_compute_recurrent(const struct fl_arrays *a) {
    struct recurrent r;
    void *memory[OPERANDS] = {NULL};
    TRY(read_recurrent(&r, a));
    const struct fl_array *const lengths = fl_operand(a, LENGTHS);
    for (int64_t i = 0; lengths && i < lengths->count; i++)
        if (fl_array_integer(lengths, i) < 0 || fl_array_integer(lengths, i) > r.length)
            return fl_fail(TENSOR_E_DATA, "a sequence of length %lld, expected 0 to %lld",
                           (long long)fl_array_integer(lengths, i), (long long)r.length);
    const int64_t sequences = r.directions * r.batch;
    if (sequences > INT32_MAX)
        return fl_fail(TENSOR_E_UNSUPPORTED, "%lld sequences, expected less than 2^31", (long long)sequences);
    tensor_status status = fl_memory(&r.scratch, 3 * sequences * r.hidden, sizeof(double));
    for (int i = 0; i < OPERANDS && !status; i++)
        if (i != LENGTHS && fl_operand(a, i))
            status = fl_as_doubles(a->in[i], &r.numbers[i], &memory[i]);
    if (!status)
        fl_parallel((int)sequences, run_sequence, &r);
    for (int i = 0; i < OPERANDS; i++)
        fl_free(memory[i]);
    fl_free(r.scratch);
    return status;
}
