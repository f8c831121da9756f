/* origin.c - the program, the build and the machine that produced results. */
#include "results/origin.h"
#include "flexlab/tensor.h"
#include "flexlab/version.h"
#include "revision.h" /* generated: FLEXLAB_REVISION */
#include "base/text.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

#if defined(__clang__)
static const char compiler[] = "clang " __clang_version__;
#else
static const char compiler[] = "gcc " __VERSION__;
#endif

static char *trimmed(const char *text) {
    text += strspn(text, " \t");
    size_t length = strlen(text);
    while (length && strchr(" \t\n", text[length - 1]))
        length--;
    return text_format("%.*s", (int)length, length ? text : "");
}

/* Reads the brand string of CPUID, leaves 0x80000002 to 0x80000004. */
static bool ask_processor(char name[49]) {
    memset(name, 0, 49);
#if defined(__x86_64__) || defined(__i386__)
    for (unsigned leaf = 0; leaf < 3; leaf++) {
        unsigned part[4];
        if (!__get_cpuid(0x80000002u + leaf, &part[0], &part[1], &part[2], &part[3]))
            return false;
        memcpy(name + 16 * leaf, part, sizeof part);
    }
#endif
    return name[strspn(name, " ")] != 0;
}

/* The brand string, or on other processors "model name" of Linux. */
static char *processor_name(void) {
    char name[49], line[300], *found = NULL;
    if (ask_processor(name))
        return trimmed(name);
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && !found && fgets(line, sizeof line, file))
        if (!strncmp(line, "model name", 10) && strchr(line, ':'))
            found = trimmed(strchr(line, ':') + 1);
    if (file)
        fclose(file);
    return found ? found : text_format("unknown");
}

/* The fastest kernel set on which any operation of any format runs. */
static const char *fastest_row(void) {
    static const char *const rows[] = {"avx512_amx", "avx512", "avx512bw", "avx2_vnni", "avx2", "portable"};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (int f = 0; tensor_format_at(f); f++)
            for (int i = 0; tensor_op_at(i); i++) {
                const char *row = tensor_kernel_backend(tensor_format_at(f), tensor_op_at(i));
                if (row && !strcmp(row, rows[r]))
                    return rows[r];
            }
    return "ref";
}

struct origin origin_here(const char *command, char *command_line) {
    char started[40];
    time_t now = time(NULL);
    struct tm utc;
    const char *cap = getenv("FLEXLAB_ISA");
    strftime(started, sizeof started, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    return (struct origin){.command = text_format("%s", command),
                           .command_line = command_line,
                           .version = text_format("%s", flexlab_version()),
                           .revision = text_format("%s", FLEXLAB_REVISION),
                           .compiler = trimmed(compiler),
                           .processor = processor_name(),
                           .instruction_set = text_format("%s", fastest_row()),
                           .instruction_cap = cap && cap[0] ? text_format("%s", cap) : NULL,
                           .started = text_format("%s", started),
                           .threads = tensor_threads()};
}

void origin_clear(struct origin *o) {
    char *const texts[] = {o->folder,   o->command,   o->command_line,    o->version,         o->revision,
                           o->compiler, o->processor, o->instruction_set, o->instruction_cap, o->started};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        free(texts[i]);
    *o = (struct origin){0};
}
