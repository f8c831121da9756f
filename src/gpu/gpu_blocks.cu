// gpu_blocks.cu - operands in blocks, and the exact sums of their products: the rules of src/blocks, by a thread for
// each block and for each result.
#include "gpu/gpu_blocks.h"
#include "blocks/block_rules.h"
#include "blocks/block_sum.h"
#include "core/arithmetic/exact_rules.h"
#include "core/arithmetic/stochastic.h"
#include "gpu/gpu_calls.h"

// --- operands --------------------------------------------------------------------------------------------------------

// A block of a row: its elements, and where they lie in the tensor.
struct block_place {
    int64_t row, outer, inner; // the row has the column `inner` of matrix `outer`
    int64_t first;             // along k
    int n;                     // elements of the tensor
    int padded;                // those that are quantised
};

__device__ static struct block_place place_of(const struct fl_gpu_block_operand &o, int64_t at) {
    const int block = o.format.block;
    const int64_t number = at % o.out.blocks, left = o.source.k - number * block;
    struct block_place p;
    p.row = at / o.out.blocks;
    p.outer = p.row / o.source.inner;
    p.inner = p.row % o.source.inner;
    p.first = number * block;
    p.n = (int)(left < block ? left : block);
    p.padded = o.format.hadamard ? (p.n + FL_HADAMARD - 1) / FL_HADAMARD * FL_HADAMARD : p.n;
    return p;
}

__device__ static int64_t index_of(const struct fl_gpu_block_operand &o, const struct block_place &p, int j) {
    return (p.outer * o.source.k + p.first + j) * o.source.inner + p.inner;
}

// Values j ... j + FL_HADAMARD - 1 of a block, transformed if the format says so; those behind the last one are 0.
__device__ static void values_of(const struct fl_gpu_block_operand &o, const struct block_place &p, uint32_t signs,
                                 int j, float *x) {
    for (int i = 0; i < FL_HADAMARD; i++)
        x[i] = j + i < p.n ? (float)((const double *)o.from.to)[index_of(o, p, j + i)] : 0;
    if (o.format.hadamard)
        fl_block_transform(x, signs);
}

__device__ static uint32_t maximum_of(const struct fl_gpu_block_operand &o, const struct block_place &p,
                                      uint32_t signs) {
    uint32_t most = 0;
    for (int j = 0; j < p.padded; j += FL_HADAMARD) {
        float x[FL_HADAMARD];
        values_of(o, p, signs, j, x);
        for (int i = 0; i < FL_HADAMARD; i++) {
            const uint32_t size = fl_block_word(x[i]) & FL_BLOCK_SIGN_OFF;
            most = size > most ? size : most;
        }
    }
    return most;
}

__device__ static void note_maximum(const struct fl_gpu_block_operand &o, uint32_t most) {
    if (most < FL_BLOCK_FIELD && most)
        atomicMax(o.maximum, most);
}

__global__ void find_maxima(const struct gpu_control *control, const struct fl_gpu_block_operand o, uint32_t signs) {
    gpu_each(control, o.out.rows * o.out.blocks, [&](int64_t at) {
        const uint32_t most = maximum_of(o, place_of(o, at), signs);
        o.out.maxima[at] = most;
        if (!o.format.square)
            note_maximum(o, most);
    });
}

// Every block of a square takes the largest maximum of the square's; a thread for each square.
__global__ void join_squares(const struct gpu_control *control, const struct fl_gpu_block_operand o) {
    const int64_t side = o.format.block, blocks = o.out.blocks, step = o.source.square_step ? o.source.square_step : 1,
                  length = o.source.square_length ? o.source.square_length : o.out.rows / step,
                  squares = (length + side - 1) / side, all = o.out.rows / (length * step) * squares * step * blocks;
    gpu_each(control, all, [&](int64_t i) {
        const int64_t b = i % blocks, l = i / blocks % step, square = i / (blocks * step) % squares,
                      h = i / (blocks * step * squares), left = length - square * side,
                      count = left < side ? left : side, pitch = step * blocks;
        uint32_t *const first = o.out.maxima + ((h * length + square * side) * step + l) * blocks + b;
        uint32_t most = 0;
        for (int64_t r = 0; r < count; r++)
            most = first[r * pitch] > most ? first[r * pitch] : most;
        for (int64_t r = 0; r < count; r++)
            first[r * pitch] = most;
        note_maximum(o, most);
    });
}

