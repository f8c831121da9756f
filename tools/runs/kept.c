/* kept.c - the state of a run as a list of doubles: a head, then windows, epochs, steps, scales, times. Doubles are
 * exact for its whole numbers. */
#include "runs/kept.h"
#include "results/metrics.h"
#include "base/text.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum head {
    LAYOUT,
    WINDOW_SUM,
    WINDOW_COUNT,
    FIRST_LOSS,
    NONFINITE_STEP,
    NONFINITE_LOSS,
    WINDOWS,
    EPOCHS,
    STEPS,
    SCALES,
    TIMES,
    WALL,
    WINDOW_FINITE_SUM,
    WINDOW_NONFINITE,
    HEAD
};
enum { WINDOW = 6, EPOCH = 7, STEP = 2, SCALE = 2, LAYOUT_NUMBER = 4 };

/* Grows the list if it is full; each entry has `size` bytes. */
static void make_room(double **list, int64_t count, int64_t *room, size_t size) {
    if (count < *room)
        return;
    *room = *room ? 2 * *room : 256;
    *list = text_realloc(*list, (size_t)*room, size);
}

void kept_loss(struct kept *k, double loss) {
    k->window_sum += loss;
    k->window_count++;
    k->finite_sum += isfinite(loss) ? loss : 0;
    k->nonfinite += !isfinite(loss);
}

struct window kept_window(struct kept *k, int64_t step, double rate) {
    const int finite = k->window_count - k->nonfinite;
    const struct window w = {.step = step,
                             .count = k->window_count,
                             .loss = k->window_sum / k->window_count,
                             .rate = rate,
                             .nonfinite = k->nonfinite,
                             .finite_loss = finite ? k->finite_sum / finite : 0};
    k->window_sum = k->finite_sum = 0;
    k->window_count = k->nonfinite = 0;
    return w;
}

void kept_step(struct kept *k, double loss, double rate) {
    make_room(&k->steps, k->step_count, &k->step_room, STEP * sizeof *k->steps);
    k->steps[STEP * k->step_count] = loss;
    k->steps[STEP * k->step_count + 1] = rate;
    k->step_count++;
}

void kept_time(struct kept *k, double seconds) {
    make_room(&k->times, k->time_count, &k->time_room, sizeof *k->times);
    k->times[k->time_count++] = seconds;
}

const void *kept_bytes(struct kept *k, const struct run *run, size_t *bytes) {
    const size_t count = HEAD + WINDOW * (size_t)run->window_count + EPOCH * (size_t)run->epoch_count +
                         STEP * (size_t)k->step_count + SCALE * (size_t)run->scale_count + (size_t)k->time_count;
    const double head[HEAD] = {[LAYOUT] = LAYOUT_NUMBER,
                               [WINDOW_SUM] = k->window_sum,
                               [WINDOW_COUNT] = k->window_count,
                               [WINDOW_FINITE_SUM] = k->finite_sum,
                               [WINDOW_NONFINITE] = k->nonfinite,
                               [FIRST_LOSS] = run->first_loss,
                               [NONFINITE_STEP] = (double)run->nonfinite_step,
                               [NONFINITE_LOSS] = run->nonfinite_loss,
                               [WINDOWS] = run->window_count,
                               [EPOCHS] = run->epoch_count,
                               [STEPS] = (double)k->step_count,
                               [SCALES] = (double)run->scale_count,
                               [TIMES] = (double)k->time_count,
                               [WALL] = k->wall};
    free(k->bytes);
    double *to = k->bytes = text_alloc(count, sizeof *to);
    memcpy(to, head, sizeof head);
    to += HEAD;
    for (int i = 0; i < run->window_count; i++, to += WINDOW) {
        const struct window *w = &run->windows[i];
        memcpy(to, (const double[WINDOW]){(double)w->step, w->count, w->loss, w->rate, w->nonfinite, w->finite_loss},
               WINDOW * sizeof *to);
    }
    for (int i = 0; i < run->epoch_count; i++, to += EPOCH) {
        const nn_epoch_report *e = &run->epochs[i];
        memcpy(to,
               (const double[EPOCH]){e->epoch, (double)e->step, e->train_loss, e->train_accuracy, e->test_loss,
                                     e->test_accuracy, e->seconds},
               EPOCH * sizeof *to);
    }
    if (k->step_count)
        memcpy(to, k->steps, STEP * (size_t)k->step_count * sizeof *to);
    to += STEP * k->step_count;
    for (int64_t i = 0; i < run->scale_count; i++, to += SCALE)
        memcpy(to, (const double[SCALE]){(double)run->scales[i].step, run->scales[i].scale}, SCALE * sizeof *to);
    if (k->time_count)
        memcpy(to, k->times, (size_t)k->time_count * sizeof *to);
    *bytes = count * sizeof *to;
    return k->bytes;
}

