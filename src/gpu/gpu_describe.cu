// gpu_describe.cu - the elements of a tensor described and measured in shadow formats, and updates of weights measured,
// in the order of the processor (core/tensor/described.h). Elements become doubles first, some parts at a time.
#include "core/tensor/element_rules.h"
#include "core/tensor/shadowed.h"
#include "gpu/gpu_calls.h"
#include "gpu/gpu_plugin.h"

enum { TILE = FL_DESCRIBED_BLOCK, WARPS = GPU_THREADS / 32, TERMS = 4 };

// Elements first ... first + n - 1.
struct piece {
    const double *x;
    int64_t first, n;
};

// One block. Looks for the first finite element, unless an earlier piece had it.
__global__ void begin_description(const struct gpu_control *control, struct fl_described *d, const struct piece p,
                                  const int32_t *e, int64_t number) {
    __shared__ uint32_t found[WARPS];
    __shared__ double centre;
    if (control->failure.finding)
        return;
    for (int64_t *at = d->counts + threadIdx.x; p.first == 0 && at < (int64_t *)&d->centre; at += blockDim.x)
        *at = 0;
    if (threadIdx.x == 0)
        centre = p.first ? d->centre : fl_power_of_two(1023) * 2;
    __syncthreads();
    const bool known = fl_is_finite(centre);
    for (int64_t base = 0; base < p.n && !known; base += blockDim.x) {
        const int64_t i = base + threadIdx.x;
        const uint32_t place = i < p.n && fl_is_finite(p.x[i]) ? blockDim.x - threadIdx.x : 0,
                       first = __reduce_max_sync(0xffffffffu, place);
        uint32_t most = 0;
        if (threadIdx.x % 32 == 0)
            found[threadIdx.x / 32] = first;
        __syncthreads();
        for (int w = 0; w < WARPS; w++)
            most = found[w] > most ? found[w] : most;
        __syncthreads();
        if (!most)
            continue;
        if (place == most)
            centre = p.x[i];
        break;
    }
    __syncthreads();
    if (threadIdx.x)
        return;
    d->centre = centre;
    if (p.first)
        return;
    d->number = number;
    d->most = 0;
    d->least = UINT32_MAX;
    d->e = e ? *e : 0;
}

// Where an element is counted, and what of it can be the largest or the smallest. A mantissa is given with its size.
__device__ static int place_of(double x, bool shared, uint32_t *size) {
    if (shared) {
        *size = (uint32_t)(x < 0 ? -x : x);
        return *size ? 31 - __clz((int)*size) : FL_DESCRIBED_ZEROS;
    }
    const uint32_t word = fl_float_magnitude((float)x), exponent = word >> FL_DESCRIBED_SUBNORMALS;
    *size = exponent == 255 ? 0 : word;
    return !word             ? FL_DESCRIBED_ZEROS
           : exponent == 255 ? word > 0x7f800000u ? FL_DESCRIBED_NAN : FL_DESCRIBED_INFINITE
           : exponent        ? FL_DESCRIBED_SUBNORMALS + (int)exponent - 1
                             : 31 - __clz((int)word);
}

// Adds 1 to the counts of the places of a warp; place -1: none. Only the first lane writes.
__device__ static void count_places(uint32_t *counts, int place) {
    for (uint32_t left; (left = __reduce_max_sync(0xffffffffu, (uint32_t)(place + 1))) != 0;) {
        const bool here = (uint32_t)(place + 1) == left;
        const uint32_t count = __reduce_add_sync(0xffffffffu, (uint32_t)here);
        if (threadIdx.x % 32 == 0)
            counts[left - 1] += count;
        place = here ? -1 : place;
    }
}

// The term of number x in sum `which`.
__device__ static double term_of(double x, double centre, int which) {
    const double d = x - centre;
    return which == 0 ? d : which == 1 ? d * d : which == 2 ? (x < 0 ? -x : x) : x * x;
}

