/* gemm_segments.h - lists the stretches of k that the tiles of a convolution multiply, and proves at which steps their
 * accumulators need a carry split. Inline, since a list is made of many short stretches. */
#ifndef FL_GEMM_SEGMENTS_H
#define FL_GEMM_SEGMENTS_H

#include "gemm/gemm_driver.h"

/* First segment of a block of k, and how many of its segments end in a carry split. */
struct gemm_block {
    int64_t first, splits;
};

/* Which stretches of k a tile multiplies, in blocks, and where its accumulators are split. Made once for all tiles that
 * see their operands at the same offsets. A block is one call of the micro-kernel for each tile: of ordered sums a
 * chain of FL_K_CHUNK, otherwise as much of B as stays in the cache. */
struct gemm_segments {
    struct gemm_segment *segment;
    int64_t count;
    struct gemm_block *block; /* one more than there are blocks */
    int64_t blocks;
    int64_t steps;        /* in the last block */
    double squares[2];    /* since the last split: bounds on the sums of squares that one accumulator takes of the
                             operand with intervals and of the other one, of this without the run that may go on */
    int64_t run, run_end; /* steps of that run, and where in A it would go on */
    double run_bound;
    int64_t a_step, b_step;
    bool ordered;
};

/* Bounds on the sums of squares of runs of 0 ... GEMM_RUN + 1 intervals that follow each other in A. aligned: every
 * stretch of A begins where an interval does, and so does every filter position in B. */
struct gemm_runs {
    double of[GEMM_RUN + 2];
    bool aligned;
};

/* From the largest sums of squares of 1, 2, 4 ... intervals of an image whose pixels lie `pixel` packed elements apart,
 * `depth` of which have data. */
static inline struct gemm_runs gemm_find_runs(const float largest[GEMM_RUN_LENGTHS], int64_t pixel, int64_t depth) {
    struct gemm_runs runs = {.aligned = pixel % GEMM_INTERVAL == 0 && depth % GEMM_INTERVAL == 0};
    double *of = runs.of;
    for (int n = 1, i = 0; n <= GEMM_RUN + 1; n++) {
        if (i + 1 < GEMM_RUN_LENGTHS && n >> (i + 1))
            i++;
        of[n] = largest[i] + of[n - (1 << i)];
        if (n > 1 << i && i + 1 < GEMM_RUN_LENGTHS && of[n] > largest[i + 1])
            of[n] = largest[i + 1];
    }
    return runs;
}

/* What is known of a stretch. Of one operand, interval[i] bounds the sum of squares of a column over steps
 * i * GEMM_INTERVAL ... Of the other one `stretch` bounds that of the whole stretch; or if there are `runs`, this
 * operand is A, whose step is 1, and they bound any part of the stretch, together with what lies beside it in A. By
 * Cauchy and Schwarz a sum of |a b| is at most the root of the product of both. Of no meaning in ordered sums; interval
 * NULL: no sum over a block needs a proof. */
struct gemm_proof {
    const float *interval;
    double stretch;
    const struct gemm_runs *runs;
};

/* The bound of `steps` neighbouring steps of the other operand. They meet at most one interval more than those that are
 * aligned. Without runs it is the bound of the whole stretch. */
static inline double gemm_bound_of(const struct gemm_proof *proof, int64_t steps) {
    const struct gemm_runs *runs = proof->runs;
    if (!runs)
        return proof->stretch;
    int64_t n = gemm_parts(steps + (runs->aligned ? 0 : GEMM_INTERVAL - 1), GEMM_INTERVAL);
    double bound = 0;
    for (; n > GEMM_RUN + 1; n -= GEMM_RUN)
        bound += runs->of[GEMM_RUN];
    return bound + runs->of[n];
}

/* Steps: from one step of k to the next in A and in B. */
static inline void gemm_segments_clear(struct gemm_segments *list, bool ordered, int64_t a_step, int64_t b_step) {
    list->count = list->blocks = list->steps = 0;
    list->squares[0] = list->squares[1] = 0;
    list->run = list->run_end = 0;
    list->a_step = a_step;
    list->b_step = b_step;
    list->ordered = ordered;
    list->block[0] = (struct gemm_block){0, 0};
}