__device__ static float tensor_scale_of(const struct fl_gpu_block_operand &o) {
    return o.format.e4m3_scales ? fl_block_tensor_scale(*o.maximum) : 1;
}

__device__ static void clear(const struct fl_block_rows &out, int64_t at, int first) {
    for (int j = first; j < out.width; j++)
        if (out.bytes)
            out.bytes[at * out.width + j] = 0;
        else
            out.floats[at * out.width + j] = 0;
}

// The draw of element j. Elements that fill up a transform have those behind the last one of the tensor.
__device__ static uint32_t draw_of(const struct fl_gpu_block_operand &o, const struct block_place &p, uint64_t write,
                                   int j) {
    const int64_t left = (o.source.k + FL_HADAMARD - 1) / FL_HADAMARD * FL_HADAMARD - o.source.k;
    const int64_t at =
        j < p.n ? index_of(o, p, j) : o.source.outer * o.source.k * o.source.inner + p.row * left + (j - p.n);
    return fl_philox_draw(o.key, write, at);
}

__device__ static void put_elements(const struct fl_gpu_block_operand &o, const struct block_place &p, uint32_t signs,
                                    uint64_t write, int exponent, double scale, int64_t at) {
    const struct fl_block_format &f = o.format;
    const struct fl_block_grid g = fl_block_grid_of(&f);
    const float by = fl_block_power(-exponent);
    const double inverse = 1 / scale;
    float ties[FL_E2M1_TIES];
    struct fl_block_counts unused = {0, 0};
    int8_t *const bytes = o.out.bytes ? o.out.bytes + at * o.out.width : NULL;
    float *const floats = o.out.floats ? o.out.floats + at * o.out.width : NULL;
    if (f.e4m3_scales)
        fl_block_e2m1_ties(scale, ties);
    for (int j = 0; j < p.padded; j += FL_HADAMARD) {
        float x[FL_HADAMARD];
        values_of(o, p, signs, j, x);
        for (int i = 0; i < FL_HADAMARD && j + i < p.padded; i++) {
            const uint32_t word = fl_block_word(x[i]);
            const float size = fl_block_float(word & FL_BLOCK_SIGN_OFF);
            if (f.stochastic) {
                const double u = f.e4m3_scales ? size / scale : size * inverse;
                fl_block_put(&g, f.bytes, x[i],
                             (float)fl_round_by_draw(u, draw_of(o, p, write, j + i), g.digits, g.least_double), j + i,
                             bytes, floats, &unused);
            } else if (f.e4m3_scales) {
                const int32_t steps = fl_block_e2m1(size, ties);
                bytes[j + i] = (int8_t)(word >> 31 ? -steps : steps);
            } else {
                fl_block_put(&g, f.bytes, x[i], fl_block_nearest(&g, f.element.kind == FL_ELEMENT_INTEGER, x[i], by),
                             j + i, bytes, floats, &unused);
            }
        }
    }
    clear(o.out, at, p.padded);
}

__global__ void quantise(const struct gpu_call call, const struct fl_gpu_block_operand o, uint32_t signs) {
    const float tensor_scale = tensor_scale_of(o);
    gpu_each(call.control, o.out.rows * o.out.blocks, [&](int64_t at) {
        const struct block_place p = place_of(o, at);
        const uint32_t most = o.out.maxima ? o.out.maxima[at] : maximum_of(o, p, signs);
        const bool is_number = most && most < FL_BLOCK_FIELD;
        int exponent = 0, significand = 1;
        if (is_number && o.format.e4m3_scales)
            significand = fl_block_e4m3_scale(fl_block_float(most), tensor_scale, &exponent);
        else if (is_number)
            exponent = fl_block_exponent(&o.format, most);
        const bool has_elements = is_number && significand;
        o.out.exponents[at] = (int16_t)(has_elements             ? exponent
                                        : most >= FL_BLOCK_FIELD ? (int)FL_BLOCK_NAN
                                                                 : (int)FL_BLOCK_ZERO);
        if (o.out.significands)
            o.out.significands[at] = (uint8_t)(has_elements ? significand : 0);
        if (has_elements)
            put_elements(o, p, signs, call.slot->writes, exponent,
                         (double)fl_block_power(exponent) * significand * tensor_scale, at);
        else
            clear(o.out, at, 0);
    });
}

