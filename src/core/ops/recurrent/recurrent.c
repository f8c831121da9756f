/* recurrent.c - LSTM and GRU: the operations of one step, and sequences made of them and of matmuls.
 *
 * A sequence stores the inputs of the gates, and the states; its gradient computes the gates anew from these. Matmuls
 * of a step read the weights in place; products that need no earlier step (of the inputs, and the gradients of all
 * weights) are one matmul over all steps. docs/decisions/0024-tensors-over-time.md */
#include "core/base/fail.h"
#include "core/ops/operation.h"
#include "core/ops/recurrent/cell_rules.h"
#include "core/queue/sequence.h"
#include "core/table/fast_class.h"
#include "flexlab/tensor_blocks.h"
#include <stddef.h>

/* --- one step ----------------------------------------------------------------------------------------------------- */

static void prepare_cell(struct fl_args *args, const struct fl_sizes *sizes, const union fl_value *scalars) {
    (void)scalars;
    args->p.cell.rows = FL_SIZE(sizes, 'N');
    args->p.cell.units = FL_SIZE(sizes, 'h');
}

static tensor_status check_step_after(const struct fl_invocation *call) {
    const tensor *dc_after = call->tensors[4], *gates_after = call->tensors[5];
    return !dc_after == !gates_after
               ? TENSOR_OK
               : fl_fail(TENSOR_E_ARGUMENT, "lstm_cell_grad: %s is NULL and %s is not, expected both or none",
                         dc_after ? "gates_after" : "dc_after", dc_after ? "dc_after" : "gates_after");
}

#define STATE "Nh"
#define LSTM_GATES_SHAPE "N4h"
#define GRU_GATES_SHAPE "N3h"
static const struct fl_operand lstm_cell_operands[] = {
    {"c", STATE}, {"gates", LSTM_GATES_SHAPE, .at = FL_AT(in[0])}, {"c_before", STATE, .at = FL_AT(in[1])}};
static const struct fl_operand lstm_hidden_operands[] = {
    {"h", STATE}, {"gates", LSTM_GATES_SHAPE, .at = FL_AT(in[0])}, {"c", STATE, .at = FL_AT(in[1])}};
static const struct fl_operand lstm_cell_grad_operands[] = {
    {"dc", STATE},
    {"dh", STATE, .at = FL_AT(in[0])},
    {"gates", LSTM_GATES_SHAPE, .at = FL_AT(in[1])},
    {"c", STATE, .at = FL_AT(in[2])},
    {"dc_after", STATE, FL_OPTIONAL | FL_IN_PLACE, .at = FL_AT(p.cell.dc_after)},
    {"gates_after", LSTM_GATES_SHAPE, FL_OPTIONAL, .at = FL_AT(p.cell.gates_after)}};
static const struct fl_operand lstm_gates_grad_operands[] = {
    {"dgates", LSTM_GATES_SHAPE},        {"dh", STATE, .at = FL_AT(in[0])},
    {"dc", STATE, .at = FL_AT(in[1])},   {"gates", LSTM_GATES_SHAPE, .at = FL_AT(in[2])},
    {"c", STATE, .at = FL_AT(p.cell.c)}, {"c_before", STATE, .at = FL_AT(p.cell.c_before)}};
static const struct fl_operand gru_hidden_operands[] = {{"h", STATE},
                                                        {"x_gates", GRU_GATES_SHAPE, .at = FL_AT(in[0])},
                                                        {"h_gates", GRU_GATES_SHAPE, .at = FL_AT(in[1])},
                                                        {"h_before", STATE, .at = FL_AT(in[2])}};
#define GRU_GRAD_INPUTS                                                                                                \
    {"dh", STATE, .at = FL_AT(in[0])}, {"x_gates", GRU_GATES_SHAPE, .at = FL_AT(in[1])}, {                             \
        "h_gates", GRU_GATES_SHAPE, .at = FL_AT(in[2])                                                                 \
    }
