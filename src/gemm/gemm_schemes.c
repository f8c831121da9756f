/* gemm_schemes.c - the sums of a panel of A by a panel of B over one block of k, by the fastest scheme proved exact.
 *
 * By the bounds of both panels (struct gemm_bound) a sum of products over an interval is at most its length times
 * max|a| max|b|, and at most ||a|| ||b|| (Cauchy, Schwarz). If that fits int32, an accumulator is right even if it
 * wrapped before. The schemes and their conditions:
 *
 *     whole      the whole block fits
 *     staggered  every interval of 16 steps fits
 *     every 8, 4 every interval of 8 or of 4 steps fits
 *     bytes      nothing fits, but bytes can be multiplied: the mod-255 check. It computes the sum modulo 2^32, lo, and
 *                the sum modulo 255, r, from the elements modulo 255. Since 2^32 = 1 modulo 255, the sum is lo + 2^32 t
 *                for the t of least magnitude with t = r - lo modulo 255, as long as |sum| <= 127.5 * 2^32
 *     products   nothing fits: the sum of products modulo 2^32, and apart from it the sum of their high halves
 *     every 1    not even the products of one step fit (both operands hold -2^15) */
#include "gemm/gemm_driver.h"
#include <string.h>

enum {
    /* Longest stretch of any data that the mod-255 check covers, in steps: 508 * 2^30 <= 127.5 * 2^32. Bytes of A are
     * in -127 ... 127, of B in 0 ... 254, so that their sums fit for 2^31 / (127 * 254) = 66571 k. */
    BYTES_STEPS = 254
};
#define BYTES_LIMIT (127.5 * 0x1p32 * (1 - 1e-6))

enum scheme { WHOLE, STAGGERED, EVERY_8, EVERY_4, UNPROVEN };

static enum scheme choose(const struct gemm_bound *a, const struct gemm_bound *b, int64_t steps, int per_step) {
    static const enum scheme by_interval[GEMM_INTERVALS] = {EVERY_4, EVERY_8, STAGGERED};
    const double product = a->largest * b->largest * per_step;
    if (product * (double)steps <= GEMM_SPLIT_LIMIT || a->whole * b->whole <= GEMM_SPLIT_LIMIT)
        return WHOLE;
    for (int i = GEMM_INTERVALS - 1; i >= 0; i--)
        if (product * (GEMM_INTERVAL << i) <= GEMM_SPLIT_LIMIT || a->interval[i] * b->interval[i] <= GEMM_SPLIT_LIMIT)
            return by_interval[i];
    return UNPROVEN;
}

bool fl_gemm_will_want_bytes(const struct gemm_family *family, const struct gemm_bound *bound) {
    return family->kernels->bytes &&
           bound->largest * bound->largest * family->packing->per_step * GEMM_INTERVAL > GEMM_SPLIT_LIMIT &&
           bound->interval[0] * bound->interval[0] > GEMM_SPLIT_LIMIT;
}

/* Runs a kernel of half the height over all rows. */
static void by_halves(const struct gemm_kernels *k, const gemm_panel_kernel *kernels, const struct gemm_panel_pair *p) {
    struct gemm_panel_pair some = *p;
    const int64_t parts = gemm_parts(p->rows, k->panel_rows / 2);
    for (int64_t i = 0, rows; i < p->rows; i += rows) {
        rows = gemm_min(gemm_parts(p->rows, parts), p->rows - i);
        some.a = p->a + i;
        some.sum = p->sum + i * p->stride;
        some.high = p->high + i * p->stride;
        kernels[rows](&some);
    }
}

static void by_bytes(const struct gemm_kernels *k, const struct gemm_panel_pair *p, const struct gemm_bound *a,
                     const struct gemm_bound *b, int per_step, bool add, const struct gemm_sums *out,
                     struct gemm_bytes *bytes, int32_t *rest) {
    if (!*bytes->a_made)
        k->pack_bytes(p->a, p->height, p->steps, true, bytes->a);
    if (!*bytes->b_made)
        k->pack_bytes(p->b, k->panel_columns, p->steps, false, bytes->b);
    *bytes->a_made = *bytes->b_made = true;
    const bool whole =
        a->largest * b->largest * (double)(per_step * p->steps) <= BYTES_LIMIT || a->whole * b->whole <= BYTES_LIMIT;
    const int64_t block = whole ? p->steps : BYTES_STEPS;
    for (int64_t step = 0; step < p->steps; step += block, add = true) {
        struct gemm_panel_pair low = *p, check = *p;
        low.steps = gemm_min(block, p->steps - step);
        low.a += step * p->height;
        low.b += step * k->panel_columns;
        check.steps = gemm_parts(low.steps, 2);
        check.a = bytes->a + step / 2 * p->height;
        check.b = bytes->b + step / 2 * k->panel_columns;
        check.next = bytes->next;
        check.sum = rest;
        k->whole[p->rows](&low);
        k->bytes[p->rows](&check);
        k->finish_bytes(p->sum, rest, p->stride, p->rows, k->panel_columns, 0, add, out);
    }
}

