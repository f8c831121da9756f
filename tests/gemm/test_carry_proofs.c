/* The proofs of where accumulators need no carry split, against sums written down here: the bounds of runs of
 * intervals, from every kernel set, and the splits that gemm_segments.h places. Whatever a tile multiplies, no sum of
 * |a b| between two splits may exceed the limit. Rows of A are planted that equal a column of B, where the inequality
 * of Cauchy and Schwarz is an equality. FLEXLAB_TEST_SEED replays. */
#include "check.h"
#include "core/table/format.h"
#include "gemm/gemm_int16.h"
#include "gemm/gemm_segments.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1200, WIDTH = 16, DEPTH = 1100, STEPS = DEPTH, PIXELS = 10, LINES = 6 };

/* What a split may leave, -2^16 ... -1, and a sum of this size fit an int32 together. */
static const int64_t limit = INT64_C(0x80000000) - 0x10000;

static const struct {
    enum fl_backend backend;
    const struct gemm_packing *packing;
} sets[] = {
    {FL_PORTABLE, &fl_gemm_int16_packing_portable},
#if defined(FL_HAVE_AVX2)
    {FL_AVX2, &fl_gemm_int16_packing_avx2},
#endif
#if defined(FL_HAVE_AVX512)
    {FL_AVX512BW, &fl_gemm_int16_packing_avx512bw},
#endif
};
enum { SETS = sizeof sets / sizeof *sets };

static int element_of(gemm_packed pair, int k) {
    return (int16_t)(pair >> 16 * k);
}

/* The sum of |a b| of a k-pair. */
static int64_t products_of(gemm_packed a, gemm_packed b) {
    return llabs((int64_t)element_of(a, 0) * element_of(b, 0)) + llabs((int64_t)element_of(a, 1) * element_of(b, 1));
}

/* A k-pair of numbers from -2^bits up to 2^bits - 1, the lowest one more often than others. */
static gemm_packed pair_below(int bits, uint64_t *seed) {
    const unsigned range = 1u << bits;
    gemm_packed pair = 0;
    for (int k = 0; k < 2; k++) {
        const uint64_t r = check_random(seed);
        const int x = r >> 60 ? (int)(r % (2 * range)) - (int)range : -(int)range;
        pair |= (gemm_packed)(uint16_t)(int16_t)x << 16 * k;
    }
    return pair;
}

/* --- bounds of runs ----------------------------------------------------------------------------------------------- */

/* Small numbers, and large ones in some stretch. */
static void test_runs(int set, uint64_t *seed) {
    static gemm_packed packed[MOST];
    const int64_t n = 1 + (int64_t)(check_random(seed) % MOST), first = (int64_t)(check_random(seed) % (uint64_t)n),
                  end = first + 1 + (int64_t)(check_random(seed) % 40);
    const int bits = 1 + (int)(check_random(seed) % 15);
    for (int64_t i = 0; i < n; i++)
        packed[i] = pair_below(i >= first && i < end ? 15 : bits, seed);
    float largest[GEMM_RUN_LENGTHS] = {0};
    sets[set].packing->bound_runs(packed, n, largest);
    for (int length = 0; length < GEMM_RUN_LENGTHS; length++) {
        int64_t most = 0;
        for (int64_t i = 0; i < n; i += GEMM_INTERVAL) {
            int64_t sum = 0;
            for (int64_t j = i; j < n && j < i + (GEMM_INTERVAL << length); j++)
                sum += products_of(packed[j], packed[j]);
            most = sum > most ? sum : most;
        }
        /* AVX2 counts up to 2 more for each packed element */
        const double above = (double)most * 1.0001 + 2 * (GEMM_INTERVAL << length);
        CHECK((double)largest[length] >= (double)most && (double)largest[length] <= above,
              "%s: runs of %d intervals among %lld packed elements sum to %lld, bound %.0f (large %lld to %lld)",
              fl_backend_name(sets[set].backend), 1 << length, (long long)n, (long long)most, (double)largest[length],
              (long long)first, (long long)end);
    }
    float kept[GEMM_RUN_LENGTHS];
    memcpy(kept, largest, sizeof kept);
    sets[set].packing->bound_runs(packed, 0, largest);
    CHECK(!memcmp(kept, largest, sizeof kept), "%s: no packed elements change the bounds",
          fl_backend_name(sets[set].backend));
}