static const struct fl_operand gru_input_grad_operands[] = {
    {"dx_gates", GRU_GATES_SHAPE}, GRU_GRAD_INPUTS, {"h_before", STATE, .at = FL_AT(p.cell.h_before)}};
static const struct fl_operand gru_gates_grad_operands[] = {
    {"dh_gates", GRU_GATES_SHAPE}, GRU_GRAD_INPUTS, {"h_before", STATE, .at = FL_AT(p.cell.h_before)}};
static const struct fl_operand gru_state_grad_operands[] = {
    {"ds", STATE}, GRU_GRAD_INPUTS, {"dy", STATE, FL_OPTIONAL, .at = FL_AT(p.cell.dy)}};

#define CELL(OP, function, checks)                                                                                     \
    const struct fl_function fl_function_##function = {.name = #function,                                              \
                                                       .op = FL_OP_##OP,                                               \
                                                       .outputs = 1,                                                   \
                                                       FL_OPERANDS_OF(function##_operands),                            \
                                                       .check = checks,                                                \
                                                       .prepare = prepare_cell}
CELL(LSTM_CELL, lstm_cell, NULL);
CELL(LSTM_HIDDEN, lstm_hidden, NULL);
CELL(LSTM_CELL_GRAD, lstm_cell_grad, check_step_after);
CELL(LSTM_GATES_GRAD, lstm_gates_grad, NULL);
CELL(GRU_HIDDEN, gru_hidden, NULL);
CELL(GRU_INPUT_GRAD, gru_input_grad, NULL);
CELL(GRU_GATES_GRAD, gru_gates_grad, NULL);
CELL(GRU_STATE_GRAD, gru_state_grad, NULL);

tensor_status tensor_lstm_cell(tensor *c, const tensor *gates, const tensor *c_before) {
    return FL_INVOKE_PLAIN(lstm_cell, FL_GIVEN(c, gates, c_before));
}
tensor_status tensor_lstm_hidden(tensor *h, const tensor *gates, const tensor *c) {
    return FL_INVOKE_PLAIN(lstm_hidden, FL_GIVEN(h, gates, c));
}
tensor_status tensor_lstm_cell_grad(tensor *dc, const tensor *dh, const tensor *gates, const tensor *c,
                                    const tensor *dc_after, const tensor *gates_after) {
    return FL_INVOKE_PLAIN(lstm_cell_grad, FL_GIVEN(dc, dh, gates, c, dc_after, gates_after));
}
tensor_status tensor_lstm_gates_grad(tensor *dgates, const tensor *dh, const tensor *dc, const tensor *gates,
                                     const tensor *c, const tensor *c_before) {
    return FL_INVOKE_PLAIN(lstm_gates_grad, FL_GIVEN(dgates, dh, dc, gates, c, c_before));
}
tensor_status tensor_gru_hidden(tensor *h, const tensor *x_gates, const tensor *h_gates, const tensor *h_before) {
    return FL_INVOKE_PLAIN(gru_hidden, FL_GIVEN(h, x_gates, h_gates, h_before));
}
tensor_status tensor_gru_input_grad(tensor *dx_gates, const tensor *dh, const tensor *x_gates, const tensor *h_gates,
                                    const tensor *h_before) {
    return FL_INVOKE_PLAIN(gru_input_grad, FL_GIVEN(dx_gates, dh, x_gates, h_gates, h_before));
}
tensor_status tensor_gru_gates_grad(tensor *dh_gates, const tensor *dh, const tensor *x_gates, const tensor *h_gates,
                                    const tensor *h_before) {
    return FL_INVOKE_PLAIN(gru_gates_grad, FL_GIVEN(dh_gates, dh, x_gates, h_gates, h_before));
}
tensor_status tensor_gru_state_grad(tensor *ds, const tensor *dh, const tensor *x_gates, const tensor *h_gates,
                                    const tensor *dy) {
    return FL_INVOKE_PLAIN(gru_state_grad, FL_GIVEN(ds, dh, x_gates, h_gates, dy));
}

/* --- sequences ---------------------------------------------------------------------------------------------------- */

