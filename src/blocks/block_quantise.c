/* block_quantise.c - a tensor quantised in blocks: its memory, its parts, and the order of passes. The loops over
 * elements are those of block_kernels.inc. */
#include "blocks/block_quantise.h"
#include "blocks/block_kernels.h"
#include "core/arithmetic/philox.h"
#include "core/base/memory.h"
#include "core/base/parallel.h"
#include "core/table/format.h"
#include <math.h>
#include <string.h>

static int64_t ceil_to(int64_t n, int64_t multiple) {
    return (n + multiple - 1) / multiple * multiple;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

static void *place(void *memory, size_t *bytes, int64_t count, size_t size) {
    void *const at = memory ? (char *)memory + *bytes : NULL;
    *bytes += fl_line_bytes((size_t)count * size);
    return at;
}

/* Elements of a stored block. A channel is several of them with one scale, as long as the cache and the integers that
 * dot products add in allow. */
static int64_t block_of(const struct fl_block_format *f, int64_t k) {
    enum { CHANNEL_MOST = 512 };
    if (f->block)
        return f->block;
    const int64_t parts = k > 0 ? (k + CHANNEL_MOST - 1) / CHANNEL_MOST : 1, part = ceil_to((k + parts - 1) / parts, 4);
    return part > 4 ? part : 4;
}

size_t fl_block_place(struct fl_block_rows *out, const struct fl_block_format *f, int64_t outer, int64_t k,
                      int64_t inner, void *memory) {
    const int64_t short_width = ceil_to(k, f->hadamard ? FL_HADAMARD : 4), block = block_of(f, k);
    *out = (struct fl_block_rows){.rows = outer * inner,
                                  .k = k,
                                  .block = (int)block,
                                  .blocks = (k + block - 1) / block,
                                  .width = (int)(k < block && short_width < block ? short_width : block),
                                  .format = f,
                                  .tensor_scale = 1};
    const int64_t scales = out->rows * out->blocks, elements = scales * out->width;
    size_t bytes = 0;
    if (f->bytes)
        out->bytes = place(memory, &bytes, elements, sizeof *out->bytes);
    else
        out->floats = place(memory, &bytes, elements, sizeof *out->floats);
    out->exponents = place(memory, &bytes, scales, sizeof *out->exponents);
    if (f->e4m3_scales)
        out->significands = place(memory, &bytes, scales, sizeof *out->significands);
    if (f->square || f->e4m3_scales || !f->block)
        out->maxima = place(memory, &bytes, scales, sizeof *out->maxima);
    return bytes;
}

/* --- parts -------------------------------------------------------------------------------------------------------- */

enum { SCRATCH = 4096, COLUMNS = 128, PITCH_MORE = 4, PART = 1 << 15 };

/* A pass over a tensor: maxima of its blocks, or its elements. A part is `chunk` rows, neighbours of one matrix
 * [k, inner], by `range` blocks. */
struct pass {
    const struct fl_block_kernels *kernels;
    const struct fl_block_format *format;
    const float *x;
    int64_t outer, k, inner;
    struct fl_rounding rounding;
    uint32_t signs;
    struct fl_block_rows *out;
    bool measures; /* maxima alone */
    int64_t chunk, chunks, range, ranges;
    struct fl_block_found found[FL_MAX_THREADS];
};

/* Values of some rows, brought together, and their draws. */
struct gathered {
    float x[SCRATCH + COLUMNS * PITCH_MORE] __attribute__((aligned(FL_ALIGNMENT)));
    uint32_t draws[SCRATCH + COLUMNS * PITCH_MORE] __attribute__((aligned(FL_ALIGNMENT)));
};

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static void join(struct fl_block_found *into, const struct fl_block_found *part) {
    into->saturated += part->saturated;
    into->flushed += part->flushed;
    into->has_nan |= part->has_nan;
    into->least = part->least < into->least ? part->least : into->least;
    into->most = part->most > into->most ? part->most : into->most;
    into->maximum = part->maximum > into->maximum ? part->maximum : into->maximum;
}

static const struct fl_block_found nothing = {.least = FL_BLOCK_NAN, .most = FL_BLOCK_ZERO};

static bool draws_for(const struct pass *p) {
    return p->format->stochastic && !p->measures;
}

static void run_kernel(const struct pass *p, struct fl_block_run *run, int64_t row, int64_t block,
                       struct fl_block_found *found) {
    const struct fl_block_rows *out = p->out;
    const int64_t at = row * out->blocks + block;
    run->format = p->format;
    run->width = out->width;
    run->tensor_scale = out->tensor_scale;
    run->to_pitch = run->scale_pitch * out->width;
    run->bytes = out->bytes ? out->bytes + at * out->width : NULL;
    run->floats = out->floats ? out->floats + at * out->width : NULL;
    run->exponents = out->exponents + at;
    run->significands = out->significands ? out->significands + at : NULL;
    run->maxima = out->maxima ? out->maxima + at : NULL;
    if (p->measures)
        p->kernels->maxima(run, found);
    else
        p->kernels->quantise(run, found);
}

/* `n` values of each of `rows` rows from block `first` of row `row` on; those of a row are together in x, and rows are
 * `pitch` apart. draws: with the pitch of x, or NULL. Blocks that are neighbours in memory are one run. */
static void run_rows(const struct pass *p, const float *x, const uint32_t *draws, int64_t pitch, int64_t row,
                     int64_t rows, int64_t first, int64_t n, struct fl_block_found *found) {
    const int64_t block = p->out->block, blocks = p->out->blocks, whole = n / block;
    int64_t done = 0;
    if (whole && (rows == 1 || (n == pitch && n == blocks * block))) {
        struct fl_block_run run = {
            .x = x, .draws = draws, .pitch = block, .count = rows * whole, .n = (int)block, .scale_pitch = 1};
        run_kernel(p, &run, row, first, found);
        done = whole;
    }
    for (int64_t b = done; b * block < n; b++) {
        struct fl_block_run run = {.x = x + b * block,
                                   .draws = draws ? draws + b * block : NULL,
                                   .pitch = pitch,
                                   .count = rows,
                                   .n = (int)smaller(block, n - b * block),
                                   .scale_pitch = blocks};
        run_kernel(p, &run, row, first + b, found);
    }
}

/* Fills rows of `n` gathered values up to `padded` for the Hadamard transform, and transforms them. Draws of what is
 * filled up are those of elements behind the last one of the tensor. */
static void transform(const struct pass *p, struct gathered *g, int64_t pitch, int64_t row, int64_t rows, int64_t n,
                      int64_t padded) {
    const int64_t left = ceil_to(p->k, FL_HADAMARD) - p->k; /* in the whole tensor, of each row */
    for (int64_t r = 0; r < rows && n < padded; r++) {
        memset(g->x + r * pitch + n, 0, (size_t)(padded - n) * sizeof *g->x);
        for (int64_t j = n; j < padded && draws_for(p); j++)
            g->draws[r * pitch + j] = fl_philox_draw(p->rounding.key, p->rounding.write,
                                                     p->outer * p->k * p->inner + (row + r) * left + (j - n));
    }
    p->kernels->hadamard(g->x, pitch, rows, (int)padded, p->signs);
}

/* Rows that are together in the source. */
static void run_contiguous(const struct pass *p, int64_t row, int64_t rows, int64_t first, int64_t n,
                           struct fl_block_found *found) {
    struct gathered g;
    const int64_t k = p->k, offset = first * p->out->block;
    const int64_t padded = p->format->hadamard ? ceil_to(n, FL_HADAMARD) : n;
    const bool gathers = p->format->hadamard || draws_for(p);
    const int64_t step = gathers ? SCRATCH / padded : rows; /* a range is at most SCRATCH */
    for (int64_t r = 0; r < rows; r += step) {
        const int64_t some = smaller(step, rows - r);
        const float *x = p->x + (row + r) * k + offset;
        if (!gathers) {
            run_rows(p, x, NULL, k, row + r, some, first, n, found);
            continue;
        }
        const bool together = padded == k;
        for (int64_t i = 0; i < some && p->format->hadamard; i++)
            memcpy(g.x + i * padded, x + i * k, (size_t)n * sizeof *x);
        for (int64_t i = 0; i < (together ? 1 : some) && draws_for(p); i++)
            p->kernels->draw(&p->rounding, (row + r + i) * k + offset, together ? some * k : n, g.draws + i * padded);
        if (p->format->hadamard)
            transform(p, &g, padded, row + r, some, n, padded);
        /* values that are not copied have the pitch k: one row at a time where that of the draws is another */
        if (p->format->hadamard || padded == k)
            run_rows(p, p->format->hadamard ? g.x : x, draws_for(p) ? g.draws : NULL, padded, row + r, some, first,
                     padded, found);
        else
            for (int64_t i = 0; i < some; i++)
                run_rows(p, x + i * k, g.draws + i * padded, k, row + r + i, 1, first, n, found);
    }
}

/* Columns column, column + 1, ... of matrix o, a block at a time. */
static void run_strided(const struct pass *p, int64_t o, int64_t column, int64_t columns, int64_t first, int64_t end,
                        struct fl_block_found *found) {
    struct gathered g;
    uint32_t drawn[COLUMNS];
    const int64_t block = p->out->block, pitch = p->out->width + PITCH_MORE;
    for (int64_t b = first; b < end; b++) {
        const int64_t n = smaller(block, p->k - b * block), at = (o * p->k + b * block) * p->inner + column;
        const int64_t padded = p->format->hadamard ? ceil_to(n, FL_HADAMARD) : n;
        p->kernels->transpose((const uint32_t *)(const void *)(p->x + at), p->inner, (int)n, (int)columns,
                              (uint32_t *)(void *)g.x, pitch);
        for (int64_t i = 0; i < n && draws_for(p); i++) {
            p->kernels->draw(&p->rounding, at + i * p->inner, columns, drawn);
            for (int64_t j = 0; j < columns; j++)
                g.draws[j * pitch + i] = drawn[j];
        }
        if (p->format->hadamard)
            transform(p, &g, pitch, o * p->inner + column, columns, n, padded);
        run_rows(p, g.x, draws_for(p) ? g.draws : NULL, pitch, o * p->inner + column, columns, b, padded, found);
    }
}

static void run_part(void *context, int part, int worker) {
    struct pass *p = context;
    const int64_t first = part % p->ranges * p->range, end = smaller(first + p->range, p->out->blocks);
    const int64_t chunk = part / p->ranges, block = p->out->block;
    struct fl_block_found found = nothing;
    if (p->inner == 1) {
        const int64_t row = chunk * p->chunk, n = smaller(end * block, p->k) - first * block;
        run_contiguous(p, row, smaller(p->chunk, p->outer - row), first, n, &found);
    } else {
        const int64_t column = chunk % p->chunks * p->chunk;
        run_strided(p, chunk / p->chunks, column, smaller(p->chunk, p->inner - column), first, end, &found);
    }
    join(&p->found[worker], &found);
}

/* Runs all parts, whatever the number of threads the same ones. */
static struct fl_block_found run_pass(struct pass *p, bool measures) {
    const int64_t block = p->out->block, blocks = p->out->blocks;
    p->measures = measures;
    for (int i = 0; i < FL_MAX_THREADS; i++)
        p->found[i] = nothing;
    int64_t parts;
    if (p->inner == 1) {
        p->range = smaller(blocks, SCRATCH / block);
        p->chunk = PART / smaller(p->k, p->range * block);
        p->chunks = parts = (p->outer + p->chunk - 1) / p->chunk;
    } else {
        p->chunk = smaller(COLUMNS, SCRATCH / p->out->width);
        p->chunk = smaller(p->chunk, p->inner);
        p->range = smaller(blocks, 1 + PART / (p->chunk * block));
        p->chunks = (p->inner + p->chunk - 1) / p->chunk;
        parts = p->chunks * p->outer;
    }
    p->ranges = (blocks + p->range - 1) / p->range;
    fl_parallel((int)(parts * p->ranges), run_part, p);
    struct fl_block_found all = nothing;
    for (int i = 0; i < FL_MAX_THREADS; i++)
        join(&all, &p->found[i]);
    return all;
}

/* Every block of a square takes the largest maximum of the square's. Returns the largest finite one of all. */
static uint32_t join_squares(struct fl_block_rows *out, const struct fl_block_how *how) {
    const int64_t side = out->format->block, blocks = out->blocks;
    const int64_t step = how->square_step ? how->square_step : 1;
    const int64_t length = how->square_length ? how->square_length : out->rows / step;
    uint32_t maximum = 0;
    for (int64_t h = 0; h < out->rows / (length * step); h++)
        for (int64_t i = 0; i < length; i += side)
            for (int64_t l = 0; l < step; l++) {
                uint32_t *const first = out->maxima + ((h * length + i) * step + l) * blocks;
                const int64_t count = smaller(side, length - i), pitch = step * blocks;
                for (int64_t b = 0; b < blocks; b++) {
                    uint32_t most = 0;
                    for (int64_t r = 0; r < count; r++)
                        most = first[r * pitch + b] > most ? first[r * pitch + b] : most;
                    for (int64_t r = 0; r < count; r++)
                        first[r * pitch + b] = most;
                    maximum = most < 0x7f800000 && most > maximum ? most : maximum;
                }
            }
    return maximum;
}

/* Every block of a channel takes the largest maximum of the channel's. */
static void join_channels(struct fl_block_rows *out, const struct fl_block_how *how) {
    const int64_t blocks = out->blocks, length = how->channel_length ? how->channel_length : 1,
                  step = how->channel_step ? how->channel_step : 1;
    for (int64_t h = 0; h < out->rows / (length * step); h++)
        for (int64_t l = 0; l < step; l++) {
            uint32_t *const first = out->maxima + (h * length * step + l) * blocks;
            uint32_t most = 0;
            for (int64_t i = 0; i < length; i++)
                for (int64_t b = 0; b < blocks; b++)
                    most = first[i * step * blocks + b] > most ? first[i * step * blocks + b] : most;
            for (int64_t i = 0; i < length; i++)
                for (int64_t b = 0; b < blocks; b++)
                    first[i * step * blocks + b] = most;
        }
}

static const struct fl_block_kernels *choose_kernels(void) {
    enum fl_backend cap;
    if (fl_backend_cap(&cap))
        return &fl_block_portable;
#ifdef FL_HAVE_AVX512
    if (cap >= FL_AVX512BW && fl_backend_runs(FL_AVX512BW))
        return &fl_block_avx512bw;
#endif
#ifdef FL_HAVE_AVX2
    if (cap >= FL_AVX2 && fl_backend_runs(FL_AVX2))
        return &fl_block_avx2;
#endif
    return &fl_block_portable;
}

void fl_block_quantise(const struct fl_block_format *format, const float *x, int64_t outer, int64_t k, int64_t inner,
                       const struct fl_block_how *how, struct fl_block_rows *out) {
    static const struct fl_block_how usual;
    how = how ? how : &usual;
    out->least_exponent = FL_BLOCK_NAN, out->most_exponent = FL_BLOCK_ZERO;
    out->has_nan = false, out->saturated = out->flushed = 0;
    if (!out->rows || !k)
        return;
    struct pass p = {.kernels = choose_kernels(),
                     .format = format,
                     .x = x,
                     .outer = outer,
                     .k = k,
                     .inner = inner,
                     .rounding = {.mode = TENSOR_ROUND_STOCHASTIC, .key = how->key, .write = how->write},
                     .signs = format->hadamard ? fl_block_signs(how->signs) : 0,
                     .out = out};
    if (out->maxima) {
        const struct fl_block_found found = run_pass(&p, true);
        const uint32_t maximum = format->square ? join_squares(out, how) : found.maximum;
        if (!format->block)
            join_channels(out, how);
        out->tensor_scale = format->e4m3_scales ? fl_block_tensor_scale(maximum) : 1;
    }
    const struct fl_block_found found = run_pass(&p, false);
    out->least_exponent = found.least;
    out->most_exponent = found.most;
    out->has_nan = found.has_nan;
    out->saturated = found.saturated;
    out->flushed = found.flushed;
}

double fl_block_value(const struct fl_block_rows *rows, int64_t r, int64_t j) {
    const int64_t block = rows->block, at = r * rows->blocks + j / block, i = at * rows->width + j % block;
    const double element = rows->bytes ? (double)rows->bytes[i] : (double)rows->floats[i];
    return element * fl_block_scale(rows, at) * (rows->significands ? rows->tensor_scale : 1);
}
