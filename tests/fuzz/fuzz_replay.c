/* fuzz_replay.c - the command `flexlab replay`: predictors over the records of a trace.
 *
 * Input: a byte (bit 7: a file that training could have written, otherwise the bytes themselves; bit 6: with maxima
 * that every exponent of the format can represent; the rest: options), words of options up to a line feed if bit 5 is
 * set, then the file. For a file that training could have written, the table has a line for each tensor and predictor
 * whose writes are those of its records; if exponents can represent the maxima, nothing saturates under predictors that
 * measure or write again. */
#define _GNU_SOURCE
#include "messages.h"
#include "scratch.h"
#include "base/text.h"
#include "commands/commands.h"
#include <math.h>

enum { TENSORS = 6, ROWS = 300, WORDS = 8, TABLE_ROOM = 1 << 18 };

static const char heading[] = "step,tensor,role,e,gamma,predicted_maximum,maximum,saturated,flushed,nonfinite,"
                              "clamped_low,clamped_high,maximum_e\n";
static const char *const names[TENSORS] = {"input",      "conv1.weight",      "conv1",
                                           "conv1.grad", "conv1.weight.grad", "fc.velocity"};
static const char *const roles[TENSORS] = {"activation", "weight",          "activation",
                                           "gradient",   "weight gradient", "momentum"};
static const char *const predictors[] = {"paper", "ngraph", "per-class", "amax", "amax-recent", "current", "repeat"};
enum { PREDICTORS = sizeof predictors / sizeof *predictors };

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    scratch_make();
    text_set_command("fuzz");
    return 0;
}

/* Writes the records, and counts the writes of each tensor that the table must report: those of a maximum above zero,
 * except for "input". */
static void write_rows(struct input *in, bool held, int64_t writes[TENSORS], bool present[TENSORS]) {
    char *text;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    MUST(file, "no stream in memory");
    fputs(heading, file);
    const int tensors = 1 + take_below(in, TENSORS);
    int64_t step = 0;
    int count = 0;
    do {
        step += 1 + take_below(in, 20);
        for (int i = 0; i < tensors; i++, count++) {
            const int e = (int8_t)take_byte(in), mantissa = take_byte(in), at = (int8_t)take_byte(in);
            /* |e| up to 8: maxima from 2^6 to 2^23 times 2^-8, which 5 bits of an exponent hold */
            const double maximum =
                held ? ldexp(16384 + 64 * mantissa + mantissa % 64, -8 - at % 8) : ldexp(mantissa, at);
            const int saturated = take_byte(in) & 3;
            fprintf(file, "%lld,%s,%s,%d,%d,%.9g,%.17g,%d,%d,0,0,0,%d\n", (long long)step, names[i], roles[i], e - 1,
                    1 + mantissa * 128, 0.5, maximum, saturated, 0, e);
            writes[i] += i > 0 && maximum > 0;
            present[i] = true;
        }
    } while (count + tensors <= ROWS && input_left(in));
    fclose(file);
    scratch_write("trace.csv", text, size);
    free(text);
}

static int index_of(const char *name, const char *const *list, int count) {
    for (int i = 0; i < count; i++)
        if (!strcmp(name, list[i]))
            return i;
    return -1;
}

/* A line of the table: "path,tensor,role,predictor,writes,...", the path without a comma. */
static void check_line(char *line, bool held, const int64_t writes[TENSORS], int64_t seen[TENSORS]) {
    char *rest = line, *path = strsep(&rest, ","), *name = strsep(&rest, ","), *role = strsep(&rest, ","),
         *predictor = strsep(&rest, ",");
    const int t = name ? index_of(name, names, TENSORS) : -1,
              p = predictor ? index_of(predictor, predictors, PREDICTORS) : -1;
    MUST(path && t >= 0 && p >= 0 && !strcmp(role, roles[t]) && rest, "a line of %s, %s", name, predictor);
    long long all, saturated, late, changes, repeated, outliers, recovered, slowest, same;
    double unused, recovery;
    MUST(sscanf(rest, "%lld,%lld,%lld,%lf,%lld,%lld,%lld,%lld,%lf,%lld,%lld", &all, &saturated, &late, &unused,
                &changes, &repeated, &outliers, &recovered, &recovery, &slowest, &same) == 11,
         "%s %s: '%s'", name, predictor, rest);
    MUST(all == writes[t], "%s %s: %lld writes, its rows have %lld", name, predictor, all, (long long)writes[t]);
    MUST(0 <= late && late <= saturated && saturated <= all && 0 <= changes && changes <= all && 0 <= repeated &&
             0 <= same && same <= all && 0 <= recovered && recovered <= outliers && outliers <= all && slowest <= all,
         "%s %s: %s", name, predictor, rest);
    MUST(unused >= 0 && unused <= 15 && recovery >= 0 && recovery <= (double)slowest, "%s %s: %g bits, %g writes", name,
         predictor, unused, recovery);
    const bool measures = !strcmp(predictor, "current");
    if (held && (measures || !strcmp(predictor, "repeat")))
        MUST(saturated == 0, "%s %s: %lld of %lld writes saturate", name, predictor, saturated, all);
    seen[t] |= INT64_C(1) << p;
}