__global__ void find_rows(const struct gpu_control *control, const struct fl_gpu_block_operand o) {
    gpu_each(control, o.out.rows, [&](int64_t row) {
        struct fl_gpu_row r = {FL_BLOCK_NAN, FL_BLOCK_ZERO, false};
        for (int64_t b = 0; b < o.out.blocks; b++) {
            const int16_t exponent = o.out.exponents[row * o.out.blocks + b];
            if (exponent == FL_BLOCK_NAN) {
                r.has_nan = true;
            } else if (exponent != FL_BLOCK_ZERO) {
                r.least = exponent < r.least ? exponent : r.least;
                r.most = exponent > r.most ? exponent : r.most;
            }
        }
        o.rows[row] = r;
    });
}

// --- sums ------------------------------------------------------------------------------------------------------------

struct block_pair {
    const struct fl_gpu_block_operand *a, *b;
    int64_t row, column; // -1: zeros
};

// Where a result stands in its product.
struct block_result {
    int64_t problem, row, column, to;
};

__device__ static struct block_result result_of(const struct fl_block_matrices &m, int64_t i) {
    struct block_result r;
    r.problem = i / (m.m * m.n);
    r.row = i % (m.m * m.n) / m.n;
    r.column = i % m.n;
    r.to = fl_block_first_result(&m, r.problem) + r.row * m.pitch + r.column;
    return r;
}

// What a result reads, and where: an exponent that no product of its blocks is below, and the largest.
struct block_extent {
    int least, most;
    bool has_nan, has_products;
};

__device__ static void rows_of(const struct fl_block_matrices &m, const struct block_result &r, int64_t piece,
                               struct block_pair *pair) {
    fl_block_rows_of_a(&m, r.problem, r.row, 1, piece, &pair->row);
    fl_block_rows_of_b(&m, r.problem, r.column, 1, piece, &pair->column);
}

__device__ static void extend(const struct block_pair &pair, struct block_extent *to) {
    const struct fl_gpu_row nothing = {FL_BLOCK_NAN, FL_BLOCK_ZERO, false};
    const struct fl_gpu_row a = pair.row < 0 ? nothing : pair.a->rows[pair.row],
                            b = pair.column < 0 ? nothing : pair.b->rows[pair.column];
    to->has_nan |= a.has_nan || b.has_nan;
    if (a.least > a.most || b.least > b.most)
        return;
    const int least = a.least + b.least, most = a.most + b.most;
    to->least = to->has_products && to->least < least ? to->least : least;
    to->most = to->has_products && to->most > most ? to->most : most;
    to->has_products = true;
}

__device__ static int64_t length_of(const struct fl_block_rows &rows) {
    return rows.blocks * rows.width;
}

// Element i of a row as an integer, in units of 2^element.unit.
__device__ static int64_t integer_of(const struct fl_gpu_block_operand &o, float by, int64_t row, int64_t i) {
    const int64_t at = row * length_of(o.out) + i;
    return o.out.bytes ? o.out.bytes[at] : (int64_t)((double)o.out.floats[at] * by);
}

// The products of elements first ... end - 1, which lie in one block of each operand.
__device__ static fl_int128 dot(const struct block_pair &pair, float by_a, float by_b, int64_t first, int64_t end) {
    const struct fl_block_rows &a = pair.a->out, &b = pair.b->out;
    if (a.bytes && b.bytes && a.width % 4 == 0 && b.width % 4 == 0) {
        const int32_t *const x = (const int32_t *)(a.bytes + pair.row * length_of(a) + first);
        const int32_t *const y = (const int32_t *)(b.bytes + pair.column * length_of(b) + first);
        int32_t sum = 0; // of 1024 products of at most 127^2
        for (int i = 0; i < (int)(end - first) / 4; i++)
            sum = __dp4a(x[i], y[i], sum);
        return sum;
    }
    fl_int128 sum = 0;
    for (int64_t i = first; i < end; i++)
        sum += (fl_int128)integer_of(*pair.a, by_a, pair.row, i) * integer_of(*pair.b, by_b, pair.column, i);
    return sum;
}