static bool is_whole(double value, double low, double high) {
    return value >= low && value <= high && value == floor(value);
}

/* The number of windows that are complete after `steps` steps: the last of the run may be short. */
static int64_t windows_after(const struct experiment *x, int64_t steps) {
    return steps == x->steps ? (steps - 1) / x->window + 1 : steps / x->window;
}

/* The number of steps to which the windows in the head belong; 0: the head is invalid. */
static int64_t recorded_steps(const struct experiment *x, const double *head) {
    const int64_t most = windows_after(x, x->steps);
    if (!is_whole(head[WINDOWS], 0, (double)most) || !is_whole(head[WINDOW_COUNT], 0, x->window - 1))
        return 0;
    const int64_t steps = (int64_t)head[WINDOWS] * x->window + (int64_t)head[WINDOW_COUNT];
    return (int64_t)head[WINDOWS] == most ? x->steps : steps < x->steps ? steps : 0;
}

static bool is_head(const struct experiment *x, int64_t steps, const double *head, size_t count) {
    const double epochs = (double)((steps - 1) / x->steps_per_epoch + 1), most = (double)steps;
    return count >= HEAD && steps && head[LAYOUT] == LAYOUT_NUMBER && (steps < x->steps || !head[WINDOW_COUNT]) &&
           is_whole(head[WINDOW_NONFINITE], 0, head[WINDOW_COUNT]) && isfinite(head[WINDOW_FINITE_SUM]) &&
           is_whole(head[NONFINITE_STEP], 0, most) && is_whole(head[EPOCHS], 0, epochs) &&
           head[STEPS] == (x->settings->step_loss ? most : 0) && is_whole(head[SCALES], 0, most) &&
           is_whole(head[TIMES], 0, most) && head[WALL] >= 0 &&
           (double)count == HEAD + WINDOW * head[WINDOWS] + EPOCH * head[EPOCHS] + STEP * head[STEPS] +
                                SCALE * head[SCALES] + head[TIMES];
}

static bool take_windows(const struct experiment *x, struct run *run, const double *from, int count) {
    for (int i = 0; i < count; i++, from += WINDOW) {
        const int64_t before = (int64_t)i * x->window,
                      step = before + x->window < x->steps ? before + x->window : x->steps;
        if (from[0] != (double)step || from[1] != (double)(step - before) || !is_whole(from[4], 0, from[1]) ||
            !isfinite(from[5]))
            return false;
        run->windows[run->window_count++] =
            (struct window){step, (int)from[1], from[2], from[3], (int)from[4], from[5]};
    }
    return true;
}

static bool take_epochs(const struct experiment *x, struct run *run, int64_t steps, const double *from, int count) {
    for (int i = 0; i < count; i++, from += EPOCH) {
        const int64_t whole = (i + 1) * x->steps_per_epoch, step = whole < x->steps ? whole : x->steps;
        if (from[0] != i + 1 || from[1] != (double)step || step > steps)
            return false;
        run->epochs[run->epoch_count++] = (nn_epoch_report){.epoch = i + 1,
                                                            .step = step,
                                                            .train_loss = from[2],
                                                            .train_accuracy = from[3],
                                                            .test_loss = from[4],
                                                            .test_accuracy = from[5],
                                                            .seconds = from[6]};
    }
    return true;
}