enum { FOUR = FL_LSTM_GATES, THREE = FL_GRU_GATES };

/* T steps of N sequences of h units. */
struct sizes {
    int64_t t, n, h;
};
static struct sizes sizes_of(const struct fl_invocation *call) {
    return (struct sizes){FL_SIZE(call->sizes, 'T'), FL_SIZE(call->sizes, 'N'), FL_SIZE(call->sizes, 'h')};
}

/* Operand i of a call. */
static const tensor *given(const struct fl_invocation *call, int i) {
    return call->tensors[i];
}
static tensor *output(const struct fl_invocation *call, int i) {
    return (tensor *)call->tensors[i];
}

/* Step t of a tensor over time, of so many gates. */
static const tensor *step_of(struct fl_part *part, const tensor *x, const struct sizes *s, int gates, int64_t t) {
    const int64_t shape[2] = {s->n, gates * s->h};
    return fl_part(part, x, t * shape[0] * shape[1], 2, shape);
}

/* The same for a tensor that the sequence writes. */
static tensor *written(struct fl_part *part, const struct fl_sequence *q, int k, const struct sizes *s, int gates,
                       int64_t t) {
    const int64_t shape[2] = {s->n, gates * s->h};
    return fl_part_written(part, q, k, t * shape[0] * shape[1], 2, shape);
}

/* Rows of `steps` steps from step `first` on, as one matrix. */
static const tensor *rows_of(struct fl_part *part, const tensor *x, const struct sizes *s, int gates, int64_t first,
                             int64_t steps) {
    const int64_t shape[2] = {steps * s->n, gates * s->h};
    return fl_part(part, x, first * s->n * shape[1], 2, shape);
}

/* The gradient of u: one exact sum over all steps after the first, whose state before was zero. For a single step it is
 * a sum of zeros. */
static tensor_status weight_grad(tensor *du, const tensor *h, const tensor *dgates, int gates, const tensor *zero,
                                 const struct sizes *s) {
    struct fl_part before, d;
    if (s->t == 1)
        return tensor_matmul_tn(du, zero, rows_of(&d, dgates, s, gates, 0, 1));
    return tensor_matmul_tn(du, rows_of(&before, h, s, 1, 0, s->t - 1), rows_of(&d, dgates, s, gates, 1, s->t - 1));
}

/* Memory for weights as products read them, in whole panels, with what is known of these. Formats under a shared
 * exponent keep their 16 bits, others become binary32. */
static size_t kept_bytes(const tensor *u) {
    enum { PANELS = 64 * 1024 };
    const bool shared = u->format->arithmetic == FL_ARITHMETIC_SHARED;
    return (size_t)u->count * (shared ? sizeof(int16_t) : sizeof(float)) * 9 / 8 + PANELS;
}

/* A whole sequence is one operation, which has no other classes than its own: none of accumulators or blocks, which are
 * of products. */
static tensor_status run_exactly(tensor_status (*run)(const struct fl_invocation *call, struct fl_args *args),
                                 const struct fl_invocation *call, struct fl_args *args) {
    const tensor_class class = tensor_result_class();
    if (!fl_is_fast(class))
        tensor_set_class(TENSOR_EXACT);
    const tensor_status status = run(call, args);
    tensor_set_class(class);
    return status;
}
#define RUN_EXACTLY(name)                                                                                              \
    static tensor_status run_exact_##name(const struct fl_invocation *call, struct fl_args *args) {                    \
        return run_exactly(run_##name, call, args);                                                                    \
    }

#define WRITES(...)                                                                                                    \
    { __VA_ARGS__ }

struct lstm {
    struct sizes s;
    const tensor *x, *u, *h0, *c0;
    const tensor *h, *c, *gates, *dy; /* of the gradient */
};

/* Numbers of the tensors written. */
enum { GATES, CELL, HIDDEN };

