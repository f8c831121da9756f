/* test_format_fault.c - formats with a shared exponent that no kernel computes in are refused, by what their identity
 * says and by what their codec does; those of the table are not. */
#include "check.h"
#include "core/table/format_fault.h"
#include "flexlab/tensor.h"
#include <string.h>

/* A codec of 12 bits beside an identity of 16. */
static void encode_12(const struct fl_format *f, const struct fl_view *out, int64_t first, int64_t n,
                      const double *values, bool op_result, const struct fl_rounding *rounding,
                      struct fl_stats *stats) {
    (void)f, (void)out, (void)first, (void)n, (void)values, (void)op_result, (void)rounding;
    stats->gamma = 2047;
}

static void refuses(const struct fl_format *f, const char *part) {
    char text[200] = "";
    CHECK(fl_format_fault(f, text, sizeof text) && strstr(text, part), "\"%s\" lacks \"%s\"", text, part);
}

int main(void) {
    char text[200];
    const struct fl_format *dfp16 = fl_format_named("dfp16"), *f;
    for (int i = 0; (f = fl_format_at(i)); i++)
        CHECK(!fl_format_fault(f, text, sizeof text), "%s: %s", f->name, text);
    struct fl_format changed = *dfp16;
    changed.top = 2047;
    refuses(&changed, "a largest mantissa of 2047, expected 32767 for 16 bits");
    changed = *dfp16;
    changed.bits = 3;
    refuses(&changed, "mantissas of 3 bits, expected 4 to 16");
    changed = *dfp16;
    changed.encode = encode_12;
    refuses(&changed, "a codec whose largest mantissa is 2047, expected 32767");
    changed = *dfp16;
    changed.bytes = 1;
    refuses(&changed, "elements of 1 bytes");
    changed = *dfp16;
    changed.wide_bytes = 8;
    refuses(&changed, "wide ones of 8");
    changed = *dfp16;
    changed.e_max = 200;
    refuses(&changed, "exponents -128 ... 200, expected a range in this order within -128 ... 127");
    changed = *dfp16;
    changed.e_min = 100;
    changed.e_max = 50;
    refuses(&changed, "exponents 100 ... 50");
    changed = *dfp16;
    changed.predictor = "newspaper";
    refuses(&changed, "the predictor 'newspaper'");
    changed = *fl_format_named("fp16"); /* what no float format has */
    changed.top = 2047;
    CHECK(!fl_format_fault(&changed, text, sizeof text), "%s", text);
    return check_summary();
}
