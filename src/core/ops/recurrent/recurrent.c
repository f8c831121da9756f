/* recurrent.c - LSTM and GRU: the operations of one step, and sequences made of them and of matmuls.
 *
 * A sequence keeps what enters the gates, and the states; its gradient computes the gates anew from those. Matmuls of a
 * step read the weights as they lie; what needs no step before it (the products of the inputs, the gradients of all
 * weights) is one matmul over all steps. docs/decisions/0024-tensors-over-time.md */
#include "core/operations/check_operands.h"
#include "core/ops/recurrent/cell_rules.h"
#include "core/queue/sequence.h"
#include "flexlab/tensor_blocks.h"

/* --- checks ------------------------------------------------------------------------------------------------------- */

/* Sizes of a step, or of a sequence: [T,] N, H. */
struct sizes {
    int64_t t, n, h;
};

/* What operand of how many gates has what shape; steps: over time. */
struct expected {
    const char *name;
    const tensor *t;
    int gates;
    bool steps;
};
#define EXPECTED(...)                                                                                                  \
    (const struct expected[]){__VA_ARGS__},                                                                            \
        (int)(sizeof((const struct expected[]){__VA_ARGS__}) / sizeof(struct expected))

/* Operands of one format, apart in memory, of the sizes of the first, which is [T,] N, H; the first `outputs` of them
 * are written. */
static tensor_status check(const char *op, const struct expected *e, int count, int outputs, struct sizes *s) {
    struct operand operands[12];
    for (int i = 0; i < count; i++)
        operands[i] = (struct operand){e[i].name, e[i].t};
    TRY(check_operands(op, operands, count));
    TRY(check_ndim(op, operands[0], e[0].steps ? 3 : 2, e[0].steps ? "[steps, batch, units]" : "[batch, units]"));
    const int64_t *shape = e[0].t->shape;
    *s = e[0].steps ? (struct sizes){shape[0], shape[1], shape[2] / e[0].gates}
                    : (struct sizes){1, shape[0], shape[1] / e[0].gates};
    if (s->h < 1)
        s->h = 1; /* the shape differs then */
    for (int i = 0; i < count; i++)
        TRY(check_shape_is(op, operands[i], 2 + e[i].steps,
                           e[i].steps ? (int64_t[]){s->t, s->n, e[i].gates * s->h}
                                      : (int64_t[]){s->n, e[i].gates * s->h}));
    for (int i = 0; i < outputs; i++) {
        TRY(check_operands(op, operands + i, count - i));
        TRY(check_distinct(op, operands + i, count - i));
    }
    return TENSOR_OK;
}

static struct fl_args args_of(enum fl_op op, const struct sizes *s) {
    return (struct fl_args){.op = op, .p.cell = {.rows = s->n, .units = s->h}};
}

/* --- one step of an LSTM ------------------------------------------------------------------------------------------ */

enum { FOUR = FL_LSTM_GATES, THREE = FL_GRU_GATES };

tensor_status tensor_lstm_cell(tensor *c, const tensor *gates, const tensor *c_before) {
    struct sizes s;
    TRY(check("lstm_cell", EXPECTED({"c", c, 1}, {"gates", gates, FOUR}, {"c_before", c_before, 1}), 1, &s));
    struct fl_args args = args_of(FL_OP_LSTM_CELL, &s);
    args.in[0] = fl_view_of(gates);
    args.in[1] = fl_view_of(c_before);
    return fl_write(c, &args);
}

tensor_status tensor_lstm_hidden(tensor *h, const tensor *gates, const tensor *c) {
    struct sizes s;
    TRY(check("lstm_hidden", EXPECTED({"h", h, 1}, {"gates", gates, FOUR}, {"c", c, 1}), 1, &s));
    struct fl_args args = args_of(FL_OP_LSTM_HIDDEN, &s);
    args.in[0] = fl_view_of(gates);
    args.in[1] = fl_view_of(c);
    return fl_write(h, &args);
}