static tensor_status lstm_steps(const struct fl_sequence *q, void *context) {
    const struct lstm *l = context;
    const struct sizes *s = &l->s;
    for (int64_t t = 0; t < s->t; t++) {
        struct fl_part px, pg, pc, ph, pc_before, ph_before;
        const tensor *x = step_of(&px, l->x, s, FOUR, t),
                     *h_before = t ? written(&ph_before, q, HIDDEN, s, 1, t - 1) : l->h0,
                     *c_before = t ? written(&pc_before, q, CELL, s, 1, t - 1) : l->c0;
        tensor *gates = written(&pg, q, GATES, s, FOUR, t), *c = written(&pc, q, CELL, s, 1, t);
        TRY(tensor_matmul_fused(gates, h_before, l->u, &(tensor_epilogue){.residual = x}));
        TRY(tensor_lstm_cell(c, gates, c_before));
        TRY(tensor_lstm_hidden(written(&ph, q, HIDDEN, s, 1, t), gates, c));
    }
    return TENSOR_OK;
}

static tensor_status run_lstm(const struct fl_invocation *call, struct fl_args *args) {
    (void)args;
    tensor *h = output(call, 0), *c = output(call, 1), *gates = output(call, 2);
    struct lstm l = {sizes_of(call), .x = given(call, 3), .u = given(call, 4), .h0 = given(call, 5),
                     .c0 = given(call, 6)};
    struct fl_sequence q = {
        .kept = kept_bytes(l.u), .tensors = 3, .written = WRITES({gates, gates->count}, {c, c->count}, {h, h->count})};
    return fl_sequence_run(&q, "lstm", lstm_steps, &l);
}

static const struct fl_operand lstm_operands[] = {{"h", "TNh"}, {"c", "TNh"}, {"gates", "TN4h"}, {"x", "TN4h"},
                                                  {"u", "h4h"}, {"h0", "Nh"}, {"c0", "Nh"}};
RUN_EXACTLY(lstm)
const struct fl_function fl_function_lstm = {
    .name = "lstm", .outputs = 3, FL_OPERANDS_OF(lstm_operands), .run = run_exact_lstm};

tensor_status tensor_lstm(tensor *h, tensor *c, tensor *gates, const tensor *x, const tensor *u, const tensor *h0,
                          const tensor *c0) {
    return FL_INVOKE_PLAIN(lstm, FL_GIVEN(h, c, gates, x, u, h0, c0));
}

enum { LSTM_DX, LSTM_DC, LSTM_DH };

static tensor_status lstm_steps_back(const struct fl_sequence *q, void *context) {
    const struct lstm *l = context;
    const struct sizes *s = &l->s;
    struct fl_part pdh, pdc;
    tensor *dh = written(&pdh, q, LSTM_DH, s, 1, 0), *dc = written(&pdc, q, LSTM_DC, s, 1, 0);
    for (int64_t t = s->t - 1; t >= 0; t--) {
        const bool last = t == s->t - 1;
        struct fl_part pg, pg_after, pc, pc_before, pdx, pdy, pdy_before;
        const tensor *gates = step_of(&pg, l->gates, s, FOUR, t), *c = step_of(&pc, l->c, s, 1, t),
                     *c_before = t ? step_of(&pc_before, l->c, s, 1, t - 1) : l->c0,
                     *gates_after = last ? NULL : step_of(&pg_after, l->gates, s, FOUR, t + 1),
                     *of_h = last ? step_of(&pdy, l->dy, s, 1, t) : dh;
        tensor *dx = written(&pdx, q, LSTM_DX, s, FOUR, t);
        TRY(tensor_lstm_cell_grad(dc, of_h, gates, c, last ? NULL : dc, gates_after));
        TRY(tensor_lstm_gates_grad(dx, of_h, dc, gates, c, c_before));
        if (t)
            TRY(tensor_matmul_nt_fused(dh, dx, l->u,
                                       &(tensor_epilogue){.residual = step_of(&pdy_before, l->dy, s, 1, t - 1)}));
    }
    return TENSOR_OK;
}

