/* nn_partial.c - sums of a rank's own shards as bytes. */
#include "nn/step/nn_partial.h"
#include <string.h>

enum { LEAST = 3, MOST = 6 /* bytes of a whole number: doubles hold them exactly */, RUN = 256 };

static bool is_shared(const struct fl_format *format) {
    return format->arithmetic == FL_ARITHMETIC_SHARED;
}

int32_t fl_partial_exponent(const int32_t *e, int own) {
    int32_t finest = e[0];
    for (int s = 1; s < own; s++)
        finest = e[s] > finest ? e[s] : finest;
    return finest;
}

/* Bits of the magnitude of the sum of these shards, in units of the finest. */
static int bits_of(const struct fl_format *format, const int32_t *e, int own) {
    int bits = format->bits - 1;
    int32_t coarsest = e[0];
    for (int s = 1; s < own; s++)
        coarsest = e[s] < coarsest ? e[s] : coarsest;
    for (int terms = own - 1; terms; terms /= 2)
        bits++;
    return bits + fl_partial_exponent(e, own) - coarsest;
}

struct fl_partial fl_partial_plan(const struct fl_format *format, const int32_t *e, int shards, int own) {
    const int apart = own * format->bytes;
    struct fl_partial p = {0, 0};
    if (own == 1 || own == shards)
        return p;
    if (!is_shared(format)) {
        const bool node = (own & (own - 1)) == 0;
        p.bytes = node && apart > (int)sizeof(float) ? (int)sizeof(float) : 0;
        return p;
    }
    for (int s = 0; s < shards; s += own) {
        const int bits = bits_of(format, e + s, own);
        p.bits = bits > p.bits ? bits : p.bits;
    }
    const int bytes = (p.bits + 1 + 7) / 8 > LEAST ? (p.bits + 1 + 7) / 8 : LEAST;
    p.bytes = bytes < apart && bytes <= MOST ? bytes : 0;
    return p;
}

void fl_partial_pack(struct fl_partial p, const struct fl_format *format, const struct fl_view *own_terms, int own,
                     int32_t e, int64_t n, char *to) {
    const struct fl_sum sum = {.format = format, .terms = own_terms, .count = own};
    const double scale = fl_power_of_two(e);
    double values[RUN];
    for (int64_t first = 0; first < n; first += RUN) {
        const int64_t run = n - first < RUN ? n - first : RUN;
        fl_sum_fetch(&sum, first, run, values);
        for (int64_t i = 0; i < run; i++, to += p.bytes) {
            const float number = (float)values[i];
            const int64_t whole = is_shared(format) ? (int64_t)(values[i] * scale) : 0;
            if (is_shared(format))
                memcpy(to, &whole, (size_t)p.bytes); /* the lowest bytes, which come first */
            else
                memcpy(to, &number, sizeof number);
        }
    }
}

void fl_partial_unpack(struct fl_partial p, const struct fl_format *format, const char *from, int32_t e, int64_t n,
                       double *to) {
    const double unit = fl_power_of_two(-e);
    const int spare = 64 - 8 * p.bytes;
    for (int64_t i = 0; i < n; i++, from += p.bytes) {
        uint64_t whole = 0;
        float number = 0;
        if (is_shared(format)) {
            memcpy(&whole, from, (size_t)p.bytes);
            to[i] = (double)((int64_t)(whole << spare) >> spare) * unit;
        } else {
            memcpy(&number, from, sizeof number);
            to[i] = (double)number;
        }
    }
}
