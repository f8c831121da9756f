/* gnuplot.c - running gnuplot on a script, for a vector and a pixel picture. */
#include "figures/gnuplot.h"
#include "base/output.h"
#include "base/signals.h"
#include "base/text.h"
#include "core/base/shown.h"
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

enum { DEFAULT_SECONDS = 60, MOST_SECONDS = 86400 };

/* gnuplot's standard streams. Files in memory: no pipe that fills up, no disk that does. */
struct streams {
    FILE *script, *picture, *complaints;
};

void gnuplot_string(FILE *script, const char *text) {
    fputc('\'', script);
    while (*text) {
        size_t bytes = text_character(text);
        unsigned char c = (unsigned char)*text;
        char turning[FL_SHOWN_TEXT];
        if (c == '\'')
            fputs("''", script); /* the only character with a meaning in single quotes */
        else if (fl_turning(text, turning))
            fputs(turning, script);
        else if (bytes && c >= 0x20 && c != 0x7F)
            fwrite(text, 1, bytes, script);
        else
            fputc('?', script);
        text += bytes ? bytes : 1;
    }
    fputc('\'', script);
}

/* --- one picture -----------------------------------------------------------------------------------------------------
 */

static FILE *memory_file(const char *name) {
    int descriptor = memfd_create(name, MFD_CLOEXEC);
    FILE *file = descriptor < 0 ? NULL : fdopen(descriptor, "w+");
    if (!file && descriptor >= 0)
        close(descriptor);
    return file;
}

static long time_limit(void) {
    const char *text = getenv("FLEXLAB_GNUPLOT_SECONDS");
    int64_t seconds;
    return text && text_whole(text, 1, MOST_SECONDS, &seconds) ? (long)seconds : DEFAULT_SECONDS;
}

/* 0 or an error number. In a process group of its own, so that Ctrl-C does not end the drawing of a stopped run.
 * Without the user's own settings, which could be any commands. */