struct block_segment {
    int64_t end;
    int exponent, significand; // of the product of both blocks; significand 0: it is zero
};

__device__ static struct block_segment segment_at(const struct block_pair &pair, int64_t first) {
    const struct fl_block_rows &a = pair.a->out, &b = pair.b->out;
    const int64_t in_a = first / a.width, in_b = first / b.width, at_a = pair.row * a.blocks + in_a,
                  at_b = pair.column * b.blocks + in_b, end_a = (in_a + 1) * a.width, end_b = (in_b + 1) * b.width;
    struct block_segment s;
    s.end = end_a < end_b ? end_a : end_b;
    s.exponent = a.exponents[at_a] + b.exponents[at_b];
    s.significand = s.exponent < FL_BLOCK_ZERO / 2
                        ? 0
                        : (a.significands ? a.significands[at_a] : 1) * (b.significands ? b.significands[at_b] : 1);
    return s;
}

// Adds all products of a pair of rows in units of 2^least and of the elements.
__device__ static void add_pair(const struct block_pair &pair, float by_a, float by_b, int least, fl_int128 *sum) {
    const int64_t a = length_of(pair.a->out), b = length_of(pair.b->out), length = a < b ? a : b;
    for (int64_t first = 0; first < length && pair.row >= 0 && pair.column >= 0;) {
        const struct block_segment s = segment_at(pair, first);
        if (s.significand)
            *sum += dot(pair, by_a, by_b, first, s.end) * s.significand * ((fl_int128)1 << (s.exponent - least));
        first = s.end;
    }
}

// The same in digits, which hold everything.
__device__ static struct fl_term element_of(const struct fl_gpu_block_operand &o, int64_t row, int64_t i) {
    const int64_t at = row * length_of(o.out) + i;
    struct fl_term x = {0, 0};
    if (o.out.bytes) {
        x.m = o.out.bytes[at];
        x.e = -o.format.element.unit;
    } else {
        x = fl_term_of(o.out.floats[at]);
    }
    return x;
}

__device__ static void add_pair_in_digits(const struct block_pair &pair, struct fl_block_sum *sum) {
    const int64_t a = length_of(pair.a->out), b = length_of(pair.b->out), length = a < b ? a : b;
    for (int64_t first = 0; first < length && pair.row >= 0 && pair.column >= 0;) {
        const struct block_segment s = segment_at(pair, first);
        for (int64_t i = first; i < s.end && s.significand; i++) {
            const struct fl_term x = element_of(*pair.a, pair.row, i), y = element_of(*pair.b, pair.column, i);
            if (x.m && y.m)
                fl_block_sum_add(sum, x.m * y.m * s.significand, s.exponent - x.e - y.e);
        }
        first = s.end;
    }
}

// m 2^e as a pair: the 53 leading bits, and the rest, rounded to odd.
__device__ static void end_sum(fl_int128 m, int e, double *high, double *low) {
    const fl_uint128 size = fl_magnitude_128(m);
    const int bits = fl_bits_of_128(size), cut = bits > 53 ? bits - 53 : 0;
    const fl_uint128 rest = size & (((fl_uint128)1 << cut) - 1);
    const int more = fl_bits_of_128(rest) > 53 ? fl_bits_of_128(rest) - 53 : 0;
    const double sign = m < 0 ? -1 : 1;
    *high = sign * ldexp((double)(int64_t)(size >> cut), e + cut);
    *low = sign * ldexp((double)(int64_t)fl_shift_odd((fl_int128)rest, more), e + more);
}

// Whether 126 bits hold every sum of such products, and the product with tensor scales.
__device__ static bool holds(const struct fl_gpu_blocks &t, const struct block_extent &extent) {
    int bits = fl_bits_of(t.matrices.pieces * length_of(t.in[0].out)) + extent.most - extent.least;
    for (int i = 0; i < 2; i++) {
        if (t.in[i].format.element.integer_bits > 32)
            return false;
        bits += t.in[i].format.element.integer_bits + (t.in[i].format.e4m3_scales ? 4 + 24 : 0);
    }
    return bits <= 126;
}

