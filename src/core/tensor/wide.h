/* wide.h - wide parts: the elements of a tensor at twice their width, which an update works on. The elements are their
 * rounding, always: docs/semantics.md, "Wide parts". None of these functions can fail. */
#ifndef FL_WIDE_H
#define FL_WIDE_H

#include "core/tensor/transfer.h"

/* The wide part becomes exactly the value of the elements: after all that writes elements alone. */
void fl_wide_follow(const struct fl_storage *t);
/* The same for the elements that are no longer the rounding of theirs, where elements may have been written by hand. */
void fl_wide_settle(const struct fl_storage *t);
/* The tensor's exponent is set: wide part and elements from the source, as a load does it; stats accumulates. */
void fl_wide_load(const struct fl_storage *t, const struct fl_source *source, struct fl_stats *stats);

/* An operand that counts as its wide part, where it has one. */
static inline struct fl_view fl_wide_view_of(const tensor *t) {
    fl_wide_settle(t->storage);
    struct fl_view view = fl_view_of(t);
    view.wide = t->storage->wide;
    return view;
}

#endif