static int spawn(const struct streams *s, pid_t *child) {
    char *arguments[] = {"gnuplot", "-d", "-", NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t defaults;
    int failed = posix_spawn_file_actions_init(&actions);
    if (failed)
        return failed;
    failed = posix_spawnattr_init(&attributes);
    if (!failed) {
        sigemptyset(&defaults);
        sigaddset(&defaults, SIGPIPE);
        sigaddset(&defaults, SIGXFSZ);
        posix_spawnattr_setsigdefault(&attributes, &defaults);
        posix_spawnattr_setpgroup(&attributes, 0);
        failed = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
        const int own[] = {fileno(s->script), fileno(s->picture), fileno(s->complaints)};
        for (int i = 0; i < 3 && !failed; i++)
            failed = posix_spawn_file_actions_adddup2(&actions, own[i], i);
        if (!failed)
            failed = posix_spawnp(child, arguments[0], &actions, &attributes, arguments, environ);
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&actions);
    return failed;
}

/* 1: the child ended, 0: it was killed after its time limit, -1: waiting failed. */
static int wait_for(pid_t child, int *state) {
    struct timespec pause = {0, 5000000};
    long pauses = time_limit() * 200;
    for (;;) {
        pid_t ended = waitpid(child, state, pauses > 0 ? WNOHANG : 0);
        if (ended == child)
            return pauses > 0;
        if (ended < 0 && errno != EINTR)
            return -1;
        if (pauses > 0 && ended == 0) {
            nanosleep(&pause, NULL);
            if (--pauses == 0)
                kill(-child, SIGKILL);
        }
    }
}

/* The last line that is not blank names the cause; the lines before it show the place. */
static int report_complaint(FILE *complaints, const char *name, int state) {
    char line[300], last[300] = "";
    rewind(complaints);
    while (fgets(line, sizeof line, complaints)) {
        line[strcspn(line, "\n")] = 0;
        if (line[strspn(line, " \t^")])
            memmove(last, line + strspn(line, " \t"), strlen(line + strspn(line, " \t")) + 1);
    }
    if (WIFSIGNALED(state))
        return text_failed("gnuplot could not draw %s: ended by signal %d%s%s", name, WTERMSIG(state),
                           last[0] ? ": " : "", last);
    return text_failed("gnuplot could not draw %s: ended with status %d: %s", name, WEXITSTATUS(state),
                       last[0] ? last : "no reason given");
}

static int run(const struct streams *s, const char *name) {
    pid_t child;
    int state = 0, failed = spawn(s, &child);
    if (failed == ENOENT)
        return GNUPLOT_MISSING;
    if (failed)
        return text_failed("cannot run gnuplot: %s", strerror(failed));
    signals_take_along(child);
    int ended = wait_for(child, &state);
    signals_take_along(0);
    if (ended < 0)
        return text_failed("cannot wait for gnuplot: %s", strerror(errno));
    if (!ended)
        return text_failed("gnuplot did not draw %s within %ld seconds (FLEXLAB_GNUPLOT_SECONDS)", name, time_limit());
    return WIFEXITED(state) && WEXITSTATUS(state) == 0 ? STATUS_OK : report_complaint(s->complaints, name, state);
}

/* --- what came out ---------------------------------------------------------------------------------------------------
 */

/* The whole file, with a terminating zero, to be freed; NULL on failure. */
static char *read_all(FILE *file, size_t *size) {
    long length = fseek(file, 0, SEEK_END) ? -1 : ftell(file);
    char *bytes = length < 0 ? NULL : malloc((size_t)length + 1);
    if (!bytes)
        return NULL;
    rewind(file);
    *size = fread(bytes, 1, (size_t)length, file);
    if (*size != (size_t)length) {
        free(bytes);
        return NULL;
    }
    bytes[length] = 0;
    return bytes;
}

static bool is_whole_svg(const char *bytes, size_t size) {
    static const char end[] = "</svg>";
    while (size && strchr(" \n\r\t", bytes[size - 1]))
        size--;
    return size > sizeof end && strstr(bytes, "<svg") && !memcmp(bytes + size - (sizeof end - 1), end, sizeof end - 1);
}

/* The signature, and the chunk IEND with its checksum (PNG specification, 11.2.5). */
static bool is_whole_png(const char *bytes, size_t size) {
    static const char start[] = "\x89PNG\r\n\x1a\n", end[] = "\0\0\0\0IEND\xae\x42\x60\x82";
    return size > sizeof start + sizeof end && !memcmp(bytes, start, sizeof start - 1) &&
           !memcmp(bytes + size - (sizeof end - 1), end, sizeof end - 1);
}

/* One file of the picture; its bytes go to *bytes. */
static int draw(const struct streams *s, const char *directory, const char *name, const char *terminal,
                const char *script, bool (*is_whole)(const char *, size_t), char **bytes) {
    size_t size = 0;
    fprintf(s->script, "set terminal %s\nset encoding utf8\n%s\nunset output\n", terminal, script);
    if (fflush(s->script) || ferror(s->script))
        return text_failed("cannot hand the script of %s to gnuplot: %s", name, strerror(errno));
    rewind(s->script);
    int status = run(s, name);
    if (status != STATUS_OK)
        return status;
    *bytes = read_all(s->picture, &size);
    if (!*bytes)
        status = text_failed("cannot read what gnuplot drew as %s: %s", name, strerror(errno));
    else if (!is_whole(*bytes, size))
        status = text_failed("gnuplot drew only a part of %s: %zu bytes without its end", name, size);
    else
        status = output_write(directory, name, *bytes, size);
    if (status != STATUS_OK) {
        free(*bytes);
        *bytes = NULL;
    }
    return status;
}

static int draw_file(const char *directory, const char *name, const char *terminal, const char *script,
                     bool (*is_whole)(const char *, size_t), char **bytes) {
    struct streams s = {memory_file("script"), memory_file("picture"), memory_file("complaints")};
    int status = s.script && s.picture && s.complaints
                     ? draw(&s, directory, name, terminal, script, is_whole, bytes)
                     : text_failed("cannot draw %s: no file in memory: %s", name, strerror(errno));
    FILE *const files[] = {s.script, s.picture, s.complaints};
    for (int i = 0; i < 3; i++)
        if (files[i])
            fclose(files[i]);
    return status;
}

int gnuplot_draw(const char *directory, const char *name, int width, int height, const char *script, char **svg) {
    char *svg_identifier = text_format("%s", name);
    for (char *p = svg_identifier; *p; p++)
        *p = *p == '-' ? '_' : *p; /* part of names of functions */
    char *vector = text_format("svg name '%s' size %d,%d dynamic enhanced font 'sans-serif,13' background '#ffffff'",
                               svg_identifier, width, height),
         *pixels =
             text_format("pngcairo size %d,%d enhanced font 'sans,10' fontscale 2 linewidth 2 background '#ffffff'",
                         2 * width, 2 * height),
         *svg_name = text_format("%s.svg", name), *png_name = text_format("%s.png", name), *png = NULL;
    *svg = NULL;
    int status = draw_file(directory, svg_name, vector, script, is_whole_svg, svg);
    if (status == STATUS_OK)
        status = draw_file(directory, png_name, pixels, script, is_whole_png, &png);
    free(png);
    free(vector);
    free(svg_identifier);
    free(pixels);
    free(svg_name);
    free(png_name);
    return status;
}
