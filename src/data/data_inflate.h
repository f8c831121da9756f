/* data_inflate.h - reads a deflated member. */
#ifndef FL_DATA_INFLATE_H
#define FL_DATA_INFLATE_H

#include "data/data_stream.h"

/* From now on the stream yields the inflated bytes of the `compressed` ones at its offset. Free with
 * fl_data_inflate_free (NULL is allowed). */
tensor_status fl_data_inflate_new(struct fl_data_stream *s, int64_t compressed);
void fl_data_inflate_free(struct fl_data_inflate *i);
tensor_status fl_data_inflate_read(struct fl_data_stream *s, void *to, int64_t bytes);
/* Checks that the stream yields nothing more and that all compressed bytes were used. */
tensor_status fl_data_inflate_end(struct fl_data_stream *s);

#endif
