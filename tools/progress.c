/* progress.c - how far a run is. */
#include "progress.h"
#include "text.h"
#include <math.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

static const double redraw_seconds = 0.2;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void progress_begin(struct progress *p, const struct settings *settings, int runs) {
    *p = (struct progress){
        .quiet = settings->quiet, .terminal = isatty(STDERR_FILENO), .runs = runs, .epochs = (int)settings->epochs};
}

void progress_run(struct progress *p, int run, const char *label, uint64_t seed) {
    p->run = run;
    p->label = label;
    p->seed = seed;
    p->run_start = now();
    p->last_draw = 0;
}

void progress_clear(struct progress *p) {
    if (p->drawn)
        fputs("\r\033[K", stderr);
    p->drawn = false;
}

static void heading(const struct progress *p) {
    fprintf(stderr, "[%d/%d] %s seed %llu", p->run, p->runs, p->label, (unsigned long long)p->seed);
}

void progress_step(struct progress *p, const nn_step_report *r) {
    double t = now();
    if (p->quiet || !p->terminal || t - p->last_draw < redraw_seconds)
        return;
    p->last_draw = t;
    double spent = t - p->run_start, whole = spent / (double)r->step * (double)r->steps;
    /* Later runs are taken to last as long as those so far. */
    double all = (p->finished_seconds + whole) / p->run * p->runs - p->finished_seconds - spent;
    char *left = text_duration(whole - spent), *left_all = text_duration(all);
    char *line = text_format("[%d/%d] %s seed %llu  epoch %d/%d  step %lld/%lld  loss %.4f  %.0f img/s  %s left%s%s%s",
                             p->run, p->runs, p->label, (unsigned long long)p->seed, r->epoch, p->epochs,
                             (long long)r->step, (long long)r->steps, r->loss, (double)r->images / r->seconds, left,
                             p->runs > 1 ? ", all runs " : "", p->runs > 1 ? left_all : "", "");
    struct winsize size;
    int columns = !ioctl(STDERR_FILENO, TIOCGWINSZ, &size) && size.ws_col ? size.ws_col : 80;
    fprintf(stderr, "\r\033[K%.*s", columns - 1, line);
    fflush(stderr);
    p->drawn = true;
    free(left);
    free(left_all);
    free(line);
}

void progress_epoch(struct progress *p, const nn_epoch_report *r) {
    if (p->quiet || p->terminal)
        return;
    heading(p);
    fprintf(stderr, "  epoch %d/%d  step %lld  loss %.4f", r->epoch, p->epochs, (long long)r->step, r->train_loss);
    if (!isnan(r->test_accuracy))
        fprintf(stderr, "  test loss %.4f  test accuracy %.2f %%", r->test_loss, 100 * r->test_accuracy);
    fprintf(stderr, "  %.1f s\n", r->seconds);
}

void progress_run_done(struct progress *p, const nn_train_result *r) {
    double spent = now() - p->run_start;
    p->finished_seconds += spent;
    if (p->quiet)
        return;
    progress_clear(p);
    heading(p);
    char *time = text_duration(spent);
    fprintf(stderr, "  done: loss %.4f  test accuracy %.2f %%  %.0f img/s  %s\n", r->last_loss, 100 * r->test_accuracy,
            (double)r->images / r->seconds, time);
    free(time);
}
