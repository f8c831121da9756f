/* page_json.c - JSON inside the report's page. */
#include "report/page_json.h"
#include "base/text.h"
#include "core/base/shown.h"
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void page_text(FILE *out, const char *text) {
    char *valid = text_valid(text);
    fputc('"', out);
    char turning[FL_SHOWN_TEXT];
    for (const unsigned char *c = (const unsigned char *)valid; *c; c++)
        if (fl_turning((const char *)c, turning)) { /* escaped wherever the page shows it */
            fprintf(out, "\\%s", turning);
            c += text_character((const char *)c) - 1;
        } else if (*c < 0x20 || *c == 0x7F || strchr("\"\\<>&", *c)) /* '<': a script element ends at "</script" */
            fprintf(out, "\\u%04x", *c);
        else
            fputc(*c, out);
    fputc('"', out);
    free(valid);
}

void page_number(FILE *out, double value, int digits) {
    if (!isfinite(value)) {
        fputs("null", out);
        return;
    }
    char text[32];
    for (int d = digits < PAGE_EXACT ? digits : PAGE_EXACT - 2; d <= digits; d++) { /* no more than it takes */
        snprintf(text, sizeof text, "%.*g", d, value);
        if (strtod(text, NULL) == value)
            break;
    }
    fputs(text, out);
}

static void cell(FILE *out, double value, int digits) {
    if (isinf(value))
        fputs("\"inf\"", out);
    else
        page_number(out, value, digits);
}

static bool same(double a, double b) {
    return a == b || (isnan(a) && isnan(b));
}

void page_column(FILE *out, const double *values, int count, int digits) {
    bool constant = true;
    for (int i = 1; i < count; i++)
        constant = constant && same(values[i], values[0]);
    if (constant) {
        cell(out, values[0], digits);
        return;
    }
    for (int i = 0; i < count; i++) {
        fputc(i ? ',' : '[', out);
        cell(out, values[i], digits);
    }
    fputc(']', out);
}
