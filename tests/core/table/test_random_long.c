/* A million random calls on every kernel set against the reference, by as many processes as there are processors.
 *
 *     test_random_long [SEED [CALLS]]
 *
 * A failure is replayed by test_random, whose arguments are printed. */
#include "random_actions.h"
#include <sys/wait.h>
#include <unistd.h>

/* Share `part` of the episodes: whether all went well. */
static int run_part(const char *program, uint64_t seed, uint64_t calls, int part, int parts) {
    const uint64_t episodes = (calls + EPISODE - 1) / EPISODE;
    const uint64_t begin = episodes * (uint64_t)part / (uint64_t)parts,
                   end = episodes * (uint64_t)(part + 1) / (uint64_t)parts;
    find_worlds();
    run_calls(program, seed, (end - begin) * EPISODE, begin * EPISODE);
    check_coverage();
    printf("%lld calls on %d rows, %lld of them errors\n", made, worlds, refused);
    const int result = check_summary();
    fflush(stdout);
    return result;
}

int main(int argc, char **argv) {
    const uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 2;
    const uint64_t calls = argc > 2 ? strtoull(argv[2], NULL, 0) : 1000000;
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    const int parts = processors < 1 ? 1 : processors > 8 ? 8 : (int)processors;
    for (int part = 0; part < parts; part++) {
        const pid_t child = fork(); /* the library has no threads yet */
        CHECK(child >= 0, "fork failed");
        if (child == 0)
            _exit(run_part("test_random", seed, calls, part, parts));
    }
    int status;
    while (wait(&status) > 0)
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a share of the calls failed");
    return check_summary();
}
