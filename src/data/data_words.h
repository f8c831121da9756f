/* data_words.h - parses specifications "kind:PATH,...,name=value,...". */
#ifndef FL_DATA_WORDS_H
#define FL_DATA_WORDS_H

#include "flexlab/status.h"
#include <stdbool.h>
#include <stdint.h>

enum { FL_DATA_PATHS = 4, FL_DATA_OPTIONS = 3 };

/* The arguments and options of one kind of sets. */
struct fl_data_syntax {
    const char *kind, *expected; /* for messages: "npz", "npz:FILE or npz:TRAIN,TEST" */
    int most_paths;
    const char *option[FL_DATA_OPTIONS + 1]; /* names; the rest NULL */
};

struct fl_data_words {
    char *text; /* holds the words */
    int paths;
    const char *path[FL_DATA_PATHS];
    const char *value[FL_DATA_OPTIONS]; /* of each option; NULL if it is missing */
};

/* Requires at least one path, and at most those of the syntax; `rest` follows the colon, NULL without one. On failure
 * there is nothing to free. */
tensor_status fl_data_words(struct fl_data_words *words, const struct fl_data_syntax *syntax, const char *rest);
void fl_data_words_free(struct fl_data_words *words);

/* Reads the digits at *text, a number from low to high, and moves *text past them. */
bool fl_data_whole(const char **text, int64_t low, int64_t high, int64_t *value);

#endif