__device__ static double sum_of_lanes(const double *lane) {
    double sum = 0;
    for (int l = 0; l < FL_DESCRIBED_LANES; l++)
        sum += lane[l];
    return sum;
}

// A block for each part. Threads of the first warp add the doubles of one lane to one sum.
__global__ void describe_elements(const struct gpu_control *control, struct fl_described *d, const struct piece p,
                                  int64_t share, bool shared) {
    __shared__ double tile[TILE], sums[TERMS][FL_DESCRIBED_LANES];
    __shared__ uint32_t counts[WARPS][FL_DESCRIBED_COUNTS];
    if (control->failure.finding)
        return;
    const int64_t first = blockIdx.x * share, part = p.first / share + blockIdx.x,
                  n = p.n - first < share ? p.n - first : share;
    const int lane = threadIdx.x % FL_DESCRIBED_LANES, which = threadIdx.x / FL_DESCRIBED_LANES,
              warp = threadIdx.x / 32;
    const double centre = d->centre, scale = shared ? fl_power_of_two(d->e) : 1;
    uint32_t most = 0, least = UINT32_MAX;
    unsigned long long whole = 0, sizes = 0, squares = 0;
    double sum = 0;
    for (int i = threadIdx.x; i < WARPS * FL_DESCRIBED_COUNTS; i += blockDim.x)
        counts[0][i] = 0;
    for (int64_t base = 0; base < n; base += TILE) {
        const int here = n - base < TILE ? (int)(n - base) : TILE;
        __syncthreads();
        for (int k = 0; k < TILE; k += GPU_THREADS) {
            const int i = k + (int)threadIdx.x;
            uint32_t size = 0;
            int place = -1;
            if (i < here) {
                const double x = p.x[first + base + i] * scale;
                tile[i] = x;
                place = place_of(x, shared, &size);
                whole += shared ? (unsigned long long)(int64_t)x : 0;
                sizes += shared ? size : 0;
                squares += shared ? (unsigned long long)size * size : 0;
                most = size > most ? size : most;
                least = size - 1 < least ? size - 1 : least;
            }
            count_places(counts[warp], place);
        }
        __syncthreads();
        for (int i = lane; which < TERMS && !shared && i < here; i += FL_DESCRIBED_LANES)
            if (fl_is_finite(tile[i]))
                sum += term_of(tile[i], centre, which);
    }
    if (which < TERMS)
        sums[which][lane] = sum;
    __syncthreads();
    if (which < TERMS && lane == 0 && !shared)
        d->sums[part][which] = sum_of_lanes(sums[which]);
    for (int i = threadIdx.x; i < FL_DESCRIBED_COUNTS; i += blockDim.x) {
        unsigned long long count = 0;
        for (int w = 0; w < WARPS; w++)
            count += counts[w][i];
        if (count)
            atomicAdd((unsigned long long *)&d->counts[i], count);
    }
    if (shared) {
        atomicAdd((unsigned long long *)&d->whole[part], whole);
        atomicAdd((unsigned long long *)&d->sizes[part], sizes);
        atomicAdd((unsigned long long *)&d->squares[part], squares);
    }
    atomicMax(&d->most, most);
    atomicMin(&d->least, least);
}

// A thread for each state. measured: of each, which becomes empty; NULL: none.
__global__ void follow_writes(const struct gpu_control *control, struct fl_shadowed *states,
                              struct fl_measured *measured, int64_t count) {
    if (control->failure.finding)
        return;
    for (int64_t i = gpu_first(); i < count; i += gpu_stride()) {
        fl_shadow_follow(&states[i]);
        if (!measured)
            continue;
        measured[i].infinite = measured[i].saturated = measured[i].flushed = measured[i].nonfinite = 0;
        measured[i].e = states[i].shared ? states[i].a.e : 0;
        measured[i].writes = states[i].slot->writes;
        measured[i].maximum = states[i].slot->last.maximum;
    }
}

