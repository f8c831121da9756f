/* data_utf8.h - converts text in UTF-8 to numbers of its characters, on all threads. */
#ifndef FL_DATA_UTF8_H
#define FL_DATA_UTF8_H

#include "flexlab/status.h"
#include <stdint.h>

enum { FL_UNICODE = 0x110000 }; /* code points */

/* The characters of a text: their number, and the distinct ones. */
struct fl_data_characters {
    int64_t count;
    int distinct;
    uint32_t *character; /* the distinct ones, ascending */
};

/* Checks that the bytes are UTF-8 (Unicode 15, table 3-7) and finds their characters. Messages begin with `what` and
 * `path`. Free `character` with fl_free. */
tensor_status fl_data_characters(struct fl_data_characters *characters, const char *what, const char *path,
                                 const uint8_t *text, int64_t bytes);

/* Finds the index in `character` of each character of a text that was checked. All must be there; otherwise the message
 * names the first that is not, and its position. */
tensor_status fl_data_character_numbers(uint16_t *numbers, const uint32_t *character, int distinct, const char *what,
                                        const char *path, const uint8_t *text, int64_t bytes);

/* The same for at most 256 characters, in the memory of the text: its first bytes become the numbers, one for each
 * character. On failure the text is neither. */
tensor_status fl_data_character_bytes(uint8_t *text, const uint32_t *character, int distinct, const char *what,
                                      const char *path, int64_t bytes);

#endif