static inline void gemm_segments_new_block(struct gemm_segments *list) {
    if (!list->steps)
        return;
    list->block[++list->blocks] = (struct gemm_block){list->count, 0};
    list->steps = 0;
}

/* Ends the list: block i is then segment[block[i].first] ... segment[block[i + 1].first - 1], i < blocks. */
static inline void gemm_segments_end(struct gemm_segments *list) {
    if (list->steps)
        list->block[++list->blocks] = (struct gemm_block){list->count, 0};
}

static inline void gemm_segments_append(struct gemm_segments *list, int64_t a, int64_t b, int64_t steps, bool hole) {
    if (!steps)
        return;
    struct gemm_segment *last = list->steps ? &list->segment[list->count - 1] : NULL;
    list->steps += steps;
    if (last && !last->split && !last->hole && !hole && a == last->a + last->steps * list->a_step &&
        b == last->b + last->steps * list->b_step) {
        last->steps += steps;
        return;
    }
    list->segment[list->count++] = (struct gemm_segment){a, b, steps, false, hole};
}

static inline void gemm_segments_split(struct gemm_segments *list) {
    if (!list->steps)
        return;
    list->segment[list->count - 1].split = true;
    list->block[list->blocks].splits++;
}

/* Whether sums of products surely fit, by the inequality of Cauchy and Schwarz. */
static inline bool gemm_segments_fit(double squares_a, double squares_b) {
    return squares_a * squares_b <= GEMM_SPLIT_LIMIT * GEMM_SPLIT_LIMIT * (1 - 0x1p-20);
}

/* One step in which A is zero. */
static inline void gemm_segments_add_hole(struct gemm_segments *list, int64_t b) {
    gemm_segments_append(list, 0, b, 1, true);
}

/* Adds `steps` steps from `step` on (their place among the intervals), which lie at a and b. */
static inline void gemm_segments_add(struct gemm_segments *list, int64_t a, int64_t b, int64_t step, int64_t steps,
                                     struct gemm_proof proof) {
    if (list->ordered) {
        gemm_segments_append(list, a, b, steps, false);
        return;
    }
    if (!proof.interval) {
        for (int64_t take; steps > 0; steps -= take, a += take * list->a_step, b += take * list->b_step) {
            if (list->steps >= GEMM_BLOCK_STEPS)
                gemm_segments_new_block(list);
            take = gemm_min(steps, GEMM_BLOCK_STEPS - list->steps);
            gemm_segments_append(list, a, b, take, false);
        }
        return;
    }
    /* bounds on what was added since the last split, and how many of its steps are still to be appended */
    double of_intervals = list->squares[0], of_others = list->squares[1];
    int64_t pending = 0, run = list->run;
    if (run && (!proof.runs || a != list->run_end)) {
        of_others += list->run_bound;
        run = 0;
    }
    while (pending < steps) {
        const int64_t at = step + pending;
        const double interval = proof.interval[at / GEMM_INTERVAL];
        int64_t take = gemm_min(steps - pending, GEMM_INTERVAL - at % GEMM_INTERVAL);
        const bool ends = list->steps + pending >= GEMM_BLOCK_STEPS;
        if (ends || !gemm_segments_fit(of_intervals + interval, of_others + gemm_bound_of(&proof, run + take))) {
            gemm_segments_append(list, a, b, pending, false);
            if (ends)
                gemm_segments_new_block(list);
            else
                gemm_segments_split(list);
            a += pending * list->a_step;
            b += pending * list->b_step;
            step += pending;
            steps -= pending;
            pending = 0;
            of_intervals = of_others = 0;
            run = 0;
            if (!gemm_segments_fit(interval, gemm_bound_of(&proof, take)))
                take = 1; /* always right just after a split */
        }
        of_intervals += interval;
        run += take;
        pending += take;
    }
    gemm_segments_append(list, a, b, pending, false);
    list->squares[0] = of_intervals;
    list->squares[1] = of_others;
    list->run = run;
    list->run_end = a + pending * list->a_step;
    list->run_bound = gemm_bound_of(&proof, run);
}

/* Sets segments, count and splits of a tile. */
static inline void gemm_tile_block(struct gemm_tile *tile, const struct gemm_segments *list, int64_t block) {
    tile->segments = list->segment + list->block[block].first;
    tile->count = list->block[block + 1].first - list->block[block].first;
    tile->splits = list->block[block].splits;
}

#endif
