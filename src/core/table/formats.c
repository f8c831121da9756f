/* formats.c - the table of the formats. Only this table and those of operations and of kinds of devices name code of
 * folders above them (tests/tree/test_links.py). */
#include "core/table/format.h"
#include "format_table.h"
#include <string.h>

enum { COUNT = (int)(sizeof format_table / sizeof format_table[0]) - 1 };
_Static_assert((int)COUNT <= (int)FL_FORMAT_LIMIT, "more formats than format.h has room for: raise FL_FORMAT_LIMIT");

const struct fl_format *fl_format_at(int i) {
    return i >= 0 && i < COUNT ? format_table[i] : NULL;
}

const struct fl_format *fl_format_of(tensor_format id) {
    for (int i = 0; i < COUNT; i++)
        if (format_table[i]->id == id)
            return format_table[i];
    const struct fl_format *const numbers = fl_numbers_of(id);
    return numbers ? numbers : fl_made_format(id);
}

const struct fl_format *fl_format_named(const char *name) {
    for (int i = 0; name && i < COUNT; i++)
        if (!strcmp(format_table[i]->name, name))
            return format_table[i];
    return NULL;
}

extern const struct fl_format fl_format_minifloat;

const struct fl_format *fl_made_float(void) {
    return &fl_format_minifloat;
}

int fl_format_index(const struct fl_format *format) {
    int i = 0;
    while (i < COUNT && format_table[i] != format)
        i++;
    return i;
}
