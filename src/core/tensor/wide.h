/* wide.h - wide parts: the elements of a tensor at twice their width, which updates work on. The elements are always
 * their rounding: docs/semantics.md, "Wide parts". None of these functions can fail. */
#ifndef FL_WIDE_H
#define FL_WIDE_H

#include "core/tensor/transfer.h"

/* Makes the wide part exactly the value of the elements, after every write of only the elements. */
void fl_wide_follow(const struct fl_storage *t);
/* The same for those elements that are no longer the rounding of their wide values, because the caller may have written
 * them. */
void fl_wide_settle(const struct fl_storage *t);
/* Loads wide part and elements from the source, at the exponent that the tensor already has; stats accumulates. */
void fl_wide_load(const struct fl_storage *t, const struct fl_source *source, struct fl_stats *stats);

/* The view of an operand that counts as its wide part if it has one. */
static inline struct fl_view fl_wide_view_of(const tensor *t) {
    fl_wide_settle(t->storage);
    struct fl_view view = fl_view_of(t);
    view.wide = t->storage->wide;
    return view;
}

#endif