tensor_status tensor_lstm_cell_grad(tensor *dc, const tensor *dh, const tensor *gates, const tensor *c,
                                    const tensor *dc_after, const tensor *gates_after) {
    static const char name[] = "lstm_cell_grad";
    struct sizes s;
    TRY(check(name, EXPECTED({"dc", dc, 1}, {"dh", dh, 1}, {"gates", gates, FOUR}, {"c", c, 1}), 1, &s));
    if (!dc_after != !gates_after)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %s is NULL and %s is not, expected both or none", name,
                       dc_after ? "gates_after" : "dc_after", dc_after ? "dc_after" : "gates_after");
    struct fl_args args = args_of(FL_OP_LSTM_CELL_GRAD, &s);
    args.in[0] = fl_view_of(dh);
    args.in[1] = fl_view_of(gates);
    args.in[2] = fl_view_of(c);
    if (dc_after) {
        TRY(check(name, EXPECTED({"dc", dc, 1}, {"gates_after", gates_after, FOUR}), 1, &s));
        TRY(check(name, EXPECTED({"dc", dc, 1}, {"dc_after", dc_after, 1}), 0, &s));
        args.p.cell.gates_after = fl_view_of(gates_after);
        args.p.cell.dc_after = fl_view_of(dc_after);
    }
    return fl_write(dc, &args);
}

tensor_status tensor_lstm_gates_grad(tensor *dgates, const tensor *dh, const tensor *dc, const tensor *gates,
                                     const tensor *c, const tensor *c_before) {
    struct sizes s;
    TRY(check("lstm_gates_grad",
              EXPECTED({"dgates", dgates, FOUR}, {"dh", dh, 1}, {"dc", dc, 1}, {"gates", gates, FOUR}, {"c", c, 1},
                       {"c_before", c_before, 1}),
              1, &s));
    struct fl_args args = args_of(FL_OP_LSTM_GATES_GRAD, &s);
    args.in[0] = fl_view_of(dh);
    args.in[1] = fl_view_of(dc);
    args.in[2] = fl_view_of(gates);
    args.p.cell.c = fl_view_of(c);
    args.p.cell.c_before = fl_view_of(c_before);
    return fl_write(dgates, &args);
}

/* --- one step of a GRU -------------------------------------------------------------------------------------------- */

tensor_status tensor_gru_hidden(tensor *h, const tensor *x_gates, const tensor *h_gates, const tensor *h_before) {
    struct sizes s;
    TRY(check(
        "gru_hidden",
        EXPECTED({"h", h, 1}, {"x_gates", x_gates, THREE}, {"h_gates", h_gates, THREE}, {"h_before", h_before, 1}), 1,
        &s));
    struct fl_args args = args_of(FL_OP_GRU_HIDDEN, &s);
    args.in[0] = fl_view_of(x_gates);
    args.in[1] = fl_view_of(h_gates);
    args.in[2] = fl_view_of(h_before);
    return fl_write(h, &args);
}

/* d, called of: the gradient of the gates of x, or of those of h. */
static tensor_status gru_grad(enum fl_op op, const char *name, const char *of, tensor *d, const tensor *dh,
                              const tensor *x_gates, const tensor *h_gates, const tensor *h_before) {
    struct sizes s;
    TRY(check(name,
              EXPECTED({of, d, THREE}, {"dh", dh, 1}, {"x_gates", x_gates, THREE}, {"h_gates", h_gates, THREE},
                       {"h_before", h_before, 1}),
              1, &s));
    struct fl_args args = args_of(op, &s);
    args.in[0] = fl_view_of(dh);
    args.in[1] = fl_view_of(x_gates);
    args.in[2] = fl_view_of(h_gates);
    args.p.cell.h_before = fl_view_of(h_before);
    return fl_write(d, &args);
}

tensor_status tensor_gru_input_grad(tensor *dx_gates, const tensor *dh, const tensor *x_gates, const tensor *h_gates,
                                    const tensor *h_before) {
    return gru_grad(FL_OP_GRU_INPUT_GRAD, "gru_input_grad", "dx_gates", dx_gates, dh, x_gates, h_gates, h_before);
}

tensor_status tensor_gru_gates_grad(tensor *dh_gates, const tensor *dh, const tensor *x_gates, const tensor *h_gates,
                                    const tensor *h_before) {
    return gru_grad(FL_OP_GRU_GATES_GRAD, "gru_gates_grad", "dh_gates", dh_gates, dh, x_gates, h_gates, h_before);
}