// What a shadow format makes of x, rounded to nearest; made: its conversions at exponent e.
__device__ static double stored_as(const struct fl_gpu_shadow &rule, const struct fl_minifloat &made, int e, double x,
                                   struct fl_stats *stats) {
    if (rule.kind == FL_GPU_SHADOW_MANTISSAS)
        return fl_put_number(x, x, e, rule.top, NULL, stats) * fl_power_of_two(-e);
    const float f = rule.kind == FL_GPU_SHADOW_BINARY32 ? (float)x : fl_odd_float(x);
    const uint32_t size = fl_float_magnitude(f);
    fl_count_lost(x, f, stats);
    if (rule.kind == FL_GPU_SHADOW_BINARY32) {
        fl_count_float(f, size >= 0x7f800000u, stats);
        return (double)f;
    }
    fl_minifloat_count(&made, f, size >= made.overflow, stats);
    stats->flushed += size - 1u < made.flush; // zero wraps around
    return (double)fl_minifloat_decode(&made, fl_minifloat_encode(&made, f));
}

__device__ static void add_count(int64_t *to, int64_t count) {
    if (count)
        atomicAdd((unsigned long long *)to, (unsigned long long)count);
}

// A block for each part, as above. Elements that do not stay finite add 0 to both sums.
__global__ void measure_elements(const struct gpu_control *control, struct fl_measured *m, const struct piece p,
                                 int64_t share, const struct fl_gpu_shadow rule) {
    enum { SUMS = 2 };
    __shared__ double tile[SUMS][TILE], sums[SUMS][FL_DESCRIBED_LANES];
    if (control->failure.finding)
        return;
    const int64_t first = blockIdx.x * share, part = p.first / share + blockIdx.x,
                  n = p.n - first < share ? p.n - first : share;
    const int lane = threadIdx.x % FL_DESCRIBED_LANES, which = threadIdx.x / FL_DESCRIBED_LANES, e = m->e;
    const struct fl_minifloat made = fl_minifloat_under(&rule.made, e);
    struct fl_stats stats = {};
    int64_t infinite = 0;
    double sum = 0;
    for (int64_t base = 0; base < n; base += TILE) {
        const int here = n - base < TILE ? (int)(n - base) : TILE;
        __syncthreads();
        for (int i = threadIdx.x; i < here; i += blockDim.x) {
            const double x = p.x[first + base + i], error = stored_as(rule, made, e, x, &stats) - x;
            const bool finite = fl_is_finite(x) && fl_is_finite(error);
            tile[0][i] = finite ? error : 0;
            tile[1][i] = finite ? x : 0;
            infinite += !finite;
        }
        __syncthreads();
        for (int i = lane; which < SUMS && i < here; i += FL_DESCRIBED_LANES)
            sum += tile[which][i] * tile[which][i];
    }
    if (which < SUMS)
        sums[which][lane] = sum;
    __syncthreads();
    if (which < SUMS && lane == 0)
        m->sums[part][which] = sum_of_lanes(sums[which]);
    add_count(&m->infinite, infinite);
    add_count(&m->saturated, stats.saturated);
    add_count(&m->flushed, stats.flushed);
    add_count(&m->nonfinite, stats.nonfinite);
}