// A sum as integers of 128 bits.
__device__ static void sum_of_integers(const struct fl_gpu_blocks &t, const struct fl_block_matrices &m,
                                       const struct block_result &r, const struct block_extent &extent, double *high,
                                       double *low) {
    struct block_pair pair = {&t.in[0], &t.in[1], 0, 0};
    const int unit_a = t.in[0].format.element.unit, unit_b = t.in[1].format.element.unit;
    const float by_a = fl_block_power(-unit_a), by_b = fl_block_power(-unit_b);
    fl_int128 sum = 0;
    for (int64_t piece = 0; extent.has_products && piece < m.pieces; piece++) {
        rows_of(m, r, piece, &pair);
        add_pair(pair, by_a, by_b, extent.least, &sum);
    }
    int e = extent.least + unit_a + unit_b;
    for (int i = 0; i < 2; i++)
        if (t.in[i].format.e4m3_scales) {
            const struct fl_term scale = fl_term_of(tensor_scale_of(t.in[i]));
            sum *= scale.m;
            e -= scale.e;
        }
    end_sum(sum, e, high, low);
}

// Sums that integers of 128 bits do not hold are left to sum_in_digits: `low` is NaN.
__global__ void sum_products(const struct gpu_call call, const struct fl_gpu_blocks t) {
    struct fl_block_matrices m = t.matrices;
    m.args = &call.args;
    gpu_each(call.control, t.count, [&](int64_t i) {
        const struct block_result r = result_of(m, i);
        struct block_pair pair = {&t.in[0], &t.in[1], 0, 0};
        struct block_extent extent = {0, 0, false, false};
        for (int64_t piece = 0; piece < m.pieces; piece++) {
            rows_of(m, r, piece, &pair);
            extend(pair, &extent);
        }
        double high = (double)NAN, low = extent.has_nan ? 0 : (double)NAN;
        if (!extent.has_nan && holds(t, extent))
            sum_of_integers(t, m, r, extent, &high, &low);
        t.high[r.to] = high;
        t.low[r.to] = low;
    });
}

__global__ void sum_in_digits(const struct gpu_call call, const struct fl_gpu_blocks t) {
    struct fl_block_matrices m = t.matrices;
    m.args = &call.args;
    gpu_each(call.control, t.count, [&](int64_t i) {
        const struct block_result r = result_of(m, i);
        if (t.low[r.to] == t.low[r.to])
            return;
        struct block_pair pair = {&t.in[0], &t.in[1], 0, 0};
        struct fl_block_sum sum;
        fl_block_sum_begin(&sum);
        for (int64_t piece = 0; piece < m.pieces; piece++) {
            rows_of(m, r, piece, &pair);
            add_pair_in_digits(pair, &sum);
        }
        for (int j = 0; j < 2; j++)
            if (t.in[j].format.e4m3_scales)
                fl_block_sum_scale(&sum, tensor_scale_of(t.in[j]));
        fl_block_sum_end(&sum, &t.high[r.to], &t.low[r.to]);
    });
}

// --- mantissas whose products have a result of another format --------------------------------------------------------

__device__ static const int16_t *mantissas_of(const struct fl_gpu_block_operand &o, int64_t row) {
    const struct fl_block_source &s = o.source;
    return (const int16_t *)o.from.view.data + row / s.inner * s.k * s.inner + row % s.inner;
}

__device__ static int64_t add_mantissas(const struct block_pair &pair) {
    const int64_t step_a = pair.a->source.inner, step_b = pair.b->source.inner;
    int64_t sum = 0;
    if (pair.row < 0 || pair.column < 0)
        return 0;
    const int16_t *const x = mantissas_of(*pair.a, pair.row), *const y = mantissas_of(*pair.b, pair.column);
    for (int64_t k = 0; k < pair.a->source.k; k++)
        sum += (int32_t)x[k * step_a] * y[k * step_b];
    return sum;
}

