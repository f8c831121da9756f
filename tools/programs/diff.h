/* diff.h - the tensors of one program, kept until another program has computed those of the same names, and how they
 * differ. */
#ifndef FLEXLAB_DIFF_H
#define FLEXLAB_DIFF_H

#include "flexlab/program.h"
#include <stdbool.h>

/* A tensor of the first program. Integers that stand for scale * (q - zero) count as these numbers. */
struct parted {
    char *value, *node, *op;
    char *other;           /* the second program's name of it; NULL: not compared yet */
    program_array numbers; /* NULL once they are compared */
    float scale;
    int zero;
    bool shapes_differ;
    int64_t other_shape[PROGRAM_MAX_DIMS];
    int other_ndim;
    int64_t count, differing; /* elements; those of which some bit differs */
    int64_t first, worst;     /* the first such element, and that of the largest difference */
    double first_pair[2], worst_pair[2];
    double largest, difference; /* of magnitudes: of the first program's numbers; of the differences */
    double signal, noise;       /* sums of squares */
};

struct parted_list {
    int count, room;
    struct parted *row; /* in the order in which the first program computed them */
};

void parted_free(struct parted_list *list);
/* A value of floats and the integers that stand for it (NAME.int8, which have a scale) are one tensor. -1: there is
 * none. */
int parted_find(const struct parted_list *list, const char *value, float scale);
/* A tensor of the first program. One that comes again, for the next part of a batch, is appended to the first; where a
 * program has both floats and integers of a value, those that come first count. */
void parted_add(struct parted_list *list, const program_tensor *t);
/* The tensor of the second, which the first has as `as`. False if it has none of that name. Parts of a batch come in
 * their order. */
bool parted_compare(struct parted_list *list, const program_tensor *t, const char *as);
/* Notes the name of a tensor once, however many parts and forms of it come. */
void parted_note(struct parted_list *list, const program_tensor *t);

int parted_compared(const struct parted_list *list);
/* Whether it differs: by more than the tolerance times the largest magnitude; with tolerance 0 in any bit. */
bool parted_differs(const struct parted *row, double tolerance);
/* The first that differs; NULL: none. */
const struct parted *parted_first(const struct parted_list *list, double tolerance);
void parted_print_first(const struct parted *row, double tolerance);
/* At most `most` of those that differ, from the first on; of all rows if it is the number of them. */
void parted_print(const struct parted_list *list, double tolerance, int most);
/* A STATUS_ code after a message. */
int parted_write_csv(const struct parted_list *list, const char *path);

#endif
