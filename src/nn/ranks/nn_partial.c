/* nn_partial.c - sums of a rank's own shards as bytes. */
#include "nn/ranks/nn_partial.h"
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

/* --- whole numbers ------------------------------------------------------------------------------------------------ */

/* A number as its bytes lie in memory from the lowest to the highest, and back. */
static uint64_t lowest_first(uint64_t number) {
    return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? number : __builtin_bswap64(number);
}

/* The lowest bytes of a number: those that follow are overwritten by the next number, where there is one. */
static char *put_whole(char *to, int64_t whole, int bytes, bool last) {
    const uint64_t number = lowest_first((uint64_t)whole);
    memcpy(to, &number, last ? (size_t)bytes : sizeof number);
    return to + bytes;
}

/* Of n numbers, how many are followed by enough bytes of others to be stored whole. */
static int64_t followed(int64_t n, int bytes) {
    const int64_t last = (8 + bytes - 1) / bytes;
    return n > last ? n - last : 0;
}

static void pack_whole(struct fl_partial p, const struct fl_sum *sum, int32_t e, int64_t n, char *to) {
    const bool narrow = fl_sum_is_narrow(sum);
    const double scale = fl_power_of_two(e);
    const int64_t free = followed(n, p.bytes);
    int32_t sums[RUN];
    double values[RUN];
    for (int64_t first = 0; first < n; first += RUN) {
        const int64_t run = n - first < RUN ? n - first : RUN;
        if (narrow)
            fl_sum_whole(sum, e, first, run, sums);
        else
            fl_sum_fetch(sum, first, run, values);
        for (int64_t i = 0; i < run; i++)
            to = put_whole(to, narrow ? sums[i] : (int64_t)(values[i] * scale), p.bytes, first + i >= free);
    }
}

static void unpack_whole(int bytes, const char *from, double unit, int64_t n, int64_t after, double *values) {
    const int spare = 64 - 8 * bytes;
    const int64_t free = followed(n + after, bytes); /* of which those beyond n do not matter */
    for (int64_t i = 0; i < n; i++, from += bytes) {
        uint64_t whole = 0;
        memcpy(&whole, from, i < free ? sizeof whole : (size_t)bytes);
        values[i] = (double)((int64_t)(lowest_first(whole) << spare) >> spare) * unit;
    }
}

/* --- both --------------------------------------------------------------------------------------------------------- */

void fl_partial_pack(struct fl_partial p, const struct fl_format *format, const struct fl_view *own_terms, int own,
                     int32_t e, int64_t n, char *to) {
    const struct fl_sum sum = {.format = format, .terms = own_terms, .count = own};
    double values[RUN];
    if (is_shared(format)) {
        pack_whole(p, &sum, e, n, to);
        return;
    }
    for (int64_t first = 0; first < n; first += RUN) {
        const int64_t run = n - first < RUN ? n - first : RUN;
        fl_sum_fetch(&sum, first, run, values);
        for (int64_t i = 0; i < run; i++, to += sizeof(float)) {
            const float number = (float)values[i];
            memcpy(to, &number, sizeof number);
        }
    }
}

static void fetch(const struct fl_sum *sum, int term, int64_t first, int64_t n, double *values) {
    const struct fl_partial_terms *t = sum->context;
    const struct fl_view *view = &sum->terms[term];
    if (term == t->rank) {
        fl_sum_fetch(&(struct fl_sum){.format = sum->format, .terms = t->own_terms, .count = t->own}, first, n, values);
        return;
    }
    const char *from = (const char *)view->data + first * t->how.bytes;
    if (is_shared(sum->format)) {
        unpack_whole(t->how.bytes, from, fl_power_of_two(-fl_exponent(view)), n, view->count - first - n, values);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        float number;
        memcpy(&number, from + i * (int64_t)sizeof number, sizeof number);
        values[i] = (double)number;
    }
}

struct fl_sum fl_partial_sum(const struct fl_partial_terms *terms, const struct fl_format *format,
                             const struct fl_view *sums, int ranks) {
    return (struct fl_sum){format, sums, ranks, fetch, terms->how.bits, terms};
}