/* --- splits ------------------------------------------------------------------------------------------------------- */

/* A filter of `rows` x `across` positions of `depth` steps on lines of pixels. */
struct patch {
    int64_t rows, across, depth, pixel, line, steps;
    gemm_packed a[LINES * PIXELS * (DEPTH + 4)], b[STEPS * WIDTH];
};

/* Where the channels of a position begin: in A, from the tile row's pixel on, and in B. */
static int64_t place_of(const struct patch *p, int64_t r, int64_t s) {
    return r * p->line + s * p->pixel;
}
static int64_t step_of(const struct patch *p, int64_t r, int64_t s) {
    return (r * p->across + s) * p->depth;
}

/* The largest sum of |a b| between two splits of the tile row at `from`, of a column; a step by itself needs no proof.
 */
static int64_t largest_sum(const struct patch *p, const struct gemm_segments *list, int64_t from, int column) {
    int64_t largest = 0;
    for (int64_t block = 0; block < list->blocks; block++) {
        int64_t sum = 0;
        bool begins = true;
        for (int64_t i = list->block[block].first; i < list->block[block + 1].first; i++) {
            const struct gemm_segment *s = &list->segment[i];
            for (int64_t k = 0; k < s->steps; k++)
                sum += products_of(p->a[from + s->a + k], p->b[s->b + k * WIDTH + column]);
            if (!(begins && s->steps == 1) && sum > largest)
                largest = sum;
            begins = s->split;
            sum = s->split ? 0 : sum;
        }
    }
    return largest;
}

/* Makes the row of A at a pixel equal to a column of B. */
static void plant_column(struct patch *p, int64_t pixel, int column) {
    for (int64_t r = 0; r < p->rows; r++)
        for (int64_t s = 0; s < p->across; s++)
            for (int64_t k = 0; k < p->depth; k++)
                p->a[pixel + place_of(p, r, s) + k] = p->b[(step_of(p, r, s) + k) * WIDTH + column];
}

/* Nothing but a stretch of numbers of one size, which just does not fit. */
static void plant_stretch(struct patch *p, int64_t pixel, int column, uint64_t *seed) {
    const int64_t length = 2 + (int64_t)(check_random(seed) % 31),
                  first = (int64_t)(check_random(seed) % (uint64_t)p->steps);
    const int size = (int)ceil(sqrt((double)limit / (2.0 * (double)length)));
    memset(p->a, 0, sizeof p->a);
    memset(p->b, 0, sizeof p->b);
    for (int64_t k = first; k < first + length && k < p->steps; k++)
        p->b[k * WIDTH + column] = (gemm_packed)size | (gemm_packed)size << 16;
    plant_column(p, pixel, column);
}

/* Lists the positions of each row in their order, or turned, so that they are no neighbours in A. */
static void list_patch(const struct patch *p, bool turned, struct gemm_proof proof, struct gemm_segments *list) {
    gemm_segments_clear(list, false, 1, WIDTH);
    for (int64_t r = 0; r < p->rows; r++)
        for (int64_t i = 0; i < p->across; i++) {
            const int64_t s = turned ? p->across - 1 - i : i, step = step_of(p, r, s);
            gemm_segments_add(list, place_of(p, r, s), step * WIDTH, step, p->depth, proof);
        }
    gemm_segments_end(list);
}

static void check_list(const struct patch *p, const struct gemm_segments *list, const char *name) {
    int64_t most = 0, steps = 0, longest = 0, miscounted = 0;
    for (int64_t i = 0; i + p->rows <= LINES; i++)
        for (int64_t j = 0; j + p->across <= PIXELS; j++)
            for (int c = 0; c < WIDTH; c++) {
                const int64_t sum = largest_sum(p, list, place_of(p, i, j), c);
                most = sum > most ? sum : most;
            }
    for (int64_t block = 0; block < list->blocks; block++) {
        int64_t here = 0, splits = 0;
        for (int64_t i = list->block[block].first; i < list->block[block + 1].first; i++) {
            here += list->segment[i].steps;
            splits += list->segment[i].split;
        }
        miscounted += splits != list->block[block].splits;
        longest = here > longest ? here : longest;
        steps += here;
    }
    CHECK(
        most <= limit && steps == p->steps && longest < GEMM_BLOCK_STEPS + GEMM_INTERVAL && !miscounted,
        "%s: %lld x %lld positions of %lld steps, pixels %lld apart: %lld of %lld steps, %lld in a block, %lld counts "
        "of splits are wrong, sums up to %lld between splits",
        name, (long long)p->rows, (long long)p->across, (long long)p->depth, (long long)p->pixel, (long long)steps,
        (long long)p->steps, (long long)longest, (long long)miscounted, (long long)most);
}

