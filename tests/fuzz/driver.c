/* driver.c - a fuzz target without libFuzzer: replays the stored inputs, then mutations of them from a fixed seed, so
 * that every run of the test suite does the same. usage: replay_NAME [--runs N] [--seed S] FILE_OR_FOLDER...
 *
 * When an input ends the process it is first written to NAME.finding in the working directory; give that file to this
 * program, or to the libFuzzer program, to replay it. */
#define _GNU_SOURCE
#define FUZZ_BAR /* calls what libFuzzer calls */
#include "fuzz.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LONGEST = 4096, SECONDS_AN_INPUT = 60 }; /* LONGEST is libFuzzer's own limit */

struct unit {
    uint8_t *bytes;
    size_t size;
};

static struct unit *units;
static int unit_count;

/* --- when an input ends the process --------------------------------------------------------------------------------
 */

static uint8_t current[LONGEST];
static size_t current_size;
static char finding[256];

static void write_finding(void) {
    static volatile sig_atomic_t written;
    if (written++)
        return;
    int file = open(finding, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    const bool good = file >= 0 && write(file, current, current_size) == (ssize_t)current_size;
    static const char lead[] = "\nthe input that did it: ", missing[] = "\nthe input that did it cannot be written: ";
    ssize_t told = write(2, good ? lead : missing, good ? sizeof lead - 1 : sizeof missing - 1);
    told += write(2, finding, strlen(finding));
    told += write(2, "\n", 1);
    (void)told;
    if (file >= 0)
        close(file);
}

static void on_signal(int number) {
    write_finding();
    signal(number, SIG_DFL);
    raise(number);
}

/* Sanitizers call it before they end the process; absent without one. */
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static void watch_the_end(const char *program) {
    const char *slash = strrchr(program, '/');
    const char *name = slash ? slash + 1 : program;
    const char *bare = strncmp(name, "replay_", 7) ? name : name + 7;
    snprintf(finding, sizeof finding, "%s.finding", bare);
    static const int fatal[] = {SIGABRT, SIGALRM, SIGFPE, SIGILL, SIGSEGV, SIGBUS};
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
        if (i < 2 || !__sanitizer_set_death_callback) /* the rest is the sanitizer's */
            signal(fatal[i], on_signal);
    if (__sanitizer_set_death_callback)
        __sanitizer_set_death_callback(write_finding);
}

static void run_current(void) {
    /* A block of exactly this size, so that a sanitizer detects a read past the end. */
    uint8_t *copy = malloc(current_size ? current_size : 1);
    MUST(copy, "no memory for %zu bytes", current_size);
    memcpy(copy, current, current_size);
    alarm(SECONDS_AN_INPUT);
    LLVMFuzzerTestOneInput(copy, current_size);
    alarm(0);
    free(copy);
}

/* --- stored inputs ------------------------------------------------------------------------------------------------ */

static void add_file(const char *path) {
    FILE *file = fopen(path, "rb");
    struct unit u = {malloc(LONGEST), 0};
    MUST(file && u.bytes, "cannot read %s: %s", path, strerror(errno));
    u.size = fread(u.bytes, 1, LONGEST, file);
    MUST(fgetc(file) == EOF && !ferror(file), "%s is longer than %d bytes", path, LONGEST);
    fclose(file);
    units = realloc(units, ((size_t)unit_count + 1) * sizeof *units);
    MUST(units, "no memory for %d inputs", unit_count + 1);
    units[unit_count++] = u;
}

static int visible(const struct dirent *entry) {
    return entry->d_name[0] != '.';
}

static void add_path(const char *path) {
    struct stat about;
    MUST(!stat(path, &about), "cannot read %s: %s", path, strerror(errno));
    if (!S_ISDIR(about.st_mode)) {
        add_file(path);
        return;
    }
    struct dirent **entries;
    const int count = scandir(path, &entries, visible, alphasort);
    MUST(count >= 0, "cannot read %s: %s", path, strerror(errno));
    for (int i = 0; i < count; i++) {
        char *inner;
        MUST(asprintf(&inner, "%s/%s", path, entries[i]->d_name) > 0, "no memory for a path");
        add_file(inner);
        free(inner);
        free(entries[i]);
    }
    free(entries);
}

/* --- mutations ---------------------------------------------------------------------------------------------------- */

/* libFuzzer's name of a target's own mutation; absent in most. Its result is the new size, or 0. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) __attribute__((weak));

static size_t below(uint64_t *seed, size_t limit) {
    return (size_t)(next_random(seed) % limit);
}

static void erase(uint64_t *seed) {
    const size_t from = below(seed, current_size), most = current_size - from;
    const size_t count = 1 + below(seed, most < 16 ? most : 16);
    memmove(current + from, current + from + count, current_size - from - count);
    current_size -= count;
}

/* Inserts bytes of another stored input, of this one, or random ones. */
static void insert(uint64_t *seed) {
    const struct unit *from = &units[below(seed, (size_t)unit_count)];
    uint8_t piece[32];
    size_t count = 1 + below(seed, sizeof piece), at = below(seed, current_size + 1);
    const bool copied = from->size && below(seed, 4);
    if (copied && count > from->size)
        count = from->size;
    if (count > LONGEST - current_size)
        count = LONGEST - current_size;
    const size_t begin = copied ? below(seed, from->size - count + 1) : 0;
    for (size_t i = 0; i < count; i++)
        piece[i] = copied ? from->bytes[begin + i] : (uint8_t)next_random(seed);
    memmove(current + at + count, current + at, current_size - at);
    memcpy(current + at, piece, count);
    current_size += count;
}

/* Joins the beginning of this input and the end of another. */
static void cross(uint64_t *seed) {
    const struct unit *other = &units[below(seed, (size_t)unit_count)];
    const size_t keep = below(seed, current_size + 1), skip = below(seed, other->size + 1);
    size_t count = other->size - skip;
    if (count > LONGEST - keep)
        count = LONGEST - keep;
    memcpy(current + keep, other->bytes + skip, count);
    current_size = keep + count;
}

static void mutate(uint64_t *seed) {
    if (LLVMFuzzerCustomMutator && below(seed, 4)) {
        uint8_t copy[LONGEST];
        memcpy(copy, current, current_size);
        const size_t size = LLVMFuzzerCustomMutator(current, current_size, LONGEST, (unsigned)next_random(seed));
        if (size)
            current_size = size;
        else
            memcpy(current, copy, current_size);
        return;
    }
    static const uint8_t edges[] = {0, 1, 0x7f, 0x80, 0xff, ',', '\n', ':', '-', '0'};
    switch (below(seed, 8)) {
    case 0:
        if (current_size)
            erase(seed);
        break;
    case 1:
        insert(seed);
        break;
    case 2:
        cross(seed);
        break;
    case 3:
        if (current_size)
            current[below(seed, current_size)] = edges[below(seed, sizeof edges)];
        break;
    case 4:
        if (current_size)
            current[below(seed, current_size)] += (uint8_t)(below(seed, 9) - 4);
        break;
    case 5:
        if (current_size)
            current[below(seed, current_size)] = (uint8_t)next_random(seed);
        break;
    default:
        if (current_size)
            current[below(seed, current_size)] ^= (uint8_t)(1 << below(seed, 8));
    }
}

static void run_mutation(uint64_t seed) {
    const struct unit *u = &units[below(&seed, (size_t)unit_count)];
    memcpy(current, u->bytes, u->size);
    current_size = u->size;
    for (size_t n = 1 + below(&seed, 6); n > 0; n--)
        mutate(&seed);
    run_current();
}

int main(int argc, char **argv) {
    long runs = 0;
    uint64_t seed = 1;
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    watch_the_end(argv[0]);
    LLVMFuzzerInitialize(&argc, &argv);
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--runs") && i + 1 < argc)
            runs = strtol(argv[++i], NULL, 10);
        else if (!strcmp(argv[i], "--seed") && i + 1 < argc)
            seed = strtoull(argv[++i], NULL, 10);
        else
            add_path(argv[i]);
    }
    MUST(unit_count, "no kept inputs: name a file or a folder");
    for (int i = 0; i < unit_count; i++) {
        memcpy(current, units[i].bytes, units[i].size);
        current_size = units[i].size;
        run_current();
    }
    for (long i = 0; i < runs; i++)
        run_mutation(seed + (uint64_t)i * 0x9E3779B97F4A7C15u);
    clock_gettime(CLOCK_MONOTONIC, &end);
    printf("%d kept inputs, %ld mutations from seed %llu, %.1f s\n", unit_count, runs, (unsigned long long)seed,
           (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec));
    for (int i = 0; i < unit_count; i++)
        free(units[i].bytes);
    free(units);
    return 0;
}
