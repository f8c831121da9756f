/* fuzz_trace.c - the reader of exponent traces.
 *
 * Input: a byte (bit 7: a file that training could have written, else the bytes themselves; the rest: how many rows
 * make a group), a byte with the most tensors, patterns up to a line feed (none: one tensor of each role), then the
 * file. Of a file that training could have written every point is known. */
#define _GNU_SOURCE
#include "messages.h"
#include "scratch.h"
#include "base/text.h"
#include "readers/trace.h"
#include <math.h>

enum { TENSORS = 6, ROWS = 400 };

static const char heading[] = "step,tensor,role,e,gamma,predicted_maximum,maximum,saturated,flushed,nonfinite,"
                              "clamped_low,clamped_high,maximum_e\n";
static const char *const names[TENSORS] = {"input",      "conv1.weight",      "conv1",
                                           "conv1.grad", "conv1.weight.grad", "fc.bias.grad"};
static const char *const roles[TENSORS] = {"activation", "weight",          "activation",
                                           "gradient",   "weight gradient", "weight gradient"};

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    scratch_make();
    text_set_command("fuzz");
    return 0;
}

struct row {
    int tensor, e;
    int64_t step;
    double maximum;
    bool saturated;
};

/* Steps of the first few tensors each, with values from the input. */
static int write_rows(struct input *in, struct row *rows) {
    char *text;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    MUST(file, "no stream in memory");
    fputs(heading, file);
    const int tensors = 1 + take_below(in, TENSORS);
    int count = 0;
    for (int64_t step = 1; count + tensors <= ROWS && input_left(in); step += 1 + take_byte(in))
        for (int i = 0; i < tensors; i++) {
            struct row r = {i, (int8_t)take_byte(in), step, 0, false};
            const int mantissa = take_byte(in);
            r.maximum = ldexp(mantissa, (int8_t)take_byte(in));
            const int saturated = take_byte(in) & 3;
            r.saturated = saturated > 0;
            fprintf(file, "%lld,%s,%s,%d,%d,%.9g,%.17g,%d,%d,0,0,0,%d\n", (long long)r.step, names[i], roles[i],
                    r.e - 1, 1, 0.5, r.maximum, saturated, 0, r.e);
            rows[count++] = r;
        }
    fclose(file);
    scratch_write("trace.csv", text, size);
    free(text);
    return count;
}

/* The points of one tensor: of each group of its rows the largest maximum, the first of equals. */
static void check_points(const struct trace_tensor *t, const struct row *rows, int count, int group) {
    int seen = 0, points = 0;
    for (int i = 0; i < count; i++) {
        if (strcmp(names[rows[i].tensor], t->name))
            continue;
        points += seen++ % group == 0;
        MUST(points <= t->count, "%s: %d points", t->name, t->count);
        const struct trace_point *p = &t->points[points - 1];
        MUST(p->maximum >= rows[i].maximum, "%s: maximum %g, a row has %g", t->name, p->maximum, rows[i].maximum);
        MUST(p->saturated || !rows[i].saturated, "%s: saturation is lost", t->name);
        if (p->step == rows[i].step)
            MUST(p->maximum == rows[i].maximum && p->e == rows[i].e, "%s: step %lld has e %d and maximum %g", t->name,
                 (long long)p->step, p->e, p->maximum);
    }
    MUST(points == t->count, "%s: %d points, expected %d", t->name, t->count, points);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input in = input_of(data, size);
    const uint8_t choices = take_byte(&in);
    const int group = 1 + (choices & 0x1f), most = take_below(&in, 16);
    char *patterns = take_text(&in, '\n');
    if (strlen(patterns) > 24) /* fnmatch takes time exponential in the stars */
        patterns[24] = 0;
    static struct row rows[ROWS];
    const bool written = choices & 0x80;
    const int count = written ? write_rows(&in, rows) : 0;
    if (!written)
        scratch_write("trace.csv", in.at, input_left(&in));
    struct trace trace;
    messages_begin();
    const int chosen = trace_choose(scratch_path("trace.csv"), patterns[0] ? patterns : NULL, most, &trace);
    messages_end();
    must_say("trace_choose", chosen != STATUS_OK);
    MUST(!written || chosen == STATUS_OK, "a good trace was refused: %s", messages);
    MUST(trace.count >= 0 && (!patterns[0] || trace.count <= most), "%d tensors of at most %d", trace.count, most);
    struct trace other = trace_like(&trace);
    if (chosen == STATUS_OK) {
        messages_begin();
        const int status = trace_read(scratch_path("trace.csv"), group, &other);
        messages_end();
        must_say("trace_read", status != STATUS_OK);
        MUST(!written || status == STATUS_OK, "a good trace was refused: %s", messages);
        for (int i = 0; status == STATUS_OK && i < other.count; i++) {
            MUST(!strcmp(other.tensors[i].name, trace.tensors[i].name), "tensor %d has another name", i);
            MUST(other.tensors[i].count > 0 || i > 0, "%s has no points", other.tensors[i].name);
            if (written)
                check_points(&other.tensors[i], rows, count, group);
        }
    }
    trace_clear(&other);
    trace_clear(&trace);
    free(patterns);
    return 0;
}