/* Sums of any data. */
static void unproven(const struct gemm_family *family, const struct gemm_panel_pair *p, const struct gemm_bound *a,
                     const struct gemm_bound *b, bool add, const struct gemm_sums *out, struct gemm_bytes *bytes,
                     struct gemm_accumulators *at) {
    const struct gemm_kernels *k = family->kernels;
    const int per_step = family->packing->per_step;
    if (k->bytes) {
        by_bytes(k, p, a, b, per_step, add, out, bytes, at->rest);
    } else if (k->products && a->largest * b->largest * per_step <= 0x7fffffff) {
        by_halves(k, k->products, p);
        k->finish_products(p->sum, p->high, p->stride, p->rows, k->panel_columns, 0, add, out);
    } else {
        by_halves(k, k->every_1, p);
        k->finish(p->sum, p->high, p->stride, p->rows, k->panel_columns, k->owed_per_split * p->steps, add, out);
    }
}

/* Computes the accumulators of a pair; false, and nothing is computed, if no scheme of accumulators is proved. */
static bool accumulate(const struct gemm_family *family, struct gemm_panel_pair *p, const struct gemm_bound *a,
                       const struct gemm_bound *b, struct gemm_accumulators *at, struct gemm_accumulated *x) {
    const struct gemm_kernels *k = family->kernels;
    p->sum = at->sum;
    p->high = at->high;
    p->stride = k->panel_columns;
    *x = (struct gemm_accumulated){.sum = p->sum, .high = p->high, .stride = p->stride};
    if (k->starts) { /* products of bytes: those of a block fit */
        p->start = b->start;
        k->whole[p->rows](p);
        return true;
    }
    switch (choose(a, b, p->steps, family->packing->per_step)) {
    case WHOLE:
        k->whole[p->rows](p);
        return true;
    case STAGGERED:
        x->owed = k->owed_per_split * (p->steps / GEMM_STAGGER + 1);
        memset(at->high, 0, (size_t)(p->rows * p->stride) * sizeof *at->high);
        k->staggered[p->rows](p);
        return true;
    case EVERY_8:
        x->owed = k->owed_per_split * (p->steps / 8);
        by_halves(k, k->every_8, p);
        return true;
    case EVERY_4:
        x->owed = k->owed_per_split * (p->steps / 4);
        by_halves(k, k->every_4, p);
        return true;
    case UNPROVEN:
        break;
    }
    return false;
}

static void exact_sums(const struct gemm_family *family, struct gemm_panel_pair *p, const struct gemm_bound *a,
                       const struct gemm_bound *b, bool add, const struct gemm_sums *out, struct gemm_bytes *bytes,
                       struct gemm_accumulators *at) {
    struct gemm_accumulated x;
    if (accumulate(family, p, a, b, at, &x))
        family->kernels->finish(x.sum, x.high, x.stride, p->rows, family->kernels->panel_columns, x.owed, add, out);
    else
        unproven(family, p, a, b, add, out, bytes, at);
}

void fl_gemm_pair_store(const struct gemm_call *c, struct gemm_panel_pair *p, const struct gemm_bound *a,
                        const struct gemm_bound *b, int64_t first, int64_t pitch, int64_t columns,
                        const struct gemm_sums *room, struct gemm_bytes *bytes, struct gemm_accumulators *at,
                        void *stats) {
    const int64_t width = c->kernels->panel_columns;
    struct gemm_accumulated x;
    if (!accumulate(c->family, p, a, b, at, &x))
        unproven(c->family, p, a, b, false, room, bytes, at);
    else if (c->stores->accumulated(c->args, first, pitch, p->rows, columns, &x, stats))
        return;
    else
        c->kernels->finish(x.sum, x.high, x.stride, p->rows, width, x.owed, false, room);
    c->stores->rows(c->args, first, pitch, p->rows, columns, room, stats);
}

/* A block of k is a chain; chains are added in order. */
static void ordered_sums(const struct gemm_kernels *k, struct gemm_panel_pair *p, bool add, const struct gemm_sums *out,
                         struct gemm_accumulators *at) {
    const bool apart = add && !k->panel_steps; /* matrix tiles continue the sums in memory */
    p->sum = apart ? at->sum : out->low;
    p->stride = apart ? k->panel_columns : out->stride;
    p->add = add;
    k->whole[p->rows](p);
    if (apart)
        k->finish(p->sum, NULL, p->stride, p->rows, k->panel_columns, 0, true, out);
}

void fl_gemm_pair_sums(const struct gemm_family *family, struct gemm_panel_pair *p, const struct gemm_bound *a,
                       const struct gemm_bound *b, bool add, const struct gemm_sums *out, struct gemm_bytes *bytes,
                       struct gemm_accumulators *at) {
    if (family->ordered)
        ordered_sums(family->kernels, p, add, out, at);
    else
        exact_sums(family, p, a, b, add, out, bytes, at);
}
