/* facts.h - claims of the literature about number formats, computed again: each fact measures, and reports what it
 * expected.
 */
#ifndef FLEXLAB_FACTS_H
#define FLEXLAB_FACTS_H

#include <stdbool.h>

/* Collects the lines of a fact. */
struct fact_lines;
/* Adds a line: the quantity, the value of the source, the measured value, and whether they agree. It takes ownership of
 * expected and observed, texts from text_format. */
void fact_line(struct fact_lines *lines, bool agrees, const char *what, char *expected, char *observed);
/* A call of the library failed, which tensor_error() describes: the fact fails. */
void fact_broke(struct fact_lines *lines, const char *what);

struct fact {
    const char *name, *source, *summary;
    void (*measure)(struct fact_lines *lines);
    bool takes_long; /* more than a second or two */
};

/* A number as text: powers of two as such, others with `digits` digits. To be freed. */
char *fact_number(double x, int digits);

extern const struct fact fact_fp16_numbers, fact_ranges, fact_round_trip;
extern const struct fact fact_functions;
extern const struct fact fact_lost_update, fact_update_stall;
extern const struct fact fact_loss_scale, fact_perceptron, fact_unchanged;

#endif
