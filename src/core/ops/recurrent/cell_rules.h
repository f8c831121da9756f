/* cell_rules.h - the cells of recurrent networks, one unit at a time, in double; the same code for a processor and a
 * device.
 *
 * The logistic function, tanh and their slopes all follow from one exponential of a number that is not above zero: t =
 * exp(-|x|), or u = exp(-2|x|). None of them loses digits: 1 - s(x) is s(-x), 1 - tanh(x)^2 is 4u / (1 + u)^2, and near
 * zero tanh is its series. They are within a few units in the last place of a double. Functions that end in _by take
 * the exponentials, which processors compute many at a time. */
#ifndef FL_CELL_RULES_H
#define FL_CELL_RULES_H

#include "core/arithmetic/elementary.h"

/* --- functions ---------------------------------------------------------------------------------------------------- */

/* The argument of the exponential in the logistic function; in tanh, twice that. */
FL_BOTH double fl_minus_size(double x) {
    return x < 0 ? x : -x;
}

FL_BOTH double fl_logistic_by(double x, double t) {
    return (x < 0 ? t : 1) / (1 + t);
}
/* 1 - s(x) */
FL_BOTH double fl_logistic_rest_by(double x, double t) {
    return (x < 0 ? 1 : t) / (1 + t);
}
FL_BOTH double fl_logistic_slope_by(double t) {
    return t / ((1 + t) * (1 + t));
}

FL_BOTH double fl_tanh_by(double x, double u) {
    const double s = x * x, size = (1 - u) / (1 + u);
    /* below 1/8 the next term of the series is less than 2^-58 of the sum */
    const double series =
        1 + s * (-1.0 / 3 +
                 s * (2.0 / 15 + s * (-17.0 / 315 +
                                      s * (62.0 / 2835 + s * (-1382.0 / 155925 + s * (21844.0 / 6081075 +
                                                                                      s * (-929569.0 / 638512875)))))));
    return s < 0.015625 ? x * series : x < 0 ? -size : size;
}
FL_BOTH double fl_tanh_slope_by(double u) {
    return 4 * u / ((1 + u) * (1 + u));
}

/* --- LSTM --------------------------------------------------------------------------------------------------------- */

FL_BOTH double fl_lstm_cell_by(double i, double ti, double f, double tf, double g, double ug, double before) {
    return fl_logistic_by(f, tf) * before + fl_logistic_by(i, ti) * fl_tanh_by(g, ug);
}

FL_BOTH double fl_lstm_hidden_by(double o, double to, double c, double uc) {
    return fl_logistic_by(o, to) * fl_tanh_by(c, uc);
}

/* The path through h only. */
FL_BOTH double fl_lstm_cell_grad_by(double dh, double o, double to, double uc) {
    return dh * fl_logistic_by(o, to) * fl_tanh_slope_by(uc);
}

enum { FL_LSTM_I, FL_LSTM_F, FL_LSTM_G, FL_LSTM_O, FL_LSTM_GATES };

FL_BOTH double fl_lstm_input_grad_by(double dc, double ti, double g, double ug) {
    return dc * fl_tanh_by(g, ug) * fl_logistic_slope_by(ti);
}
FL_BOTH double fl_lstm_forget_grad_by(double dc, double tf, double before) {
    return dc * before * fl_logistic_slope_by(tf);
}
FL_BOTH double fl_lstm_candidate_grad_by(double dc, double i, double ti, double ug) {
    return dc * fl_logistic_by(i, ti) * fl_tanh_slope_by(ug);
}
FL_BOTH double fl_lstm_output_grad_by(double dh, double to, double c, double uc) {
    return dh * fl_tanh_by(c, uc) * fl_logistic_slope_by(to);
}

/* --- GRU ---------------------------------------------------------------------------------------------------------- */

enum { FL_GRU_R, FL_GRU_Z, FL_GRU_N, FL_GRU_GATES };

/* The argument of tanh in n. */
FL_BOTH double fl_gru_candidate_by(double r, double tr, double xn, double hn) {
    return xn + fl_logistic_by(r, tr) * hn;
}

FL_BOTH double fl_gru_hidden_by(double z, double tz, double n, double un, double before) {
    return fl_logistic_rest_by(z, tz) * fl_tanh_by(n, un) + fl_logistic_by(z, tz) * before;
}

FL_BOTH double fl_gru_candidate_grad_by(double dh, double z, double tz, double un) {
    return dh * fl_logistic_rest_by(z, tz) * fl_tanh_slope_by(un);
}
FL_BOTH double fl_gru_update_grad_by(double dh, double tz, double n, double un, double before) {
    return dh * (before - fl_tanh_by(n, un)) * fl_logistic_slope_by(tz);
}
/* dn: the gradient of the argument of n. */
FL_BOTH double fl_gru_reset_grad_by(double dn, double tr, double hn) {
    return dn * hn * fl_logistic_slope_by(tr);
}

#endif