// One block. The two sums are serial, in the order of the elements: each has a thread.
__global__ void compare_values(const struct gpu_control *control, struct fl_moved *m, const double *before,
                               const struct piece p, int64_t number) {
    __shared__ double was[TILE], step[TILE];
    if (control->failure.finding)
        return;
    const bool adds_steps = threadIdx.x == 0, adds_sizes = threadIdx.x == 32;
    const double *const mine = adds_steps ? step : was;
    double sum = 0;
    int64_t moved = 0;
    if (p.first && adds_steps) {
        sum = m->step;
        moved = m->moved;
    } else if (p.first && adds_sizes) {
        sum = m->size;
    }
    for (int64_t base = 0; base < p.n; base += TILE) {
        const int n = p.n - base < TILE ? (int)(p.n - base) : TILE;
        __syncthreads();
        for (int i = threadIdx.x; i < n; i += blockDim.x) {
            was[i] = before[p.first + base + i];
            step[i] = p.x[base + i] - was[i];
        }
        __syncthreads();
        for (int i = 0; i < n && (adds_steps || adds_sizes); i++) {
            sum += mine[i] * mine[i];
            moved += mine[i] != 0;
        }
    }
    if (adds_steps) {
        m->step = sum;
        m->moved = moved;
        m->number = number;
    } else if (adds_sizes) {
        m->size = sum;
    }
}

__global__ void wide_to_doubles(const struct fl_view view, bool whole, double *values) {
    const double unit = fl_power_of_two(-fl_exponent(&view) - 16);
    for (int64_t i = gpu_first(); i < view.count; i += gpu_stride())
        values[i] = whole ? ((const int32_t *)view.wide)[i] * unit : (double)((const float *)view.wide)[i];
}

// Elements first ... first + n - 1; wide: of the wide part, if there is one.
static cudaError_t fetch(const struct fl_source *from, const struct fl_minifloat *made, int64_t first, int64_t n,
                         bool wide, double *to, cudaStream_t stream) {
    struct fl_source s = *from;
    s.view.count = n;
    s.view.data = (char *)s.view.data + first * s.format->bytes;
    if (!wide || !s.view.wide)
        return gpu_numbers_to_doubles(&s, made, n, to, stream);
    s.view.wide = (char *)s.view.wide + first * s.format->wide_bytes;
    return gpu_launch(wide_to_doubles, gpu_blocks(n), GPU_THREADS, 0, stream, s.view,
                      s.format->arithmetic == FL_ARITHMETIC_SHARED, to);
}

// A description looks for the first finite element before it begins, in all pieces.
cudaError_t gpu_examine(const struct fl_source *from, const struct fl_minifloat *made, const struct fl_examining *how,
                        struct gpu_control *control, cudaStream_t stream) {
    const struct fl_shadowing *shadows = &how->shadows;
    if (shadows->count)
        TRY_CUDA(gpu_launch(follow_writes, gpu_blocks(shadows->count), GPU_THREADS, 0, stream, control, shadows->states,
                            shadows->measured, shadows->count));
    if (!from->format)
        return cudaSuccess;
    const int64_t count = from->view.count, share = fl_described_share(count), room = fl_described_room(count);
    const bool shared = from->format->arithmetic == FL_ARITHMETIC_SHARED, describes = how->described != NULL;
    if (!describes && !how->moved)
        return fetch(from, made, 0, count, true, how->before, stream);
    for (int pass = 0; pass < (describes ? 2 : 1); pass++)
        for (int64_t first = 0; first < count; first += room) {
            const int64_t n = count - first < room ? count - first : room;
            const struct piece p = {how->numbers, first, n};
            if (!pass || room < count)
                TRY_CUDA(fetch(from, made, first, n, !describes, how->numbers, stream));
            TRY_CUDA(!describes ? gpu_launch(compare_values, 1, GPU_THREADS, 0, stream, control, how->moved,
                                             how->before, p, how->number)
                     : pass ? gpu_launch(describe_elements, (unsigned)((n + share - 1) / share), GPU_THREADS, 0, stream,
                                         control, how->described, p, share, shared)
                            : gpu_launch(begin_description, 1, GPU_THREADS, 0, stream, control, how->described, p,
                                         from->view.e, how->number));
            for (int64_t i = 0; pass && i < shadows->count; i++)
                TRY_CUDA(gpu_launch(measure_elements, (unsigned)((n + share - 1) / share), GPU_THREADS, 0, stream,
                                    control, &shadows->measured[i], p, share, how->rules[i]));
        }
    return cudaSuccess;
}
