/* facts.h - what the literature says of number formats, computed again: each fact measures, and says what it expected.
 */
#ifndef FLEXLAB_FACTS_H
#define FLEXLAB_FACTS_H

#include <stdbool.h>

/* Collects the lines of a fact. */
struct fact_lines;
/* One line: what was measured, what the source says, what came out, and whether they agree. expected and observed are
 * texts from text_format, which are taken over. */
void fact_line(struct fact_lines *lines, bool agrees, const char *what, char *expected, char *observed);
/* A call of the library failed, which tensor_error() describes: the fact fails. */
void fact_broke(struct fact_lines *lines, const char *what);
/* What an option names is of no use: said at once, and no line of the fact. usage: it was asked for wrongly. */
void fact_refused(struct fact_lines *lines, bool usage, const char *option, const char *value, const char *why);
/* What --network and --data said; NULL: nothing. */
const char *fact_network(const struct fact_lines *lines);
const char *fact_data(const struct fact_lines *lines);

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
extern const struct fact fact_loss_scale, fact_perceptron, fact_unchanged, fact_int8;

#endif