tensor_status tensor_gru_state_grad(tensor *ds, const tensor *dh, const tensor *x_gates, const tensor *h_gates,
                                    const tensor *dy) {
    static const char name[] = "gru_state_grad";
    struct sizes s;
    TRY(check(name, EXPECTED({"ds", ds, 1}, {"dh", dh, 1}, {"x_gates", x_gates, THREE}, {"h_gates", h_gates, THREE}), 1,
              &s));
    struct fl_args args = args_of(FL_OP_GRU_STATE_GRAD, &s);
    args.in[0] = fl_view_of(dh);
    args.in[1] = fl_view_of(x_gates);
    args.in[2] = fl_view_of(h_gates);
    if (dy) {
        TRY(check(name, EXPECTED({"ds", ds, 1}, {"dy", dy, 1}), 1, &s));
        args.p.cell.dy = fl_view_of(dy);
    }
    return fl_write(ds, &args);
}

/* --- sequences ---------------------------------------------------------------------------------------------------- */

/* Step t of a tensor over time, of so many gates. */
static const tensor *step_of(struct fl_part *part, const tensor *x, const struct sizes *s, int gates, int64_t t) {
    const int64_t shape[2] = {s->n, gates * s->h};
    return fl_part(part, x, t * shape[0] * shape[1], 2, shape);
}

/* The same of what a sequence writes. */
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

static tensor_status check_u(const char *op, const tensor *u, const tensor *like, int gates, const struct sizes *s) {
    TRY(check_operands(op, OPERANDS({"u", u}, {"x", like})));
    return check_shape_is(op, (struct operand){"u", u}, 2, (int64_t[]){s->h, gates * s->h});
}

/* The gradient of u: one exact sum over all steps whose state before was not zero. Of one step alone that is the sum of
 * zeros. */
static tensor_status weight_grad(tensor *du, const tensor *h, const tensor *dgates, int gates, const tensor *zero,
                                 const struct sizes *s) {
    struct fl_part before, d;
    if (s->t == 1)
        return tensor_matmul_tn(du, zero, rows_of(&d, dgates, s, gates, 0, 1));
    return tensor_matmul_tn(du, rows_of(&before, h, s, 1, 0, s->t - 1), rows_of(&d, dgates, s, gates, 1, s->t - 1));
}

#define WRITES(...)                                                                                                    \
    { __VA_ARGS__ }

struct lstm {
    struct sizes s;
    const tensor *x, *u, *h0, *c0;
    const tensor *h, *c, *gates, *dy; /* of the gradient */
};

/* Numbers of what is written. */
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

