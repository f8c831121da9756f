/* gemm_segments.c - lists the stretches of k that the tiles of a convolution multiply, and proves at which steps their
 * accumulators need a carry split. */
#include "gemm/gemm_driver.h"

static void restart(struct gemm_segments *list, double stretch) {
    list->squares[0] = 0;
    list->squares[1] = stretch;
}

void fl_gemm_segments_clear(struct gemm_segments *list, bool ordered, int64_t a_step, int64_t b_step) {
    list->count = list->blocks = list->steps = 0;
    restart(list, 0);
    list->a_step = a_step;
    list->b_step = b_step;
    list->ordered = ordered;
    list->block[0] = (struct gemm_block){0, 0};
}

void fl_gemm_segments_new_block(struct gemm_segments *list) {
    if (!list->steps)
        return;
    list->block[++list->blocks] = (struct gemm_block){list->count, 0};
    list->steps = 0;
    restart(list, 0);
}

void fl_gemm_segments_end(struct gemm_segments *list) {
    if (list->steps)
        list->block[++list->blocks] = (struct gemm_block){list->count, 0};
}

static void append(struct gemm_segments *list, int64_t a, int64_t b, int64_t steps, bool hole) {
    struct gemm_segment *last = list->steps ? &list->segment[list->count - 1] : NULL;
    list->steps += steps;
    if (last && !last->split && !last->hole && !hole && a == last->a + last->steps * list->a_step &&
        b == last->b + last->steps * list->b_step) {
        last->steps += steps;
        return;
    }
    list->segment[list->count++] = (struct gemm_segment){a, b, steps, false, hole};
}

static void split(struct gemm_segments *list) {
    if (!list->steps)
        return;
    list->segment[list->count - 1].split = true;
    list->block[list->blocks].splits++;
}

/* Whether sums of products surely fit, by the inequality of Cauchy and Schwarz. */
static bool fits(double squares_a, double squares_b) {
    return squares_a * squares_b <= GEMM_SPLIT_LIMIT * GEMM_SPLIT_LIMIT * (1 - 0x1p-20);
}

void fl_gemm_segments_add_hole(struct gemm_segments *list, int64_t b) {
    append(list, 0, b, 1, true);
}

void fl_gemm_segments_add(struct gemm_segments *list, int64_t a, int64_t b, int64_t step, int64_t steps,
                          struct gemm_proof proof) {
    if (list->ordered) {
        append(list, a, b, steps, false);
        return;
    }
    if (!proof.window) {
        for (int64_t take; steps > 0; steps -= take, a += take * list->a_step, b += take * list->b_step) {
            if (list->steps >= GEMM_BLOCK_STEPS)
                fl_gemm_segments_new_block(list);
            take = gemm_min(steps, GEMM_BLOCK_STEPS - list->steps);
            append(list, a, b, take, false);
        }
        return;
    }
    list->squares[1] += proof.stretch;
    while (steps > 0) {
        int64_t take = gemm_min(steps, GEMM_WINDOW - step % GEMM_WINDOW);
        const double more = proof.window[step / GEMM_WINDOW];
        if (list->steps >= GEMM_BLOCK_STEPS) {
            fl_gemm_segments_new_block(list);
            restart(list, proof.stretch);
        }
        if (!fits(list->squares[0] + more, list->squares[1] + proof.each)) {
            split(list);
            restart(list, proof.stretch);
        }
        if (!fits(more, proof.stretch + proof.each))
            take = 1; /* always right just after a split */
        append(list, a, b, take, false);
        list->squares[0] += more;
        list->squares[1] += proof.each;
        a += take * list->a_step;
        b += take * list->b_step;
        step += take;
        steps -= take;
    }
}