// A thread for some pieces of a result, `parts` of them; the sums are integers, which begin at 0.
__global__ void sum_mantissas(const struct gpu_call call, const struct fl_gpu_blocks t, int64_t parts,
                              unsigned long long *sums) {
    struct fl_block_matrices m = t.matrices;
    m.args = &call.args;
    gpu_each(call.control, t.count * parts, [&](int64_t i) {
        const struct block_result r = result_of(m, i / parts);
        struct block_pair pair = {&t.in[0], &t.in[1], 0, 0};
        int64_t sum = 0;
        for (int64_t piece = i % parts; piece < m.pieces; piece += parts) {
            rows_of(m, r, piece, &pair);
            sum += add_mantissas(pair);
        }
        atomicAdd(&sums[r.to], (unsigned long long)sum);
    });
}

__global__ void end_mantissas(const struct gpu_call call, const struct fl_gpu_blocks t) {
    const int e = fl_exponent(&call.args.in[0]) + fl_exponent(&call.args.in[1]);
    gpu_each(call.control, t.count,
             [&](int64_t i) { end_sum((fl_int128)__double_as_longlong(t.high[i]), -e, &t.high[i], &t.low[i]); });
}

// --- a task ----------------------------------------------------------------------------------------------------------

static cudaError_t to_doubles(const struct fl_gpu_numbers &from, cudaStream_t stream) {
    if (!from.view.data)
        return cudaSuccess;
    struct fl_source source;
    memset(&source, 0, sizeof source);
    source.format = from.format;
    source.view = from.view;
    return gpu_numbers_to_doubles(&source, from.is_made ? &from.made : NULL, from.view.count, (double *)from.to,
                                  stream);
}

static cudaError_t take_operand(const struct gpu_call *call, const struct fl_gpu_block_operand &o, uint32_t signs,
                                cudaStream_t stream) {
    const unsigned blocks = gpu_blocks(o.out.rows * o.out.blocks);
    TRY_CUDA(to_doubles(o.from, stream));
    TRY_CUDA(cudaMemsetAsync(o.maximum, 0, sizeof *o.maximum, stream));
    if (o.out.maxima)
        TRY_CUDA(gpu_launch(find_maxima, blocks, GPU_THREADS, 0, stream, call->control, o, signs));
    if (o.format.square)
        TRY_CUDA(gpu_launch(join_squares, blocks, GPU_THREADS, 0, stream, call->control, o));
    TRY_CUDA(gpu_launch(quantise, blocks, GPU_THREADS, 0, stream, *call, o, signs));
    return gpu_launch(find_rows, gpu_blocks(o.out.rows), GPU_THREADS, 0, stream, call->control, o);
}

static cudaError_t multiply_mantissas(const struct gpu_call *call, const struct fl_gpu_blocks *t, cudaStream_t stream) {
    const int64_t pieces = t->matrices.pieces, parts = pieces < 32 ? pieces : 32;
    TRY_CUDA(cudaMemsetAsync(t->high, 0, (size_t)t->count * sizeof *t->high, stream));
    TRY_CUDA(gpu_launch(sum_mantissas, gpu_blocks(t->count * parts), GPU_THREADS, 0, stream, *call, *t, parts,
                        (unsigned long long *)t->high));
    return gpu_launch(end_mantissas, gpu_blocks(t->count), GPU_THREADS, 0, stream, *call, *t);
}

cudaError_t gpu_sum_blocks(const struct gpu_call *call, const struct fl_gpu_blocks *blocks, cudaStream_t stream) {
    for (int i = 0; i < FL_GPU_ADDENDS; i++)
        TRY_CUDA(to_doubles(blocks->addend[i], stream));
    if (!blocks->in[0].format.block)
        return multiply_mantissas(call, blocks, stream);
    for (int i = 0; i < 2; i++)
        TRY_CUDA(take_operand(call, blocks->in[i], blocks->signs, stream));
    TRY_CUDA(gpu_launch(sum_products, gpu_blocks(blocks->count), GPU_THREADS, 0, stream, *call, *blocks));
    return gpu_launch(sum_in_digits, gpu_blocks(blocks->count), GPU_THREADS, 0, stream, *call, *blocks);
}
