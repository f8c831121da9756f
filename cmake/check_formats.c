/* check_formats.c - run by the build before a library is linked: refuses formats that no kernel can compute in. */
#include "core/table/format_fault.h"
#include <stdio.h>

int main(void) {
    const struct fl_format *f;
    char text[200];
    int faults = 0;
    for (int i = 0; (f = fl_format_at(i)); i++)
        if (fl_format_fault(f, text, sizeof text)) {
            fprintf(stderr, "format '%s' has %s: no kernel computes in such a format (docs/adding-a-format.md)\n",
                    f->name, text);
            faults++;
        }
    return faults != 0;
}
