/* fuzz_formats.c - texts of formats: block formats, elements, formats of tensors by parameters, and classes.
 *
 * Input: a byte (which of the four), then the text, without zero bytes. A text that is taken has a name that is taken
 * again and gives the same format, whose numbers are those of its grammar; one that is refused causes a message. */
#include "blocks/block_quantise.h"
#include "core/arithmetic/element.h"
#include "core/table/block_classes.h"
#include "flexlab/tensor.h"
#include "flexlab/tensor_quantise.h"
#include "fuzz.h"
#include <math.h>

/* Formats and pairs that were made stay for the life of the process, so that their tables fill up: no more are then
 * asked for, and which came before says what an input does. */
enum { BLOCKS_MOST = 20000, CLASSES_MOST = 1000, TENSORS_MOST = 64, TEXT = 200 };

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    tensor_set_threads(1);
    return 0;
}

static void must_explain(const char *text, tensor_status status) {
    MUST(!status || strlen(tensor_error()) > 0, "'%s': status %d without a message", text, status);
}

static void check_quantised(const char *text, float largest) {
    enum { N = 40 };
    float x[N], y[N], again[N];
    for (int i = 0; i < N; i++)
        x[i] = y[i] = (float)((i * 37 % 41) - 20) * largest / 64;
    tensor_quantised counts;
    const int64_t shape[] = {2, N / 2};
    MUST(!tensor_quantise_f32(y, x, 2, shape, 1, text, 3, &counts), "'%s': %s", text, tensor_error());
    MUST(!tensor_quantise_f32(again, x, 2, shape, 1, text, 3, NULL) && !memcmp(y, again, sizeof y), "'%s' again", text);
    MUST(counts.nonfinite == 0 && counts.saturated <= 2 * N && counts.flushed <= 2 * N, "'%s': %lld, %lld, %lld", text,
         (long long)counts.nonfinite, (long long)counts.saturated, (long long)counts.flushed);
}

static void check_blocks(const char *text) {
    static int count;
    const struct fl_block_format *f = NULL, *same = NULL;
    if (count == BLOCKS_MOST)
        return;
    const tensor_status status = fl_block_format_find(&f, text);
    must_explain(text, status);
    MUST(status || fl_block_format_begins(text), "'%s' does not begin as a block format", text);
    MUST(!f == (status != TENSOR_OK), "'%s': status %d", text, status);
    if (status)
        return;
    count++;
    MUST(!fl_block_format_find(&same, f->name) && same == f, "'%s' is named '%s', which is another", text, f->name);
    MUST(f->block == 0 || (f->block >= FL_BLOCK_LEAST && f->block <= FL_BLOCK_MOST), "'%s': block %d", text, f->block);
    MUST(f->element.bits >= 2 && f->element.bits <= 8, "'%s': %d bits", text, f->element.bits);
    const double bits = fl_block_format_bits(f);
    MUST(bits >= f->element.bits && bits <= f->element.bits + 4, "'%s': %g bits", text, bits);
    check_quantised(f->name, 1000);
}

static void check_element(const char *text) {
    struct fl_element e, same;
    const char *end;
    const tensor_status status = fl_element_find(&e, text, text, &end);
    must_explain(text, status);
    if (status)
        return;
    MUST(end > text && end <= text + strlen(text), "'%s' ends outside", text);
    MUST(!fl_element_find(&same, e.name, e.name, &end) && !*end && !strcmp(same.name, e.name), "'%s' is named '%s'",
         text, e.name);
    MUST(e.bits >= 1 && e.bits <= 16 && isfinite(e.largest), "'%s': %d bits, largest %g", text, e.bits, e.largest);
    for (uint32_t code = 0; code < 1u << e.bits; code += 1 + code / 64) { /* every number is one that it has */
        const double x = fl_element_decode(&e, code);
        if (fabs(x) <= e.largest) /* the lowest code of intN is no element */
            MUST(fl_element_decode(&e, fl_element_encode(&e, x, NULL)) == x, "'%s': code %x is %a", text, code, x);
    }
}

static void check_tensors(const char *text) {
    static char made[TENSORS_MOST][TEXT];
    static int count;
    int known = 0;
    while (known < count && strcmp(made[known], text) != 0)
        known++;
    if (known == TENSORS_MOST)
        return;
    tensor_format f, same;
    const tensor_status status = tensor_format_find(&f, text);
    must_explain(text, status);
    if (status)
        return;
    if (known == count)
        snprintf(made[count++], TEXT, "%s", text);
    const char *name = tensor_format_name(f);
    MUST(name && !tensor_format_find(&same, name) && same == f, "'%s' is another format than its name '%s'", text,
         name);
    MUST(tensor_format_bits(f) >= 1 && tensor_format_bits(f) <= 64, "'%s': %d bits", text, tensor_format_bits(f));
}

static void check_class(const char *text) {
    static int count;
    tensor_class class = TENSOR_EXACT, same = TENSOR_EXACT;
    if (count == CLASSES_MOST)
        return;
    const tensor_status status = tensor_class_find(&class, text);
    must_explain(text, status);
    if (status)
        return;
    count++;
    char name[2 * TEXT + 32];
    snprintf(name, sizeof name, "%s", tensor_class_name(class));
    MUST(!tensor_class_find(&same, name) && same == class, "'%s' is another class than its name '%s'", text, name);
    for (int i = 0; i < 2 && fl_has_operands(class); i++)
        MUST(fl_class_operands(class, i), "'%s': operand %d", text, i);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static void (*const checks[])(const char *) = {check_blocks, check_element, check_tensors, check_class};
    struct input in = input_of(data, size);
    const int which = take_below(&in, 4);
    char text[TEXT];
    size_t length = 0;
    while (input_left(&in) && length < sizeof text - 1) {
        const char c = (char)take_byte(&in);
        if (c)
            text[length++] = c;
    }
    text[length] = 0;
    checks[which](text);
    return 0;
}
