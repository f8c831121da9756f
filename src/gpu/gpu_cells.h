/* gpu_cells.h - the cells of recurrent networks, for the formats of a folder. A thread computes one element of the
 * result at a time.
 *
 * Expects: the codec of a folder (gpu_element.h).
 * Gives: add_cells. */
#ifndef FL_GPU_CELLS_H
#define FL_GPU_CELLS_H

#include "core/ops/recurrent/cell_rules.h"
#include "gpu/gpu_element.h"

namespace {

/* The element of a view for one gate and unit of one row. */
__device__ static inline double gate_at(const struct fl_args &args, const struct fl_view &view, int gates, int gate,
                                        int64_t row, int64_t unit) {
    return gpu_value(view, fl_exponent(&view), (row * gates + gate) * args.p.cell.units + unit);
}
__device__ static inline double of_logistic(double x) {
    return fl_exp(fl_minus_size(x));
}
__device__ static inline double of_tanh(double x) {
    return fl_exp(2 * fl_minus_size(x));
}

__device__ static double lstm_cell_at(const struct fl_args &args, int64_t row, int64_t unit) {
    const double i = gate_at(args, args.in[0], FL_LSTM_GATES, FL_LSTM_I, row, unit),
                 f = gate_at(args, args.in[0], FL_LSTM_GATES, FL_LSTM_F, row, unit),
                 g = gate_at(args, args.in[0], FL_LSTM_GATES, FL_LSTM_G, row, unit);
    return fl_lstm_cell_by(i, of_logistic(i), f, of_logistic(f), g, of_tanh(g),
                           gate_at(args, args.in[1], 1, 0, row, unit));
}

__device__ static double lstm_hidden_at(const struct fl_args &args, int64_t row, int64_t unit) {
    const double o = gate_at(args, args.in[0], FL_LSTM_GATES, FL_LSTM_O, row, unit),
                 c = gate_at(args, args.in[1], 1, 0, row, unit);
    return fl_lstm_hidden_by(o, of_logistic(o), c, of_tanh(c));
}

__device__ static double lstm_cell_grad_at(const struct fl_args &args, int64_t row, int64_t unit) {
    const double dh = gate_at(args, args.in[0], 1, 0, row, unit),
                 o = gate_at(args, args.in[1], FL_LSTM_GATES, FL_LSTM_O, row, unit),
                 c = gate_at(args, args.in[2], 1, 0, row, unit);
    const double dc = fl_lstm_cell_grad_by(dh, o, of_logistic(o), of_tanh(c));
    if (!args.p.cell.dc_after.data || !args.p.cell.gates_after.data)
        return dc;
    const double f = gate_at(args, args.p.cell.gates_after, FL_LSTM_GATES, FL_LSTM_F, row, unit);
    return dc + gate_at(args, args.p.cell.dc_after, 1, 0, row, unit) * fl_logistic_by(f, of_logistic(f));
}

__device__ static double lstm_gate_grad_at(const struct fl_args &args, int gate, int64_t row, int64_t unit) {
    const double dh = gate_at(args, args.in[0], 1, 0, row, unit), dc = gate_at(args, args.in[1], 1, 0, row, unit),
                 i = gate_at(args, args.in[2], FL_LSTM_GATES, FL_LSTM_I, row, unit),
                 g = gate_at(args, args.in[2], FL_LSTM_GATES, FL_LSTM_G, row, unit),
                 own = gate_at(args, args.in[2], FL_LSTM_GATES, gate, row, unit),
                 c = gate_at(args, args.p.cell.c, 1, 0, row, unit);
    switch (gate) {
    case FL_LSTM_I:
        return fl_lstm_input_grad_by(dc, of_logistic(i), g, of_tanh(g));
    case FL_LSTM_F:
        return fl_lstm_forget_grad_by(dc, of_logistic(own), gate_at(args, args.p.cell.c_before, 1, 0, row, unit));
    case FL_LSTM_G:
        return fl_lstm_candidate_grad_by(dc, i, of_logistic(i), of_tanh(g));
    default:
        return fl_lstm_output_grad_by(dh, of_logistic(own), c, of_tanh(c));
    }
}

/* The arguments of the gates of a GRU. */
struct gru_unit {
    double r, z, n, tr, tz, un, hn;
};

__device__ static struct gru_unit gru_unit_at(const struct fl_args &args, const struct fl_view &x,
                                              const struct fl_view &h, int64_t row, int64_t unit) {
    struct gru_unit u;
    u.r = gate_at(args, x, FL_GRU_GATES, FL_GRU_R, row, unit) + gate_at(args, h, FL_GRU_GATES, FL_GRU_R, row, unit);
    u.z = gate_at(args, x, FL_GRU_GATES, FL_GRU_Z, row, unit) + gate_at(args, h, FL_GRU_GATES, FL_GRU_Z, row, unit);
    u.tr = of_logistic(u.r);
    u.tz = of_logistic(u.z);
    u.hn = gate_at(args, h, FL_GRU_GATES, FL_GRU_N, row, unit);
    u.n = fl_gru_candidate_by(u.r, u.tr, gate_at(args, x, FL_GRU_GATES, FL_GRU_N, row, unit), u.hn);
    u.un = of_tanh(u.n);
    return u;
}

__device__ static double gru_hidden_at(const struct fl_args &args, int64_t row, int64_t unit) {
    const struct gru_unit u = gru_unit_at(args, args.in[0], args.in[1], row, unit);
    return fl_gru_hidden_by(u.z, u.tz, u.n, u.un, gate_at(args, args.in[2], 1, 0, row, unit));
}

__device__ static double gru_gate_grad_at(const struct fl_args &args, int gate, int64_t row, int64_t unit) {
    const struct gru_unit u = gru_unit_at(args, args.in[1], args.in[2], row, unit);
    const double dh = gate_at(args, args.in[0], 1, 0, row, unit);
    if (gate == FL_GRU_Z)
        return fl_gru_update_grad_by(dh, u.tz, u.n, u.un, gate_at(args, args.p.cell.h_before, 1, 0, row, unit));
    const double dn = fl_gru_candidate_grad_by(dh, u.z, u.tz, u.un);
    if (gate == FL_GRU_R)
        return fl_gru_reset_grad_by(dn, u.tr, u.hn);
    return args.op == FL_OP_GRU_GATES_GRAD ? dn * fl_logistic_by(u.r, u.tr) : dn;
}

__device__ static double gru_state_grad_at(const struct fl_args &args, int64_t row, int64_t unit) {
    const double z = gate_at(args, args.in[1], FL_GRU_GATES, FL_GRU_Z, row, unit) +
                     gate_at(args, args.in[2], FL_GRU_GATES, FL_GRU_Z, row, unit);
    const double ds = gate_at(args, args.in[0], 1, 0, row, unit) * fl_logistic_by(z, of_logistic(z));
    return args.p.cell.dy.data ? ds + gate_at(args, args.p.cell.dy, 1, 0, row, unit) : ds;
}

__device__ static double cell_at(const struct fl_args &args, int gate, int64_t row, int64_t unit) {
    switch ((int)args.op) {
    case FL_OP_LSTM_CELL:
        return lstm_cell_at(args, row, unit);
    case FL_OP_LSTM_HIDDEN:
        return lstm_hidden_at(args, row, unit);
    case FL_OP_LSTM_CELL_GRAD:
        return lstm_cell_grad_at(args, row, unit);
    case FL_OP_LSTM_GATES_GRAD:
        return lstm_gate_grad_at(args, gate, row, unit);
    case FL_OP_GRU_HIDDEN:
        return gru_hidden_at(args, row, unit);
    case FL_OP_GRU_STATE_GRAD:
        return gru_state_grad_at(args, row, unit);
    default:
        return gru_gate_grad_at(args, gate, row, unit);
    }
}

__global__ void cell(const struct gpu_call call) {
    const struct fl_args &args = call.args;
    const int64_t n = args.p.cell.units, width = args.out.count / args.p.cell.rows;
    gpu_elements(call, args.out.count,
                 [&](int64_t i) { return cell_at(args, (int)(i % width / n), i / width, i % n); });
}

static void add_cells(struct gpu_kernels *to) {
    for (int op = FL_OP_LSTM_CELL; op <= FL_OP_GRU_STATE_GRAD; op++)
        to->op[op] = gpu_run_all<cell>;
}

} // namespace

#endif
