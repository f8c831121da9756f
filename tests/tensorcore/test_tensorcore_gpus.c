/* The model of tensor cores gives what real GPUs computed: the products of FLEXLAB_DATA/tensor-cores.txt.xz, a part of
 * north-numerical-computing/MATLAB-tensor-core (BSD-2-Clause, Faizan A. Khattak and Mantas Mikaitis). A line is GPU,
 * input format, output format, k, then a[k], b[k], c and d as words of binary32. */
#include "check.h"
#include "tensorcore/tensorcore.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { LINES = 8000 };

static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The nearest fp16, ties to even; c has no subnormal ones and none beyond. */
static float to_half(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return float_of((bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu);
}

static enum fl_operand_kind kind_named(const char *name) {
    for (int i = 1; i < FL_OPERAND_KINDS; i++)
        if (!strcasecmp(fl_operand_kind_name((enum fl_operand_kind)i), name))
            return (enum fl_operand_kind)i;
    return FL_OPERAND_NONE;
}

static void check_line(char *line, int number) {
    char gpu[16], in[8], out[8], text[64];
    float a[64], b[64], c, d;
    int k, at, more;
    tensor_class class;
    if (sscanf(line, "%15s %7s %7s %d%n", gpu, in, out, &k, &at) != 4 || k > 64) {
        CHECK(0, "line %d: no product", number);
        return;
    }
    for (int i = 0; i < 2 * k + 2; i++, at += more) {
        unsigned bits;
        float *to = i < k ? &a[i] : i < 2 * k ? &b[i - k] : i == 2 * k ? &c : &d;
        CHECK(sscanf(line + at, "%x%n", &bits, &more) == 1, "line %d: word %d", number, i);
        *to = float_of(bits);
    }
    for (char *at_name = gpu; *at_name; at_name++)
        *at_name = (char)tolower((unsigned char)*at_name);
    const bool half = !strcmp(out, "fp16");
    snprintf(text, sizeof text, "accumulate=%s%s", gpu, half ? ":sums=fp16" : "");
    const enum fl_operand_kind kind = kind_named(in);
    CHECK(!tensor_class_find(&class, text), "%s", tensor_error());
    const struct fl_accumulation *how = fl_accumulation_of(class, kind);
    CHECK(how, "line %d: %s has no %s", number, text, in);
    if (!how)
        return;
    const struct fl_operand_kinds kinds = {kind, kind};
    const float got = fl_tensorcore_sum(how, kinds, a, b, 1, k, half ? to_half(c) : c);
    CHECK(got == d, "line %d: %s %s %s: got %a, the GPU gave %a", number, gpu, in, out, (double)got, (double)d);
}

int main(void) {
    const char *const data = getenv("FLEXLAB_DATA");
    char command[4200], line[4096];
    int lines = 0;
    snprintf(command, sizeof command, "%s/tensor-cores.txt.xz", data ? data : "");
    FILE *file = data ? fopen(command, "rb") : NULL;
    if (!file)
        return check_skip("FLEXLAB_DATA names no folder with tensor-cores.txt.xz");
    fclose(file);
    if (system("xz --version >/dev/null 2>&1") != 0)
        return check_skip("the program xz is not there");
    snprintf(command, sizeof command, "xz -dc \"$FLEXLAB_DATA/tensor-cores.txt.xz\"");
    FILE *text = popen(command, "r");
    CHECK(text, "xz could not be run");
    while (text && fgets(line, sizeof line, text))
        check_line(line, ++lines);
    CHECK(text && !pclose(text), "xz failed");
    CHECK(lines == LINES, "%d lines, expected %d", lines, LINES);
    return check_summary();
}
