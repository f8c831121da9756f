/* The affine map of a channel as one integer of 64 bits (affine_as_whole), against sums in 128 bits: it is used where
 * mantissas of any size leave it below 2^62, and nowhere else; then it is the exact sum. As one integer of 128 bits
 * (affine_as_wide), against sums of terms: roundings and sizes are theirs. */
#include "check.h"
#include "core/arithmetic/exact_rules.h"
#include "flex/flex_affine_plan.h"

static uint64_t seed = 1;

static int between(int low, int high) {
    return low + (int)(check_random(&seed) % (uint64_t)(high - low + 1));
}

/* Zero, a few bits, or up to 31 bits. */
static struct fl_coefficient coefficient(int e) {
    const int64_t bits = (int64_t)(check_random(&seed) >> (33 + between(0, 3) * between(0, 9)));
    struct fl_coefficient k = {(int32_t)(check_random(&seed) % 16 ? bits : 0), e};
    if (check_random(&seed) % 4 == 0)
        k.m = INT32_MAX - between(0, 1);
    k.m = check_random(&seed) % 2 ? -k.m : k.m;
    return k;
}

static int mantissa(void) {
    return check_random(&seed) % 3 ? (check_random(&seed) % 2 ? -32768 : 32767) : between(-32768, 32767);
}

static fl_int128 at(int64_t m, int e, int g) {
    return m * ((fl_int128)1 << (g - e));
}

static void wide_maps(void) {
    int holding = 0, refused = 0;
    for (int i = 0; i < 200000; i++) {
        const int e = between(-300, 300);
        const struct affine_channel p = {
            coefficient(e + between(-30, 30)), coefficient(e + between(-30, 30)), coefficient(e + between(-60, 60)),
            check_random(&seed) % 2 ? mantissa() % 32768 : 0, check_random(&seed) % 2 ? mantissa() % 32768 : 0};
        struct affine_wide t;
        if (!affine_as_wide(&p, &t)) {
            refused++;
            continue;
        }
        holding++;
        for (int j = 0; j < 4; j++) {
            const int a = mantissa(), x = mantissa();
            const struct fl_term terms[3] = {{(int64_t)p.first.m * (a - p.first_centre), p.first.e},
                                             {(int64_t)p.cross.m * (x - p.cross_centre), p.cross.e},
                                             {p.offset.m, p.offset.e}};
            const struct fl_wide_sum sum = fl_terms_sum(terms, 3),
                                     whole = {t.constant + t.first * a + t.cross * x, t.exponent};
            const int e_out = e + between(-60, 20);
            CHECK(fl_terms_abs(sum) == fl_terms_abs(whole) && (sum.m < 0) == (whole.m < 0), "case %d: another size", i);
            CHECK(fl_terms_round(sum, e_out, 32768, NULL, NULL) == fl_terms_round(whole, e_out, 32768, NULL, NULL),
                  "case %d: rounded to another mantissa", i);
        }
    }
    CHECK(holding > 100000 && refused > 10000, "%d in 128 bits, %d refused", holding, refused);
}

int main(void) {
    wide_maps();
    int whole = 0, refused = 0, close = 0;
    for (int i = 0; i < 400000; i++) {
        const int e = between(-300, 300);
        const struct affine_channel p = {
            coefficient(e + between(-8, 8)), coefficient(e + between(-18, 18)), coefficient(e + between(-24, 24)),
            check_random(&seed) % 2 ? mantissa() % 32768 : 0, check_random(&seed) % 2 ? mantissa() % 32768 : 0};
        struct affine_whole t = {0};
        const bool holds = affine_as_whole(&p, &t);
        /* the least exponent at which every coefficient is an integer, and the sum of all sizes there */
        int g = e - 400;
        const struct fl_coefficient *part[3] = {&p.first, &p.cross, &p.offset};
        for (int j = 0; j < 3; j++)
            for (int32_t m = part[j]->m, k = 0; m; k++, m /= 2)
                if (m % 2) {
                    g = part[j]->e - k > g ? part[j]->e - k : g;
                    break;
                }
        const int common = e + 40; /* no exponent is larger */
        fl_int128 size = 0;
        for (int j = 0; j < 3; j++)
            size += at(affine_abs(part[j]->m), part[j]->e, common) * (j < 2 ? 65536 : 1);
        const bool below = !size || size >> (common - g) < (fl_int128)1 << 62;
        CHECK(holds == below, "case %d: %d, expected %d", i, holds, below);
        whole += holds && size;
        refused += !holds;
        close += size && size >> (common - g) >= (fl_int128)1 << 61 && size >> (common - g) < (fl_int128)1 << 63;
        for (int j = 0; holds && j < 4; j++) {
            const int a = mantissa(), x = mantissa();
            const int64_t sum = t.constant + t.first * a + t.cross * x;
            const fl_int128 exact = at((int64_t)p.first.m * (a - p.first_centre), p.first.e, common) +
                                    at((int64_t)p.cross.m * (x - p.cross_centre), p.cross.e, common) +
                                    at(p.offset.m, p.offset.e, common);
            CHECK(size ? exact == at(sum, t.exponent, common) : !sum, "case %d: another sum", i);
            CHECK(affine_abs(sum) < (int64_t)1 << 62, "case %d: the sum has more than 62 bits", i);
        }
    }
    CHECK(whole > 100000 && refused > 10000 && close > 10000, "%d, %d refused, %d around the limit", whole, refused,
          close);
    printf("%d as integers of 64 bits, %d not, %d around the limit\n", whole, refused, close);
    return check_summary();
}
