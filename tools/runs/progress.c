/* progress.c - prints the progress of a run. */
#include "runs/progress.h"
#include "base/number.h"
#include "base/text.h"
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

void progress_begin(struct progress *p, const struct experiment *x) {
    *p = (struct progress){.quiet = x->settings->quiet,
                           .terminal = isatty(STDERR_FILENO),
                           .runs = x->run_count,
                           .epochs = (int)x->settings->epochs,
                           .context = x->data.context,
                           .begin = now(),
                           .steps = x->steps * x->run_count};
}

/* The speed for images or sequences in a number of seconds, such as "1234 img/s"; to be freed. */
static char *speed_text(const struct progress *p, int64_t images, double seconds) {
    char *number = number_text((double)images * (p->context ? p->context : 1) / seconds, 0),
         *text = text_format("%s %s", number, p->context ? "tokens/s" : "img/s");
    free(number);
    return text;
}

void progress_run(struct progress *p, int run, const char *label, uint64_t seed, double spent) {
    p->run = run;
    p->label = label;
    p->seed = seed;
    p->run_start = now() - spent;
    p->last_draw = 0;
}

void progress_clear(struct progress *p) {
    if (p->drawn)
        fputs("\r\033[K", stderr);
    p->drawn = false;
}

static int terminal_columns(void) {
    struct winsize size;
    return !ioctl(STDERR_FILENO, TIOCGWINSZ, &size) && size.ws_col ? size.ws_col : 80;
}

/* Joins the parts that fit into the columns (0: all) by two blanks. The first `essential` parts are always included; if
 * there are none, the first part is cut off. Frees the parts. */
static char *join_fitting(char *const *parts, int count, int essential, int columns) {
    char *line = columns && !essential ? text_format("%.*s", columns, parts[0]) : text_format("%s", parts[0]);
    for (int i = 1; i < count; i++) {
        if (columns && i >= essential && text_width(line) + 2 + text_width(parts[i]) > columns)
            break;
        char *longer = text_format("%s  %s", line, parts[i]);
        free(line);
        line = longer;
    }
    for (int i = 0; i < count; i++)
        free(parts[i]);
    return line;
}

static char *heading(const struct progress *p) {
    char *label = text_shown(p->label),
         *text = text_format("[%d/%d] %s seed %llu", p->run, p->runs, label, (unsigned long long)p->seed);
    free(label);
    return text;
}

/* Prints a final line, whose essential parts the terminal may wrap. */
static void say(struct progress *p, char *const *parts, int count, int essential) {
    char *line = join_fitting(parts, count, essential, p->terminal ? terminal_columns() : 0);
    progress_clear(p);
    fprintf(stderr, "%s\n", line);
    free(line);
}

void progress_resumed(struct progress *p, int64_t steps) {
    p->steps -= steps;
}

void progress_step(struct progress *p, const nn_step_report *r) {
    double t = now();
    p->done++;
    if (p->quiet || !p->terminal || t - p->last_draw < redraw_seconds)
        return;
    p->last_draw = t;
    double spent = t - p->run_start, whole = spent / (double)r->step * (double)r->steps;
    /* Later steps are assumed to last as long as those so far, of any run. */
    double all = (t - p->begin) * ((double)p->steps / (double)p->done - 1);
    char *left = text_duration(whole - spent), *left_all = text_duration(all), *loss = number_text(r->loss, 4);
    char *const parts[] = {heading(p),
                           text_format("step %lld/%lld", (long long)r->step, (long long)r->steps),
                           text_format("loss %s", loss),
                           text_format("%s left", left),
                           text_format("epoch %d/%d", r->epoch, p->epochs),
                           speed_text(p, r->images, r->seconds),
                           text_format("all runs %s left", left_all)};
    char *line = join_fitting(parts, (int)(sizeof parts / sizeof *parts) - (p->runs == 1), 0, terminal_columns() - 1);
    if (p->runs == 1)
        free(parts[sizeof parts / sizeof *parts - 1]);
    fprintf(stderr, "\r\033[K%s", line);
    fflush(stderr);
    p->drawn = true;
    free(left);
    free(left_all);
    free(loss);
    free(line);
}

void progress_epoch(struct progress *p, const nn_epoch_report *r) {
    if (p->quiet)
        return;
    char *loss = number_text(r->train_loss, 4), *test_loss = number_text(r->test_loss, 4);
    char *const parts[] = {heading(p),
                           text_format("epoch %d/%d", r->epoch, p->epochs),
                           text_format("test accuracy %.2f %%", 100 * r->test_accuracy),
                           text_format("test loss %s", test_loss),
                           text_format("loss %s", loss),
                           text_format("step %lld", (long long)r->step),
                           text_format("%.1f s", r->seconds)};
    say(p, parts, sizeof parts / sizeof *parts, 3);
    p->last_draw = 0; /* the next step draws again */
    free(loss);
    free(test_loss);
}

void progress_run_done(struct progress *p, const struct experiment *x, const struct run *run) {
    const nn_train_result *r = &run->result;
    double spent = now() - p->run_start;
    if (p->quiet)
        return;
    char *time = text_duration(spent), *loss = number_text(r->last_loss, 4);
    char *const parts[] = {heading(p), text_format("done: test accuracy %.2f %%", 100 * r->test_accuracy),
                           text_format("loss %s", loss), speed_text(p, r->images, r->seconds), text_format("%s", time)};
    say(p, parts, sizeof parts / sizeof *parts, 2);
    if (run_diverged(x, run)) {
        char *const alarm[] = {heading(p), text_format("DIVERGED"), run_divergence_text(x, run)};
        say(p, alarm, sizeof alarm / sizeof *alarm, 2);
    }
    free(time);
    free(loss);
}
