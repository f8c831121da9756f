/* Block formats by text: every element and block of the grammar, one object for each format, and errors that name the
 * position and what was expected. */
#include "check.h"
#include "core/table/block_format.h"
#include <math.h>
#include <string.h>

static void check_name(const char *text, const char *name, int block, double bits) {
    const struct fl_block_format *f, *same;
    CHECK(!fl_block_format_find(&f, text), "%s: %s", text, tensor_error());
    if (!f)
        return;
    CHECK(!strcmp(f->name, name), "%s is named %s, want %s", text, f->name, name);
    CHECK(f->block == block, "%s: block %d, want %d", text, f->block, block);
    CHECK(fl_block_format_bits(f) == bits, "%s: %g bits, want %g", text, fl_block_format_bits(f), bits);
    CHECK(!fl_block_format_find(&same, name) && same == f, "%s and %s are two formats", text, name);
    CHECK(fl_block_format_begins(text), "%s", text);
}

static void check_refused(const char *text, int position, const char *expected) {
    const struct fl_block_format *f;
    char place[40];
    snprintf(place, sizeof place, "character %d ", position);
    CHECK(fl_block_format_find(&f, text) == TENSOR_E_ARGUMENT && !f, "%s was accepted", text);
    CHECK(strstr(tensor_error(), place) && strstr(tensor_error(), expected), "%s: '%s', want '%s' and '%s'", text,
          tensor_error(), place, expected);
}

/* Every element of at most 8 bits, with what an exact enumeration of its codes says. */
static void check_elements(void) {
    int formats = 0;
    for (int bits = 2; bits <= 8; bits++)
        for (int x = 0; x < bits; x++) /* exponent bits; 0: an integer */
            for (int only_nan = 0; only_nan < 2; only_nan++) {
                char text[40];
                if (x)
                    snprintf(text, sizeof text, "mx:e%dm%d%s", x, bits - 1 - x, only_nan ? "fn" : "");
                else
                    snprintf(text, sizeof text, "mx:int%d", bits);
                const struct fl_block_format *f;
                if (fl_block_format_find(&f, text)) {
                    CHECK(false, "%s: %s", text, tensor_error());
                    continue;
                }
                formats++;
                double largest = 0, least = INFINITY;
                for (uint32_t code = 0; code < 1u << (bits - 1); code++) {
                    const double v = fl_element_decode(&f->element, code);
                    if (!isfinite(v))
                        continue;
                    largest = v > largest ? v : largest;
                    least = v > 0 && v < least ? v : least;
                }
                CHECK(f->element.largest == largest, "%s: largest %g, want %g", text, f->element.largest, largest);
                CHECK(ldexp(1, f->top_exponent) <= largest && largest < ldexp(1, f->top_exponent + 1),
                      "%s: top exponent %d of %g", text, f->top_exponent, largest);
                CHECK(f->bytes == (largest / least <= 127), "%s: %g to %g in bytes", text, least, largest);
                CHECK(!f->bytes || ldexp(1, f->element.unit) <= least, "%s: unit %d", text, f->element.unit);
                CHECK(f->element.saturates, "%s does not saturate", text);
            }
    CHECK(formats == 2 * (2 + 3 + 4 + 5 + 6 + 7 + 8), "%d formats", formats);
    for (int block = 0; block < 1100; block++) {
        char text[40];
        const struct fl_block_format *f;
        snprintf(text, sizeof text, "hbfp:int6/%d", block);
        if (block < 2 || block > 1024)
            check_refused(text, 11, "from 2 to 1024");
        else
            CHECK(!fl_block_format_find(&f, text) && f->block == block, "%s: %s", text, tensor_error());
    }
}

int main(void) {
    check_name("mx:int8", "mx:int8", 32, 8.25);
    check_name("mx:int8/32:floor", "mx:int8", 32, 8.25);
    check_name("mx:e4m3fnsat:rceil", "mx:e4m3fn:rceil", 32, 8.25);
    check_name("mx:e2m1fn/16:square:ceil", "mx:e2m1/16:ceil:square", 16, 4 + 8 / 256.0);
    check_name("mx:e5m2:hadamard:even:stochastic", "mx:e5m2:even:stochastic:hadamard", 32, 8.25);
    check_name("nvfp4", "nvfp4", 16, 4.5);
    check_name("nvfp4:square:hadamard:stochastic", "nvfp4:stochastic:hadamard:square", 16, 4 + 8 / 256.0);
    check_name("hbfp:int8/64", "hbfp:int8/64", 64, 8.125);
    check_name("hbfp:int4:floor", "hbfp:int4", 32, 4.25);
    check_name("channel:int8", "channel:int8", 0, 8);
    check_name("channel:e4m3fnsat:rceil", "channel:e4m3fn", 0, 8);
    check_name("channel:int4:stochastic:floor", "channel:int4:floor:stochastic", 0, 4);
    check_elements();

    check_refused("", 1, "mx:ELEMENT, nvfp4, hbfp:intN or channel:ELEMENT");
    check_refused("mxfp8", 1, "mx:ELEMENT, nvfp4, hbfp:intN or channel:ELEMENT");
    check_refused("mx:", 4, "eXmY");
    check_refused("mx:int9", 4, "at most 8 bits");
    check_refused("mx:int1", 7, "bits");
    check_refused("mx:e5m3", 4, "at most 8 bits");
    check_refused("mx:int8/1", 9, "from 2 to 1024");
    check_refused("mx:int8/1025", 9, "from 2 to 1024");
    check_refused("mx:int8/99999999999999999999", 9, "from 2 to 1024");
    check_refused("mx:int8/032", 9, "from 2 to 1024");
    check_refused("mx:int8/-4", 9, "from 2 to 1024");
    check_refused("mx:int8/32x", 11, "or the end");
    check_refused("mx:int8x", 8, "'/'");
    check_refused("mx:int8:", 9, "floor, ceil, even, rceil");
    check_refused("mx:int8:flor", 9, "floor, ceil, even, rceil");
    check_refused("mx:int8:floorx", 9, "floor, ceil, even, rceil");
    check_refused("mx:int8:ceil:floor", 14, "one scale rule");
    check_refused("mx:int8:square:square", 16, "not there yet");
    check_refused("mx:int8/24:hadamard", 12, "multiple of 16");
    check_refused("nvfp4:ceil", 7, "amax / 6 in E4M3");
    check_refused("nvfp4/32", 6, "':' and an option");
    check_refused("nvfp4x", 6, "':' and an option");
    check_refused("nvfp4:big", 7, "stochastic, hadamard or square");
    check_refused("hbfp:e4m3", 6, "intN");
    check_refused("hbfp:int8:rceil", 11, "hbfp has the rule floor");
    check_refused("channel:", 9, "eXmY");
    check_refused("channel:int9", 9, "at most 8 bits");
    check_refused("channel:int8/32", 13, "all summed elements");
    check_refused("channel:int8:square", 14, "floor, ceil, even, rceil or stochastic");
    check_refused("channel:int8:hadamard", 14, "floor, ceil, even, rceil or stochastic");
    check_refused("channel:int8:ceil:rceil", 19, "one scale rule");
    check_refused("channel", 1, "channel:ELEMENT");
    const struct fl_block_format *f;
    CHECK(fl_block_format_find(&f, NULL) == TENSOR_E_ARGUMENT, "NULL");
    CHECK(fl_block_format_find(NULL, "nvfp4") == TENSOR_E_ARGUMENT, "NULL");
    CHECK(!fl_block_format_begins("fp16") && !fl_block_format_begins("nvfp4x") && !fl_block_format_begins(NULL),
          "fp16");
    return check_summary();
}
