/* gnuplot.c - running gnuplot on a script, for a vector and a pixel picture. */
#include "gnuplot.h"
#include "output.h"
#include "text.h"
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* The script goes in through a temporary file, complaints come out through another: no pipe can fill up. */
static int spawn(FILE *script, FILE *complaints) {
    char *arguments[] = {"gnuplot", "-", NULL};
    posix_spawn_file_actions_t actions;
    pid_t child;
    int state;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fileno(script), STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, fileno(complaints), STDERR_FILENO);
    int failed = posix_spawnp(&child, "gnuplot", &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed == ENOENT)
        return GNUPLOT_MISSING;
    if (failed)
        return text_failed("cannot run gnuplot: %s", strerror(failed));
    while (waitpid(child, &state, 0) < 0)
        if (errno != EINTR)
            return text_failed("cannot wait for gnuplot: %s", strerror(errno));
    return WIFEXITED(state) && WEXITSTATUS(state) == 0 ? STATUS_OK : STATUS_FAILED;
}

/* The last line that is not blank names the cause; the lines before it show the place. */
static void report_complaint(FILE *complaints, const char *path) {
    char line[300], last[300] = "no reason given";
    rewind(complaints);
    while (fgets(line, sizeof line, complaints)) {
        line[strcspn(line, "\n")] = 0;
        if (line[strspn(line, " \t^")])
            strcpy(last, line + strspn(line, " \t"));
    }
    text_failed("gnuplot could not draw %s: %s", path, last);
}

/* In single quotes gnuplot wants a quote doubled. */
static void quote(FILE *out, const char *text) {
    fputc('\'', out);
    for (; *text; text++)
        fputs(*text == '\'' ? "''" : (char[]){*text, 0}, out);
    fputc('\'', out);
}

static int draw(struct output *o, const char *terminal, const char *script) {
    FILE *input = tmpfile(), *complaints = tmpfile();
    int status = STATUS_FAILED;
    if (!input || !complaints)
        text_failed("cannot make a temporary file: %s", strerror(errno));
    else {
        fprintf(input, "set terminal %s\nset encoding utf8\nset output ", terminal);
        quote(input, o->part);
        fprintf(input, "\n%s\nunset output\n", script);
        rewind(input);
        status = spawn(input, complaints);
        if (status == STATUS_FAILED)
            report_complaint(complaints, o->path);
    }
    if (input)
        fclose(input);
    if (complaints)
        fclose(complaints);
    return status;
}

static char *read_file(const char *path) {
    FILE *file = fopen(path, "r");
    char *text = NULL;
    size_t room = 0;
    if (!file)
        return NULL;
    if (getdelim(&text, &room, 0, file) < 0) {
        free(text);
        text = NULL;
    }
    fclose(file);
    return text;
}

int gnuplot_draw(const char *directory, const char *name, int width, int height, const char *script, char **svg) {
    char *terminals[] = {
        text_format("svg size %d,%d dynamic enhanced font 'sans-serif,13' background '#ffffff'", width, height),
        text_format("pngcairo size %d,%d enhanced font 'sans,10' fontscale 2 linewidth 2 background '#ffffff'",
                    2 * width, 2 * height)};
    static const char *const suffixes[] = {"svg", "png"};
    int status = STATUS_OK;
    *svg = NULL;
    for (int i = 0; i < 2; i++) {
        char *file = text_format("%s.%s", name, suffixes[i]);
        struct output o;
        if (status == STATUS_OK) {
            output_reserve(&o, directory, file);
            status = draw(&o, terminals[i], script);
            char *path = text_format("%s", o.path);
            if (status == STATUS_OK)
                status = output_commit(&o);
            else
                output_discard(&o);
            if (status == STATUS_OK && i == 0)
                *svg = read_file(path);
            free(path);
        }
        free(file);
        free(terminals[i]);
    }
    return status;
}
