/* gemm_epilogue.c - the bookkeeping of the epilogue, which is added to sums before they are rounded, for all formats.
 */
#include "gemm/gemm_epilogue.h"
#include <string.h>

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

static void repeat(const struct fl_epilogue *e, int64_t column, int64_t n, size_t element_bytes,
                   struct gemm_bias *room) {
    const char *bias = e->bias.data;
    const size_t bytes = (size_t)n * element_bytes, row = (size_t)e->bias.count * element_bytes,
                 offset = (size_t)column * element_bytes;
    room->column = column;
    room->count = n;
    size_t done = row - offset, more = smaller(row, bytes - done);
    memcpy(room->repeated, bias + offset, done);
    memcpy(room->repeated + done, bias, more);
    for (done += more; done < bytes; done += more) { /* twice as much each time */
        const size_t back = done / row * row;
        more = smaller(back, bytes - done);
        memcpy(room->repeated + done, room->repeated + done - back, more);
    }
}

const void *fl_gemm_bias(const struct fl_epilogue *e, int64_t first, int64_t n, size_t element_bytes,
                         struct gemm_bias *room) {
    if (!e->bias.data)
        return NULL;
    const int64_t column = first % e->bias.count;
    if (column + n <= e->bias.count)
        return (const char *)e->bias.data + (size_t)column * element_bytes;
    if (room->count < n || room->column != column)
        repeat(e, column, n, element_bytes, room);
    return room->repeated;
}

int64_t fl_gemm_epilogue_run(const struct fl_epilogue *e, int64_t n) {
    const int64_t columns = e->bias.data ? e->bias.count : 1;
    return n > GEMM_EPILOGUE_RUN && columns <= GEMM_EPILOGUE_RUN ? GEMM_EPILOGUE_RUN / columns * columns
                                                                 : GEMM_EPILOGUE_RUN;
}

struct gemm_alignment fl_gemm_alignment(const struct fl_args *args) {
    const struct fl_epilogue *e = &args->p.product.epilogue;
    return gemm_align(fl_exponent(&args->in[0]) + fl_exponent(&args->in[1]), e->bias.data, fl_exponent(&e->bias),
                      e->residual.data, fl_exponent(&e->residual));
}