static void test_splits(int set, int number, uint64_t *seed) {
    static struct patch p;
    static float intervals[STEPS / GEMM_INTERVAL + 1];
    static struct gemm_segment segment[STEPS];
    static struct gemm_block block[STEPS + 2];
    const char *name = fl_backend_name(sets[set].backend);
    const bool deep = number % 500 < 2, planted = number % 2; /* deep: more than a block holds */
    memset(&p, 0, sizeof p);
    p.rows = deep ? 1 : 1 + (int64_t)(check_random(seed) % 4);
    p.across = deep ? 1 : 1 + (int64_t)(check_random(seed) % 4);
    p.depth = deep ? DEPTH : 1 + (int64_t)(check_random(seed) % 12);
    p.pixel = p.depth + (check_random(seed) % 4 ? 0 : 1 + (int64_t)(check_random(seed) % 4));
    p.line = PIXELS * p.pixel;
    p.steps = p.rows * p.across * p.depth;
    const int of_a = 8 + (int)(check_random(seed) % 8), of_b = 8 + (int)(check_random(seed) % 8),
              column = (int)(check_random(seed) % WIDTH);
    const int64_t pixel = place_of(&p, (int64_t)(check_random(seed) % (uint64_t)(LINES - p.rows + 1)),
                                   (int64_t)(check_random(seed) % (uint64_t)(PIXELS - p.across + 1)));
    for (int64_t i = 0; i < LINES * PIXELS; i++)
        for (int64_t k = 0; k < p.depth; k++)
            p.a[i * p.pixel + k] = pair_below(of_a, seed);
    for (int64_t i = 0; i < p.steps * WIDTH; i++)
        p.b[i] = pair_below(of_b, seed);
    if (planted)
        plant_column(&p, pixel, column);
    else
        plant_stretch(&p, pixel, column, seed);

    float largest[GEMM_RUN_LENGTHS] = {0};
    sets[set].packing->bound_intervals(p.b, WIDTH, p.steps, intervals);
    sets[set].packing->bound_runs(p.a, LINES * p.line, largest);
    const struct gemm_runs runs = gemm_find_runs(largest, p.pixel, p.depth);
    struct gemm_segments list = {.segment = segment, .block = block};
    list_patch(&p, check_random(seed) % 2, (struct gemm_proof){intervals, 0, &runs}, &list);
    check_list(&p, &list, name);
    const double most = ldexp(1, 2 * (of_a > of_b ? of_a : of_b) + 1);
    CHECK(!planted || (double)p.steps * most * 4 > (double)limit || !list.block[0].splits,
          "%s: %lld splits of sums that always fit", name, (long long)list.block[0].splits);

    /* the same with a bound of each whole stretch */
    int64_t stretch = 0;
    for (int64_t i = 0; i < LINES * PIXELS; i++) {
        int64_t here = 0;
        for (int64_t k = 0; k < p.depth; k++)
            here += products_of(p.a[i * p.pixel + k], p.a[i * p.pixel + k]);
        stretch = here > stretch ? here : stretch;
    }
    list_patch(&p, false, (struct gemm_proof){intervals, (double)stretch, NULL}, &list);
    check_list(&p, &list, name);
}

int main(void) {
    const char *text = getenv("FLEXLAB_TEST_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 0) : 20261127;
    printf("seed %llu\n", (unsigned long long)seed);
    for (int set = 0; set < SETS; set++)
        for (int i = 0; fl_backend_runs(sets[set].backend) && i < 3000; i++) {
            test_runs(set, &seed);
            test_splits(set, i, &seed);
        }
    return check_summary();
}
