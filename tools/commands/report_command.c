/* report_command.c - the command `report`: table, figures and page anew from stored results. */
#include "commands/commands.h"
#include "figures/figure.h"
#include "results/folder.h"
#include "report/report.h"
#include "base/signals.h"
#include "results/stored.h"
#include "base/text.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool same_folder(const char *a, const char *b) {
    struct stat one, two;
    return !stat(a, &one) && !stat(b, &two) && one.st_dev == two.st_dev && one.st_ino == two.st_ino;
}

static int check_folders(const struct settings *s) {
    if (!s->folder_count)
        return text_usage("expected the folder of results of a training; see --help");
    if (s->folder_count > 1 && !s->out)
        return text_usage("%d folders become one report: --out names the folder for it", s->folder_count);
    for (int i = 0; i < s->folder_count; i++) {
        if (s->out && same_folder(s->folders[i], s->out))
            return text_usage(
                "--out '%s': is one of the folders to be read; without --out its report is redrawn in place", s->out);
        for (int k = 0; k < i; k++)
            if (same_folder(s->folders[i], s->folders[k]))
                return text_usage("'%s' and '%s' are one folder", s->folders[k], s->folders[i]);
    }
    return STATUS_OK;
}

static int read_folders(struct stored *all, const struct settings *s) {
    int status = stored_read(all, s->folders[0]);
    for (int i = 1; i < s->folder_count && status == STATUS_OK; i++) {
        struct stored next;
        status = stored_read(&next, s->folders[i]);
        if (status == STATUS_OK)
            status = stored_merge(all, &next);
        stored_clear(&next);
    }
    return status;
}

/* Removes figures that an earlier report had and the new one lacks. */
static int remove_stale(const struct experiment *x, const struct figures *figures) {
    static const char *const names[] = {"figure-exponents.svg", "figure-exponents.png"};
    int status = STATUS_OK;
    for (int i = 0; i < 2 && !figures->exponents; i++) {
        char *path = text_format("%s/%s", x->folder, names[i]);
        if (unlink(path) && errno != ENOENT)
            status = text_failed("cannot remove %s: %s", path, strerror(errno));
        free(path);
    }
    return status;
}

/* The page is published last. One that `replaces` an earlier one must have all its figures: a report is never replaced
 * by a poorer one. Sets *drawn to a description of the figures. */
static int draw(const struct experiment *x, bool wanted, bool with_summary, bool replaces, const char **drawn) {
    struct figures figures;
    int status = figures_draw(x, wanted, &figures);
    if (status == STATUS_OK && wanted && !figures.loss && replaces)
        status = text_failed("without its figures the report is not changed");
    if (status == STATUS_OK && x->settings->trace_tensors && figures.nothing_matches)
        status = text_failed("the report is not changed");
    if (status == STATUS_OK && with_summary)
        status = summary_write_csv(x);
    if (status == STATUS_OK)
        status = report_write(x, &figures);
    if (status == STATUS_OK && wanted && replaces && !with_summary)
        status = remove_stale(x, &figures);
    *drawn = figures_named(&figures);
    figures_clear(&figures);
    return status;
}

static const char *no_trace(void *context, int i) {
    (void)context;
    (void)i;
    return NULL;
}

static bool has_figures(const char *folder) {
    static const char *const names[] = {"figure-loss.svg", "figure-exponents.svg"};
    bool any = false;
    for (int i = 0; i < 2; i++) {
        char *path = text_format("%s/%s", folder, names[i]);
        any |= !access(path, F_OK);
        free(path);
    }
    return any;
}

static int draw_in_place(struct experiment *x, const struct settings *s, const char *folder, const char **drawn) {
    struct lock lock = {.descriptor = -1};
    int status = lock_take(&lock, folder, "");
    x->folder = folder;
    if (status == STATUS_OK)
        status = draw(x, s->figures || has_figures(folder), false, true, drawn);
    lock_release(&lock);
    return status;
}

static int draw_elsewhere(struct experiment *x, const struct settings *s, const char **drawn) {
    struct folder folder;
    int status = folder_open(&folder, s->out, s->force, no_trace, NULL);
    x->folder = folder.made;
    if (status == STATUS_OK)
        status = draw(x, s->figures, true, folder.replaces, drawn);
    if (status == STATUS_OK)
        status = folder_publish(&folder, true);
    folder_close(&folder);
    return status;
}

static int redraw(struct stored *all, const struct settings *s) {
    struct experiment *x = &all->x;
    if (s->trace_tensors)
        all->settings.trace_tensors = s->trace_tensors;
    all->settings.no_trace = s->no_trace;
    experiment_choose_shown(x);
    summary_agreement(x);
    const char *drawn = "";
    int status = s->out ? draw_elsewhere(x, s, &drawn) : draw_in_place(x, s, s->folders[0], &drawn);
    if (status == STATUS_OK && !s->quiet) {
        char *place = text_shown(s->out ? s->out : s->folders[0]);
        summary_print(x);
        printf("\nWritten to %s: report.html%s%s\n", place, drawn, s->out ? ", summary.csv" : "");
        free(place);
    }
    return status;
}

int command_report(int argc, char **argv) {
    struct settings settings;
    struct stored all = {0};
    signals_end_child();
    int status = options_parse(&settings, COMMAND_REPORT, argc, argv);
    if (status == STATUS_OK && settings.help) {
        options_help(COMMAND_REPORT, stdout);
        return STATUS_OK;
    }
    if (status == STATUS_OK)
        status = check_folders(&settings);
    if (status == STATUS_OK)
        status = lock_check(settings.out ? settings.out : settings.folders[0], settings.out ? "--out " : "");
    if (status == STATUS_OK)
        status = read_folders(&all, &settings);
    if (status == STATUS_OK && !experiment_any_over(&all.x))
        status = text_failed("%s: no run has a result", settings.folders[0]);
    if (status == STATUS_OK)
        status = redraw(&all, &settings);
    stored_clear(&all);
    return status;
}