static tensor_status run_lstm_grad(const struct fl_invocation *call, struct fl_args *args) {
    (void)args;
    tensor *dx = output(call, 0), *du = output(call, 1), *dh = output(call, 2), *dc = output(call, 3);
    const tensor *zero = given(call, 9);
    struct lstm l = {sizes_of(call),       .u = given(call, 8), .h0 = zero,          .c0 = zero,
                     .dy = given(call, 4), .h = given(call, 5), .c = given(call, 6), .gates = given(call, 7)};
    const int64_t steps = l.s.t * l.s.n * l.s.h;
    struct fl_sequence q = {.kept = kept_bytes(l.u),
                            .tensors = 3,
                            .written = WRITES({dx, dx->count}, {dc, steps}, {dh, steps - l.s.n * l.s.h})};
    TRY(fl_sequence_run(&q, "lstm_grad", lstm_steps_back, &l));
    return weight_grad(du, l.h, dx, FOUR, zero, &l.s);
}

static const struct fl_operand lstm_grad_operands[] = {{"dx", "TN4h"}, {"du", "h4h"}, {"dh", "Nh"}, {"dc", "Nh"},
                                                       {"dy", "TNh"},  {"h", "TNh"},  {"c", "TNh"}, {"gates", "TN4h"},
                                                       {"u", "h4h"},   {"zero", "Nh"}};
RUN_EXACTLY(lstm_grad)
const struct fl_function fl_function_lstm_grad = {
    .name = "lstm_grad", .outputs = 4, FL_OPERANDS_OF(lstm_grad_operands), .run = run_exact_lstm_grad};

tensor_status tensor_lstm_grad(tensor *dx, tensor *du, tensor *dh, tensor *dc, const tensor *dy, const tensor *h,
                               const tensor *c, const tensor *gates, const tensor *u, const tensor *zero) {
    return FL_INVOKE_PLAIN(lstm_grad, FL_GIVEN(dx, du, dh, dc, dy, h, c, gates, u, zero));
}

struct gru {
    struct sizes s;
    const tensor *x, *u, *bias, *h0;
    const tensor *h, *h_gates, *dy; /* of the gradient */
};

enum { GRU_GATES, GRU_HIDDEN };

static tensor_status gru_steps(const struct fl_sequence *q, void *context) {
    const struct gru *g = context;
    const struct sizes *s = &g->s;
    for (int64_t t = 0; t < s->t; t++) {
        struct fl_part px, pg, ph, ph_before;
        const tensor *h_before = t ? written(&ph_before, q, GRU_HIDDEN, s, 1, t - 1) : g->h0;
        tensor *gates = written(&pg, q, GRU_GATES, s, THREE, t);
        TRY(tensor_matmul_fused(gates, h_before, g->u, &(tensor_epilogue){.bias = g->bias}));
        TRY(tensor_gru_hidden(written(&ph, q, GRU_HIDDEN, s, 1, t), step_of(&px, g->x, s, THREE, t), gates, h_before));
    }
    return TENSOR_OK;
}

static tensor_status run_gru(const struct fl_invocation *call, struct fl_args *args) {
    (void)args;
    tensor *h = output(call, 0), *h_gates = output(call, 1);
    struct gru g = {sizes_of(call), .x = given(call, 2), .u = given(call, 3), .bias = given(call, 4),
                    .h0 = given(call, 5)};
    struct fl_sequence q = {
        .kept = kept_bytes(g.u), .tensors = 2, .written = WRITES({h_gates, h_gates->count}, {h, h->count})};
    return fl_sequence_run(&q, "gru", gru_steps, &g);
}

static const struct fl_operand gru_operands[] = {{"h", "TNh"}, {"h_gates", "TN3h"}, {"x", "TN3h"},
                                                 {"u", "h3h"}, {"bias", "3h"},      {"h0", "Nh"}};
RUN_EXACTLY(gru)
const struct fl_function fl_function_gru = {
    .name = "gru", .outputs = 2, FL_OPERANDS_OF(gru_operands), .run = run_exact_gru};

tensor_status tensor_gru(tensor *h, tensor *h_gates, const tensor *x, const tensor *u, const tensor *bias,
                         const tensor *h0) {
    return FL_INVOKE_PLAIN(gru, FL_GIVEN(h, h_gates, x, u, bias, h0));
}

