/* origin.h - the origin of results: the program, its build, the machine and the command. One for each folder of
 * results. */
#ifndef FLEXLAB_ORIGIN_H
#define FLEXLAB_ORIGIN_H

struct origin {
    char *folder; /* NULL: the experiment's own */
    char *command, *command_line;
    char *version,
        *revision; /* revision: of the source in git; "unknown" if the build found none, "-dirty" with changes */
    char *compiler;
    char *processor;
    char *instruction_set; /* the fastest kernel set that runs: avx512_amx, avx512, ..., ref */
    char *instruction_cap; /* FLEXLAB_ISA, NULL without */
    char *started;         /* UTC, ISO 8601 */
    int threads;
    int trace_every; /* steps between records of its traces; 0: none */
};

/* The origin of results that this process makes, without traces. Takes ownership of command_line. */
struct origin origin_here(const char *command, char *command_line);
void origin_clear(struct origin *origin);

#endif
