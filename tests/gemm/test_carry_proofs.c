/* The proofs of where accumulators need no carry split, against sums written down here: the bounds of runs of windows,
 * from every kernel set, and the splits that gemm_segments.h places. Whatever a tile multiplies, no sum of |a b|
 * between two splits may exceed GEMM_SPLIT_LIMIT. Rows of A are planted that equal a column of B, where the inequality
 * of Cauchy and Schwarz is an equality. FLEXLAB_TEST_SEED replays. */
#include "check.h"
#include "core/table/format.h"
#include "gemm/gemm_int16.h"
#include "gemm/gemm_segments.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1200, WIDTH = 16, STEPS = 4 * 4 * 12, PIXELS = 10, LINES = 6 };

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

/* A k-pair of numbers below 2^bits in size, or -2^15. */
static gemm_packed pair_below(int bits, uint64_t *seed) {
    const int range = 1 << bits;
    gemm_packed pair = 0;
    for (int k = 0; k < 2; k++) {
        const int x = (int)(check_random(seed) % (unsigned)(2 * range)) - range;
        pair |= (gemm_packed)(uint16_t)(int16_t)(x < INT16_MIN ? INT16_MIN : x) << 16 * k;
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
        for (int64_t i = 0; i < n; i += GEMM_WINDOW) {
            int64_t sum = 0;
            for (int64_t j = i; j < n && j < i + (GEMM_WINDOW << length); j++)
                sum += products_of(packed[j], packed[j]);
            most = sum > most ? sum : most;
        }
        CHECK((double)largest[length] >= (double)most && (double)largest[length] <= (double)most * 1.0001,
              "%s: runs of %d windows among %lld packed elements sum to %lld, bound %.0f (large %lld to %lld)",
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

/* A filter of rows x across positions of `depth` steps on lines of pixels. */
struct patch {
    int64_t rows, across, depth, pixel, line, steps;
    gemm_packed a[LINES * PIXELS * 16], b[STEPS * WIDTH];
};

/* The largest sum of |a b| between two splits of the tile row at `from`, of a column; segments of one step need none.
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

static void test_splits(int set, uint64_t *seed) {
    static struct patch p;
    memset(&p, 0, sizeof p);
    p.rows = 1 + (int64_t)(check_random(seed) % 4);
    p.across = 1 + (int64_t)(check_random(seed) % 4);
    p.depth = 1 + (int64_t)(check_random(seed) % 12);
    p.pixel = p.depth + (check_random(seed) % 4 ? 0 : (int64_t)(check_random(seed) % 4));
    p.line = PIXELS * p.pixel;
    p.steps = p.rows * p.across * p.depth;
    const int of_a = 8 + (int)(check_random(seed) % 8), of_b = 8 + (int)(check_random(seed) % 8);
    for (int64_t i = 0; i < LINES * PIXELS; i++)
        for (int64_t k = 0; k < p.depth; k++)
            p.a[i * p.pixel + k] = pair_below(of_a, seed);
    for (int64_t i = 0; i < p.steps * WIDTH; i++)
        p.b[i] = pair_below(of_b, seed);
    const int64_t y = (int64_t)(check_random(seed) % (uint64_t)(LINES - p.rows + 1)),
                  x = (int64_t)(check_random(seed) % (uint64_t)(PIXELS - p.across + 1));
    const int column = (int)(check_random(seed) % WIDTH);
    for (int64_t r = 0; r < p.rows; r++)
        for (int64_t s = 0; s < p.across; s++)
            for (int64_t k = 0; k < p.depth; k++)
                p.a[(y + r) * p.line + (x + s) * p.pixel + k] =
                    p.b[((r * p.across + s) * p.depth + k) * WIDTH + column];

    float windows[STEPS / GEMM_WINDOW + 1], largest[GEMM_RUN_LENGTHS] = {0};
    sets[set].packing->bound_windows(p.b, WIDTH, p.steps, windows);
    sets[set].packing->bound_runs(p.a, LINES * p.line, largest);
    const bool aligned = p.pixel % GEMM_WINDOW == 0 && p.depth % GEMM_WINDOW == 0;
    const struct gemm_runs runs = gemm_find_runs(largest, aligned);
    const struct gemm_proof proof = {windows, 0, &runs};
    struct gemm_segment segment[STEPS];
    struct gemm_block block[STEPS + 2];
    struct gemm_segments list = {.segment = segment, .block = block};
    gemm_segments_clear(&list, false, 1, WIDTH);
    /* the positions of a row in either order: neighbours in A, or not */
    const bool turned = check_random(seed) % 2;
    for (int64_t r = 0; r < p.rows; r++)
        for (int64_t i = 0; i < p.across; i++) {
            const int64_t s = turned ? p.across - 1 - i : i, step = (r * p.across + s) * p.depth;
            gemm_segments_add(&list, r * p.line + s * p.pixel, step * WIDTH, step, p.depth, proof);
        }
    gemm_segments_end(&list);

    int64_t most = 0, steps = 0;
    for (int64_t i = 0; i + p.rows <= LINES; i++)
        for (int64_t j = 0; j + p.across <= PIXELS; j++)
            for (int c = 0; c < WIDTH; c++) {
                const int64_t sum = largest_sum(&p, &list, i * p.line + j * p.pixel, c);
                most = sum > most ? sum : most;
            }
    for (int64_t i = 0; i < list.count; i++)
        steps += segment[i].steps;
    CHECK((double)most <= GEMM_SPLIT_LIMIT && steps == p.steps,
          "%s: %lld x %lld positions of %lld steps, pixels %lld apart, %d and %d bits: %lld of %lld steps, sums up to "
          "%lld between splits",
          fl_backend_name(sets[set].backend), (long long)p.rows, (long long)p.across, (long long)p.depth,
          (long long)p.pixel, of_a, of_b, (long long)steps, (long long)p.steps, (long long)most);
    const double whole = (double)p.steps * 2 * (1 << (of_a > of_b ? of_a : of_b)) * (1 << (of_a > of_b ? of_a : of_b));
    CHECK(whole * 4 > GEMM_SPLIT_LIMIT || !list.block[0].splits, "%s: %lld splits of sums that always fit",
          fl_backend_name(sets[set].backend), (long long)list.block[0].splits);
}

int main(void) {
    const char *text = getenv("FLEXLAB_TEST_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 0) : 20261127;
    printf("seed %llu\n", (unsigned long long)seed);
    for (int set = 0; set < SETS; set++)
        for (int i = 0; fl_backend_runs(sets[set].backend) && i < 3000; i++) {
            test_runs(set, &seed);
            test_splits(set, &seed);
        }
    return check_summary();
}
