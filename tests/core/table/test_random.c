/* Random calls on every kernel set against the reference, a few seconds of them.
 *
 *     test_random [SEED [CALLS [FIRST]]]        numbers FIRST ... of the sequence of that seed
 *
 * FLEXLAB_TEST_FILTER=substring: mostly calls of the functions with it in their names. */
#include "random_actions.h"

int main(int argc, char **argv) {
    const uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    const uint64_t calls = argc > 2 ? strtoull(argv[2], NULL, 0) : 16000; /* enough for every function to work twice */
    const uint64_t first = argc > 3 ? strtoull(argv[3], NULL, 0) : 0;
    find_worlds();
    run_calls(argv[0], seed, calls, first);
    if (calls >= (EMULATED ? 8000 : 10000) || getenv("FLEXLAB_TEST_FILTER"))
        check_coverage();
    printf("%lld calls on %d rows, %lld of them errors\n", made, worlds, refused);
    return check_summary();
}