enum { GRU_DX, GRU_DGATES, GRU_DS, GRU_DH };

static tensor_status gru_steps_back(const struct fl_sequence *q, void *context) {
    const struct gru *g = context;
    const struct sizes *s = &g->s;
    struct fl_part pdh, pds;
    tensor *dh = written(&pdh, q, GRU_DH, s, 1, 0), *ds = written(&pds, q, GRU_DS, s, 1, 0);
    for (int64_t t = s->t - 1; t >= 0; t--) {
        struct fl_part px, pg, ph_before, pdx, pdg, pdy, pdy_before;
        const tensor *x = step_of(&px, g->x, s, THREE, t), *gates = step_of(&pg, g->h_gates, s, THREE, t),
                     *h_before = t ? step_of(&ph_before, g->h, s, 1, t - 1) : g->h0,
                     *of_h = t == s->t - 1 ? step_of(&pdy, g->dy, s, 1, t) : dh;
        tensor *dgates = written(&pdg, q, GRU_DGATES, s, THREE, t);
        TRY(tensor_gru_input_grad(written(&pdx, q, GRU_DX, s, THREE, t), of_h, x, gates, h_before));
        TRY(tensor_gru_gates_grad(dgates, of_h, x, gates, h_before));
        if (!t)
            continue;
        TRY(tensor_gru_state_grad(ds, of_h, x, gates, step_of(&pdy_before, g->dy, s, 1, t - 1)));
        TRY(tensor_matmul_nt_fused(dh, dgates, g->u, &(tensor_epilogue){.residual = ds}));
    }
    return TENSOR_OK;
}

static tensor_status run_gru_grad(const struct fl_invocation *call, struct fl_args *args) {
    (void)args;
    tensor *dx = output(call, 0), *dh_gates = output(call, 1), *du = output(call, 2), *dbias = output(call, 3),
           *dh = output(call, 4), *ds = output(call, 5);
    const tensor *zero = given(call, 11);
    struct gru g = {sizes_of(call),      .dy = given(call, 6), .h = given(call, 7), .h_gates = given(call, 8),
                    .x = given(call, 9), .u = given(call, 10), .h0 = zero};
    const int64_t between = (g.s.t - 1) * g.s.n * g.s.h;
    struct fl_sequence q = {.kept = kept_bytes(g.u),
                            .tensors = 4,
                            .written =
                                WRITES({dx, dx->count}, {dh_gates, dh_gates->count}, {ds, between}, {dh, between})};
    TRY(fl_sequence_run(&q, "gru_grad", gru_steps_back, &g));
    TRY(weight_grad(du, g.h, dh_gates, THREE, zero, &g.s));
    struct fl_part all;
    return tensor_sum_rows(dbias, rows_of(&all, dh_gates, &g.s, THREE, 0, g.s.t));
}

static const struct fl_operand gru_grad_operands[] = {
    {"dx", "TN3h"}, {"dh_gates", "TN3h"}, {"du", "h3h"},       {"dbias", "3h"}, {"dh", "Nh"}, {"ds", "Nh"},
    {"dy", "TNh"},  {"h", "TNh"},         {"h_gates", "TN3h"}, {"x", "TN3h"},   {"u", "h3h"}, {"zero", "Nh"}};
RUN_EXACTLY(gru_grad)
const struct fl_function fl_function_gru_grad = {
    .name = "gru_grad", .outputs = 6, FL_OPERANDS_OF(gru_grad_operands), .run = run_exact_gru_grad};

tensor_status tensor_gru_grad(tensor *dx, tensor *dh_gates, tensor *du, tensor *dbias, tensor *dh, tensor *ds,
                              const tensor *dy, const tensor *h, const tensor *h_gates, const tensor *x,
                              const tensor *u, const tensor *zero) {
    return FL_INVOKE_PLAIN(gru_grad, FL_GIVEN(dx, dh_gates, du, dbias, dh, ds, dy, h, h_gates, x, u, zero));
}