tensor_status tensor_lstm(tensor *h, tensor *c, tensor *gates, const tensor *x, const tensor *u, const tensor *h0,
                          const tensor *c0) {
    struct lstm l = {.x = x, .u = u, .h0 = h0, .c0 = c0};
    TRY(check("lstm",
              EXPECTED({"h", h, 1, true}, {"c", c, 1, true}, {"gates", gates, FOUR, true}, {"x", x, FOUR, true},
                       {"h0", h0, 1, false}, {"c0", c0, 1, false}),
              3, &l.s));
    TRY(check_u("lstm", u, x, FOUR, &l.s));
    TRY(check_distinct("lstm", OPERANDS({"u", u}, {"h", h}, {"c", c}, {"gates", gates})));
    struct fl_sequence q = {.tensors = 3, .written = WRITES({gates, gates->count}, {c, c->count}, {h, h->count})};
    return fl_sequence_run(&q, "lstm", lstm_steps, &l);
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

tensor_status tensor_lstm_grad(tensor *dx, tensor *du, tensor *dh, tensor *dc, const tensor *dy, const tensor *h,
                               const tensor *c, const tensor *gates, const tensor *u, const tensor *zero) {
    struct lstm l = {.u = u, .h0 = zero, .c0 = zero, .h = h, .c = c, .gates = gates, .dy = dy};
    TRY(check("lstm_grad",
              EXPECTED({"dx", dx, FOUR, true}, {"dh", dh, 1, false}, {"dc", dc, 1, false}, {"dy", dy, 1, true},
                       {"h", h, 1, true}, {"c", c, 1, true}, {"gates", gates, FOUR, true}, {"zero", zero, 1, false}),
              3, &l.s));
    TRY(check_u("lstm_grad", u, dx, FOUR, &l.s));
    TRY(check_u("lstm_grad", du, dx, FOUR, &l.s));
    TRY(check_distinct("lstm_grad", OPERANDS({"du", du}, {"u", u}, {"dx", dx}, {"dh", dh}, {"dc", dc}, {"dy", dy},
                                             {"h", h}, {"gates", gates}, {"c", c}, {"zero", zero})));
    TRY(check_distinct("lstm_grad", OPERANDS({"u", u}, {"dx", dx}, {"dh", dh}, {"dc", dc})));
    const int64_t steps = l.s.t * l.s.n * l.s.h;
    struct fl_sequence q = {.tensors = 3, .written = WRITES({dx, dx->count}, {dc, steps}, {dh, steps - l.s.n * l.s.h})};
    TRY(fl_sequence_run(&q, "lstm_grad", lstm_steps_back, &l));
    return weight_grad(du, h, dx, FOUR, zero, &l.s);
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

static tensor_status check_gru_bias(const char *op, const tensor *bias, const tensor *x, const struct sizes *s) {
    TRY(check_operands(op, OPERANDS({"bias", bias}, {"x", x})));
    return check_shape_is(op, (struct operand){"bias", bias}, 1, (int64_t[]){THREE * s->h});
}

tensor_status tensor_gru(tensor *h, tensor *h_gates, const tensor *x, const tensor *u, const tensor *bias,
                         const tensor *h0) {
    struct gru g = {.x = x, .u = u, .bias = bias, .h0 = h0};
    TRY(check(
        "gru",
        EXPECTED({"h", h, 1, true}, {"h_gates", h_gates, THREE, true}, {"x", x, THREE, true}, {"h0", h0, 1, false}), 2,
        &g.s));
    TRY(check_u("gru", u, x, THREE, &g.s));
    TRY(check_gru_bias("gru", bias, x, &g.s));
    TRY(check_distinct("gru", OPERANDS({"u", u}, {"h", h}, {"h_gates", h_gates})));
    TRY(check_distinct("gru", OPERANDS({"bias", bias}, {"h", h}, {"h_gates", h_gates})));
    struct fl_sequence q = {.tensors = 2, .written = WRITES({h_gates, h_gates->count}, {h, h->count})};
    return fl_sequence_run(&q, "gru", gru_steps, &g);
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

tensor_status tensor_gru_grad(tensor *dx, tensor *dh_gates, tensor *du, tensor *dbias, tensor *dh, tensor *ds,
                              const tensor *dy, const tensor *h, const tensor *h_gates, const tensor *x,
                              const tensor *u, const tensor *zero) {
    struct gru g = {.x = x, .u = u, .h0 = zero, .h = h, .h_gates = h_gates, .dy = dy};
    static const char name[] = "gru_grad";
    TRY(check(name,
              EXPECTED({"dx", dx, THREE, true}, {"dh_gates", dh_gates, THREE, true}, {"dh", dh, 1, false},
                       {"ds", ds, 1, false}, {"dy", dy, 1, true}, {"h", h, 1, true}, {"h_gates", h_gates, THREE, true},
                       {"x", x, THREE, true}, {"zero", zero, 1, false}),
              4, &g.s));
    TRY(check_u(name, u, dx, THREE, &g.s));
    TRY(check_u(name, du, dx, THREE, &g.s));
    TRY(check_gru_bias(name, dbias, dx, &g.s));
    TRY(check_distinct(name,
                       OPERANDS({"du", du}, {"dbias", dbias}, {"u", u}, {"dx", dx}, {"dh_gates", dh_gates}, {"dh", dh},
                                {"ds", ds}, {"dy", dy}, {"h", h}, {"h_gates", h_gates}, {"x", x}, {"zero", zero})));
    TRY(check_distinct(name,
                       OPERANDS({"dbias", dbias}, {"u", u}, {"dx", dx}, {"dh_gates", dh_gates}, {"dh", dh}, {"ds", ds},
                                {"dy", dy}, {"h", h}, {"h_gates", h_gates}, {"x", x}, {"zero", zero})));
    TRY(check_distinct(name, OPERANDS({"u", u}, {"dx", dx}, {"dh_gates", dh_gates}, {"dh", dh}, {"ds", ds})));
    const int64_t between = (g.s.t - 1) * g.s.n * g.s.h;
    struct fl_sequence q = {
        .tensors = 4, .written = WRITES({dx, dx->count}, {dh_gates, dh_gates->count}, {ds, between}, {dh, between})};
    TRY(fl_sequence_run(&q, name, gru_steps_back, &g));
    TRY(weight_grad(du, h, dh_gates, THREE, zero, &g.s));
    struct fl_part all;
    return tensor_sum_rows(dbias, rows_of(&all, dh_gates, &g.s, THREE, 0, g.s.t));
}
