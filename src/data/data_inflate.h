/* data_inflate.h - a member that is deflated. */
#ifndef FL_DATA_INFLATE_H
#define FL_DATA_INFLATE_H

#include "data/data_stream.h"

/* From now on the stream gives what comes out of the `compressed` bytes at its offset. Free with fl_data_inflate_free
 * (NULL is allowed). */
tensor_status fl_data_inflate_new(struct fl_data_stream *s, int64_t compressed);
void fl_data_inflate_free(struct fl_data_inflate *i);
tensor_status fl_data_inflate_read(struct fl_data_stream *s, void *to, int64_t bytes);
/* Nothing more comes out, and nothing is left to go in. */
tensor_status fl_data_inflate_end(struct fl_data_stream *s);

#endif