/* Their steps must ascend. */
static bool take_scales(struct run *run, int64_t steps, const double *from, int64_t count) {
    for (int64_t i = 0; i < count; i++, from += SCALE) {
        const double before = i ? (double)run->scales[i - 1].step : 0;
        if (!is_whole(from[0], before + 1, (double)steps) || !(from[1] > 0 && isfinite(from[1])))
            return false;
        run_scaled(run, (int64_t)from[0], from[1]);
    }
    return true;
}

/* Writes the lines in their original order: of each step a change of the scale, the line of the step, that of its
 * window, that of its epoch. */
int kept_write(const struct kept *k, const struct experiment *x, const struct run *run, struct output_lines *metrics) {
    int window = 0, epoch = 0, status = STATUS_OK;
    int64_t scale = 0;
    for (int64_t step = 1; step <= x->steps && status == STATUS_OK; step++) {
        if (scale < run->scale_count && run->scales[scale].step == step)
            status = metrics_scale(metrics, x, run, &run->scales[scale++]);
        if (status != STATUS_OK)
            break;
        if (step <= k->step_count) {
            const nn_step_report report = {.step = step,
                                           .steps = x->steps,
                                           .loss = k->steps[STEP * (step - 1)],
                                           .rate = k->steps[STEP * step - 1]};
            status = metrics_step(metrics, x, run, &report);
        }
        if (status == STATUS_OK && window < run->window_count && run->windows[window].step == step)
            status = metrics_window(metrics, x, run, &run->windows[window++]);
        if (status == STATUS_OK && epoch < run->epoch_count && run->epochs[epoch].step == step)
            status = metrics_epoch(metrics, x, run, &run->epochs[epoch++]);
    }
    return status;
}

bool kept_take(struct kept *k, const struct experiment *x, struct run *run, const void *bytes, size_t size) {
    const size_t count = size / sizeof(double);
    double *numbers = text_alloc(count + 1, sizeof *numbers);
    memcpy(numbers, bytes, count * sizeof *numbers);
    const double *from = numbers + HEAD;
    const int64_t steps = count >= HEAD ? recorded_steps(x, numbers) : 0;
    bool good = size % sizeof(double) == 0 && is_head(x, steps, numbers, count);
    if (good) {
        const int windows = (int)numbers[WINDOWS], epochs = (int)numbers[EPOCHS];
        k->resumed = steps;
        k->window_sum = numbers[WINDOW_SUM];
        k->window_count = (int)numbers[WINDOW_COUNT];
        k->finite_sum = numbers[WINDOW_FINITE_SUM];
        k->nonfinite = (int)numbers[WINDOW_NONFINITE];
        run->first_loss = numbers[FIRST_LOSS];
        run->nonfinite_step = (int64_t)numbers[NONFINITE_STEP];
        run->nonfinite_loss = numbers[NONFINITE_LOSS];
        good = take_windows(x, run, from, windows) && take_epochs(x, run, steps, from + WINDOW * windows, epochs);
        from += WINDOW * windows + EPOCH * epochs;
        for (int64_t i = 0; good && i < (int64_t)numbers[STEPS]; i++)
            kept_step(k, from[STEP * i], from[STEP * i + 1]);
        from += STEP * (int64_t)numbers[STEPS];
        good = good && take_scales(run, steps, from, (int64_t)numbers[SCALES]);
        from += SCALE * (int64_t)numbers[SCALES];
        for (int64_t i = 0; good && i < (int64_t)numbers[TIMES]; i++)
            kept_time(k, from[i]);
        k->wall = numbers[WALL];
    }
    free(numbers);
    return good;
}

void kept_clear(struct kept *k) {
    free(k->steps);
    free(k->times);
    free(k->bytes);
    *k = (struct kept){0};
}
