/* bar_check.c - that the bar of memory under which targets run (bar.c) is there: inputs that ask for more end the
 * process, by whichever function and however many blocks; those that do not, and give back what they had, do not. */
#define _GNU_SOURCE
#define FUZZ_BAR
#include "fuzz.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20, BLOCKS = 70 };
static void *blocks[BLOCKS];

static void one_after_the_other(size_t bytes) {
    for (int i = 0; i < 1000; i++) {
        char *block = malloc(bytes);
        MUST(block, "no memory");
        memset(block, 1, 1);
        blocks[0] = block;
        free(blocks[0]);
    }
}

static void beside_each_other(int count) {
    for (int i = 0; i < count; i++)
        MUST(blocks[i] = malloc(MIB), "no memory");
    for (int i = 0; i < count; i++)
        free(blocks[i]);
}

/* Grown by the C library itself. */
static void by_a_stream(size_t bytes) {
    char *text;
    size_t size;
    FILE *stream = open_memstream(&text, &size);
    MUST(stream, "no stream");
    for (size_t i = 0; i < bytes; i += 64)
        fprintf(stream, "%064d", 0);
    fclose(stream);
    free(text);
}

int fuzz_input(const uint8_t *data, size_t size) {
    const size_t bytes = (size > 1 ? data[1] : 1) * (size_t)MIB;
    switch (size ? data[0] : 0) {
    case 'm':
        blocks[0] = malloc(bytes);
        break;
    case 'c':
        blocks[0] = calloc(bytes / 16, 16);
        break;
    case 'r':
        blocks[0] = realloc(malloc(16), bytes);
        break;
    case 'p':
        MUST(!posix_memalign(&blocks[0], 64, bytes), "no memory");
        break;
    case 'o':
        one_after_the_other(bytes);
        return 0;
    case 'b':
        beside_each_other((int)(bytes / MIB));
        return 0;
    default:
        by_a_stream(bytes);
        return 0;
    }
    free(blocks[0]);
    return 0;
}

/* An input of that size; whether it stayed under the bar. */
static bool passes(char how, int mib, size_t size) {
    static uint8_t input[8192];
    input[0] = (uint8_t)how;
    input[1] = (uint8_t)mib;
    fflush(NULL);
    const pid_t child = fork();
    MUST(child >= 0, "no process");
    if (!child) {
        if (!freopen("/dev/null", "w", stderr))
            _exit(2);
        LLVMFuzzerTestOneInput(input, size);
        LLVMFuzzerTestOneInput(input, size);
        _exit(0);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child, "no child");
    MUST(WIFEXITED(status) ? WEXITSTATUS(status) == 0 : WTERMSIG(status) == SIGABRT, "status %d", status);
    return WIFEXITED(status);
}

int main(void) {
    static const char *how = "mcrpb";
    for (const char *h = how; *h; h++) {
        MUST(passes(*h, 60, 2), "%c: 60 MiB are refused", *h);
        MUST(!passes(*h, 66, 2), "%c: 66 MiB are given", *h);
        MUST(passes(*h, 66, 4096), "%c: 66 MiB for 4096 bytes are refused", *h);
    }
    MUST(passes('o', 60, 2) && !passes('o', 66, 2), "one block after the other");
    MUST(passes('s', 20, 2) && !passes('s', 100, 2), "a block of the C library");
    fuzz_bar = 8 * MIB;
    MUST(passes('m', 7, 2) && !passes('m', 9, 2), "another bar");
    puts("the bar stands");
    return 0;
}