static void check_table(bool held, const int64_t writes[TENSORS], const bool present[TENSORS]) {
    static char table[TABLE_ROOM];
    FILE *file = fopen(scratch_path("table.csv"), "r");
    MUST(file, "there is no table");
    const size_t size = fread(table, 1, sizeof table - 1, file);
    fclose(file);
    table[size] = 0;
    char *rest = table, *line = strsep(&rest, "\n");
    int64_t seen[TENSORS] = {0};
    MUST(line && !strncmp(line, "trace,tensor,role,predictor,", 28), "the table begins with '%s'", line);
    while ((line = strsep(&rest, "\n")) && *line)
        check_line(line, held, writes, seen);
    for (int i = 0; i < TENSORS; i++)
        MUST(seen[i] == (present[i] ? (INT64_C(1) << PREDICTORS) - 1 : 0), "%s has lines of predictors %llx", names[i],
             (unsigned long long)seen[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char shown[MESSAGES_ROOM];
    static FILE *stream;
    struct input in = input_of(data, size);
    const uint8_t choices = take_byte(&in);
    const bool written = choices & 0x80, held = choices & 0x40, has_words = choices & 0x20;
    char *text = has_words ? take_text(&in, '\n') : NULL, *rest = text, *trace, *table;
    char *words[WORDS + 8] = {"replay"};
    int count = 1;
    if (text && strlen(text) > 60) /* fnmatch takes time exponential in the stars */
        text[60] = 0;
    for (char *word; count < WORDS && (word = strsep(&rest, " "));)
        if (strncmp(word, "--c", 3) != 0 && !strchr(word, '/')) /* only files of this test are written or read */
            words[count++] = word;
    MUST(asprintf(&trace, "%s", scratch_path("trace.csv")) > 0 &&
             asprintf(&table, "--csv=%s", scratch_path("table.csv")) > 0,
         "no memory");
    unlink(scratch_path("table.csv"));
    words[count++] = trace;
    if (!has_words) {
        words[count++] = table;
        words[count++] = choices & 1 ? "--by=tensor" : "--by=role";
        words[count++] = choices & 2 ? "--warm-up=3" : "--warm-up=50";
    }
    int64_t writes[TENSORS] = {0};
    bool present[TENSORS] = {false};
    if (written)
        write_rows(&in, held, writes, present);
    else
        scratch_write("trace.csv", in.at, input_left(&in));
    if (!stream)
        stream = fmemopen(shown, sizeof shown, "w");
    MUST(stream, "no stream in memory");
    rewind(stream);
    FILE *out = stdout;
    messages_begin();
    stdout = stream;
    const int status = command_replay(count, words);
    fflush(stream);
    stdout = out;
    messages_end();
    must_say("replay", status != STATUS_OK);
    MUST(status == STATUS_OK || status == STATUS_FAILED || status == STATUS_USAGE, "status %d", status);
    MUST(!written || has_words || status == STATUS_OK, "a good trace was refused: %s", messages);
    MUST(status == STATUS_OK || has_words || access(scratch_path("table.csv"), F_OK), "a table of a refused trace");
    if (written && !has_words)
        check_table(held, writes, present);
    free(trace);
    free(table);
    free(text);
    return 0;
}
