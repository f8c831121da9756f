/* stand_in.h - CUDA emulated on a CPU, for tests: kernel sources compiled as C++17 run with CUDA's meaning
 * (src/gpu/device.h).
 *
 * The threads of a block are fibers of one OS thread; a thread runs until it reaches a barrier or a collective of its
 * warp. Blocks run one after the other, when the host waits. A seed fixes the order of lanes, warps, blocks and
 * streams, so that a missing barrier or event gives wrong results under some seed, the same ones at every run.
 *
 * Compile kernels with -ffp-contract=off and -mfma. Compiled with -fsanitize=thread (and linked without it), every load
 * and store of a kernel is checked as well (stand_in_checks.cpp).
 *
 * Environment: FLEXLAB_STAND_IN_SEED (0), FLEXLAB_STAND_IN_DEVICES (1; 0: cudaErrorNoDevice), FLEXLAB_STAND_IN_BYTES
 * (memory of each device, 1 GiB), FLEXLAB_STAND_IN_FAIL (the launch that fails; 0: none does). */
#ifndef STAND_IN_H
#define STAND_IN_H

#include "stand_in_runtime.h"
#include <cmath>
#include <cstring>
#include <memory>
#include <tuple>
#include <type_traits>

/* --- control of tests ----------------------------------------------------------------------------------------------
 */

extern "C" {
/* 0: ascending order of lanes, warps, blocks and streams; any other: a random one, which the seed fixes. */
void stand_in_seed(uint64_t seed);
/* The launch-th launch from now (1: the next) fails. Errors that CUDA finds when it runs a kernel (700 and above,
 * without 701) are reported at the next wait and persist; the launch returns all others. */
void stand_in_fail(int launch, cudaError_t error);
/* The number of errors found in kernels and in calls since the last stand_in_clear; messages: their texts, one in each
 * line. */
long stand_in_errors(void);
const char *stand_in_messages(void);
/* How often the program has waited for a device ("waits"), replayed a graph ("replays"), allocated in a stream's order
 * ("allocations"); -1: unknown word. */
long stand_in_count(const char *what);
/* Forgets the errors, including the persistent one of the device. */
void stand_in_clear(void);
/* Whether errors are printed to stderr as well (default: yes). */
void stand_in_print(bool on);
}

/* --- the language --------------------------------------------------------------------------------------------------
 */

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __grid_constant__
/* One block runs at a time, so that a static variable serves all blocks. The tag becomes a part of its symbol, by which
 * the emulation finds it (stand_in_symbols.cpp). */
#define __shared__ static __attribute__((abi_tag("gpu_shared")))

#if defined(__SANITIZE_THREAD__)
#define STAND_IN_INSTRUMENTED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define STAND_IN_INSTRUMENTED 1
#endif
#endif
#define STAND_IN_UNSEEN __attribute__((no_sanitize("thread")))

namespace stand_in {

struct Place { /* a line of source */
    const char *file;
    int line;
    static constexpr Place here(const char *f = __builtin_FILE(), int l = __builtin_LINE()) { return {f, l}; }
};

struct Thread {
    uint3 index;
    unsigned linear;
};
extern Thread *self; /* the thread that runs; NULL outside of kernels */
extern uint3 block_index;
extern dim3 block_size, grid_size;

void *dynamic_shared();
/* Queues a launch: each thread calls call(arguments). A failure becomes the last error. */
void submit(const void *kernel, dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
            void (*call)(const void *), std::shared_ptr<const void> arguments, size_t argument_bytes);
template <class Body>
static inline void launch(const void *kernel, dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
                          Body body) {
    submit(
        kernel, grid, block, shared_bytes, stream, [](const void *b) { (*(const Body *)b)(); },
        std::make_shared<const Body>(std::move(body)), sizeof body);
}

enum class Barrier { plain, any, all, count };
int barrier(Barrier kind, int value, Place at);
void fence();

enum class Collective { sync, shuffle, ballot, match, add, min, max, umin, umax, and_, or_, xor_, mma, ldmatrix };
/* Contributes `value` and waits for the lanes of mask; returns the result for this lane. source: the lane that a
 * shuffle reads. */
uint64_t collective(Collective what, unsigned mask, uint64_t value, int source, Place at);

void mma(int32_t *d, const uint32_t *a, const uint32_t *b, bool a_signed, bool b_signed, Place at);
void ldmatrix(uint32_t *r, int count, const void *row, bool trans, Place at);
void cp_async16(void *dst, const void *src, int valid);
void cp_commit();
void cp_wait(int pending);

void note_atomic(void *p, size_t bytes);

template <class To, class From> static inline To bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "the sizes differ");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

} // namespace stand_in

#define threadIdx (stand_in::self->index)
#define blockIdx (stand_in::block_index)
#define blockDim (stand_in::block_size)
#define gridDim (stand_in::grid_size)
static const int warpSize __attribute__((unused)) = 32;

/* --- barriers and fences -------------------------------------------------------------------------------------------
 */

static inline void __syncthreads(stand_in::Place at = stand_in::Place::here()) {
    stand_in::barrier(stand_in::Barrier::plain, 0, at);
}
static inline int __syncthreads_or(int p, stand_in::Place at = stand_in::Place::here()) {
    return stand_in::barrier(stand_in::Barrier::any, p, at);
}
static inline int __syncthreads_and(int p, stand_in::Place at = stand_in::Place::here()) {
    return stand_in::barrier(stand_in::Barrier::all, p, at);
}
static inline int __syncthreads_count(int p, stand_in::Place at = stand_in::Place::here()) {
    return stand_in::barrier(stand_in::Barrier::count, p, at);
}
static inline void __syncwarp(unsigned mask = 0xffffffffu, stand_in::Place at = stand_in::Place::here()) {
    stand_in::collective(stand_in::Collective::sync, mask, 0, 0, at);
}
static inline void __threadfence() {
    stand_in::fence();
}
static inline void __threadfence_block() {}
static inline void __threadfence_system() {
    stand_in::fence();
}

/* --- collectives of a warp -----------------------------------------------------------------------------------------
 */

namespace stand_in {
static inline int lane() {
    return (int)(self->linear & 31);
}
/* The value of lane `from` if `there` (it is within this lane's segment), otherwise the lane's own value. */
template <class T> static inline T shuffle(unsigned mask, T value, int from, bool there, Place at) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
    uint64_t word = 0;
    memcpy(&word, &value, sizeof value);
    word = collective(Collective::shuffle, mask, word, there ? from : lane(), at);
    memcpy(&value, &word, sizeof value);
    return value;
}
} // namespace stand_in

template <class T>
static inline T __shfl_sync(unsigned mask, T v, int source, int width = 32,
                            stand_in::Place at = stand_in::Place::here()) {
    const int first = stand_in::lane() & -width;
    return stand_in::shuffle(mask, v, first + (source & (width - 1)), true, at);
}
template <class T>
static inline T __shfl_xor_sync(unsigned mask, T v, int lanes, int width = 32,
                                stand_in::Place at = stand_in::Place::here()) {
    const int from = stand_in::lane() ^ lanes;
    return stand_in::shuffle(mask, v, from, (from & -width) <= (stand_in::lane() & -width), at);
}
template <class T>
static inline T __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32,
                                 stand_in::Place at = stand_in::Place::here()) {
    const int from = stand_in::lane() + (int)delta;
    return stand_in::shuffle(mask, v, from, (from & -width) == (stand_in::lane() & -width), at);
}
template <class T>
static inline T __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32,
                               stand_in::Place at = stand_in::Place::here()) {
    const int from = stand_in::lane() - (int)delta;
    return stand_in::shuffle(mask, v, from, from >= (stand_in::lane() & -width), at);
}
static inline unsigned __ballot_sync(unsigned mask, int p, stand_in::Place at = stand_in::Place::here()) {
    return (unsigned)stand_in::collective(stand_in::Collective::ballot, mask, p != 0, 0, at);
}
static inline int __any_sync(unsigned mask, int p, stand_in::Place at = stand_in::Place::here()) {
    return stand_in::collective(stand_in::Collective::ballot, mask, p != 0, 0, at) != 0;
}
static inline int __all_sync(unsigned mask, int p, stand_in::Place at = stand_in::Place::here()) {
    return stand_in::collective(stand_in::Collective::ballot, mask, p == 0, 0, at) == 0;
}
template <class T>
static inline unsigned __match_any_sync(unsigned mask, T v, stand_in::Place at = stand_in::Place::here()) {
    uint64_t word = 0;
    memcpy(&word, &v, sizeof v);
    return (unsigned)stand_in::collective(stand_in::Collective::match, mask, word, 0, at);
}
static inline unsigned __activemask() {
    return 1u << stand_in::lane();
}

#define STAND_IN_REDUCE(name, type, what)                                                                              \
    static inline type name(unsigned mask, type v, stand_in::Place at = stand_in::Place::here()) {                     \
        return (type)stand_in::collective(stand_in::Collective::what, mask, (uint64_t)(int64_t)v, 0, at);              \
    }
STAND_IN_REDUCE(__reduce_add_sync, unsigned, add)
STAND_IN_REDUCE(__reduce_add_sync, int, add)
STAND_IN_REDUCE(__reduce_min_sync, unsigned, umin)
STAND_IN_REDUCE(__reduce_min_sync, int, min)
STAND_IN_REDUCE(__reduce_max_sync, unsigned, umax)
STAND_IN_REDUCE(__reduce_max_sync, int, max)
STAND_IN_REDUCE(__reduce_and_sync, unsigned, and_)
STAND_IN_REDUCE(__reduce_or_sync, unsigned, or_)
STAND_IN_REDUCE(__reduce_xor_sync, unsigned, xor_)
#undef STAND_IN_REDUCE

/* --- atomics -------------------------------------------------------------------------------------------------------
 */

#ifdef STAND_IN_INSTRUMENTED
#define STAND_IN_NOTE(p) stand_in::note_atomic(p, sizeof *(p))
#else
#define STAND_IN_NOTE(p) (void)0
#endif
#define STAND_IN_ATOMIC(name, type, result)                                                                            \
    STAND_IN_UNSEEN static inline type name(type *p, type v) {                                                         \
        STAND_IN_NOTE(p);                                                                                              \
        const type old = *p;                                                                                           \
        *p = (type)(result);                                                                                           \
        return old;                                                                                                    \
    }
#define STAND_IN_CAS(type)                                                                                             \
    STAND_IN_UNSEEN static inline type atomicCAS(type *p, type expected, type v) {                                     \
        STAND_IN_NOTE(p);                                                                                              \
        const type old = *p;                                                                                           \
        if (old == expected)                                                                                           \
            *p = v;                                                                                                    \
        return old;                                                                                                    \
    }
#define STAND_IN_ATOMICS(type)                                                                                         \
    STAND_IN_ATOMIC(atomicMin, type, v < old ? v : old)                                                                \
    STAND_IN_ATOMIC(atomicMax, type, v > old ? v : old)                                                                \
    STAND_IN_ATOMIC(atomicAnd, type, old &v)                                                                           \
    STAND_IN_ATOMIC(atomicOr, type, old | v)                                                                           \
    STAND_IN_ATOMIC(atomicXor, type, old ^ v)
STAND_IN_ATOMICS(int)
STAND_IN_ATOMICS(unsigned)
STAND_IN_ATOMICS(long long)
STAND_IN_ATOMICS(unsigned long long)
STAND_IN_ATOMIC(atomicAdd, int, (unsigned)old + (unsigned)v)
STAND_IN_ATOMIC(atomicAdd, unsigned, old + v)
STAND_IN_ATOMIC(atomicAdd, unsigned long long, old + v)
STAND_IN_ATOMIC(atomicAdd, float, old + v)
STAND_IN_ATOMIC(atomicAdd, double, old + v)
STAND_IN_ATOMIC(atomicSub, int, (unsigned)old - (unsigned)v)
STAND_IN_ATOMIC(atomicSub, unsigned, old - v)
STAND_IN_ATOMIC(atomicExch, int, v)
STAND_IN_ATOMIC(atomicExch, unsigned, v)
STAND_IN_ATOMIC(atomicExch, unsigned long long, v)
STAND_IN_ATOMIC(atomicExch, float, v)
STAND_IN_ATOMIC(atomicInc, unsigned, old >= v ? 0 : old + 1)
STAND_IN_CAS(int)
STAND_IN_CAS(unsigned)
STAND_IN_CAS(unsigned long long)
#undef STAND_IN_ATOMIC
#undef STAND_IN_ATOMICS
#undef STAND_IN_CAS

/* --- integers ------------------------------------------------------------------------------------------------------
 */

static inline int __clz(int x) {
    return x ? __builtin_clz((unsigned)x) : 32;
}
static inline int __clzll(long long x) {
    return x ? __builtin_clzll((unsigned long long)x) : 64;
}
static inline int __ffs(int x) {
    return __builtin_ffs(x);
}
static inline int __ffsll(long long x) {
    return __builtin_ffsll(x);
}
static inline int __popc(unsigned x) {
    return __builtin_popcount(x);
}
static inline int __popcll(unsigned long long x) {
    return __builtin_popcountll(x);
}
static inline unsigned __brev(unsigned x) {
    unsigned r = 0;
    for (int i = 0; i < 32; i++)
        r |= (x >> i & 1) << (31 - i);
    return r;
}
static inline int __mulhi(int a, int b) {
    return (int)((int64_t)a * b >> 32);
}
static inline unsigned __umulhi(unsigned a, unsigned b) {
    return (unsigned)((uint64_t)a * b >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    __extension__ typedef unsigned __int128 wide;
    return (unsigned long long)((wide)a * b >> 64);
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((uint64_t)high << 32 | low) << (shift & 31) >> 32);
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((uint64_t)high << 32 | low) >> (shift & 31));
}
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    const uint64_t bytes = (uint64_t)y << 32 | x;
    unsigned r = 0;
    for (int i = 0; i < 4; i++) {
        const unsigned nibble = selector >> 4 * i & 15, byte = (unsigned)(bytes >> 8 * (nibble & 7)) & 255;
        r |= (nibble < 8 ? byte : byte < 128 ? 0 : 255) << 8 * i;
    }
    return r;
}
static inline int __dp4a(int a, int b, int c) {
    unsigned sum = (unsigned)c;
    for (int i = 0; i < 32; i += 8)
        sum += (unsigned)((int8_t)(a >> i) * (int8_t)(b >> i));
    return (int)sum;
}
static inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
    for (int i = 0; i < 32; i += 8)
        c += (a >> i & 255) * (b >> i & 255);
    return c;
}
#define STAND_IN_MIN_MAX(type)                                                                                         \
    static inline type min(type a, type b) {                                                                           \
        return b < a ? b : a;                                                                                          \
    }                                                                                                                  \
    static inline type max(type a, type b) {                                                                           \
        return a < b ? b : a;                                                                                          \
    }
STAND_IN_MIN_MAX(int)
STAND_IN_MIN_MAX(unsigned)
STAND_IN_MIN_MAX(long)
STAND_IN_MIN_MAX(unsigned long)
STAND_IN_MIN_MAX(long long)
STAND_IN_MIN_MAX(unsigned long long)
#undef STAND_IN_MIN_MAX
static inline float min(float a, float b) {
    return fminf(a, b);
}
static inline float max(float a, float b) {
    return fmaxf(a, b);
}
static inline double min(double a, double b) {
    return fmin(a, b);
}
static inline double max(double a, double b) {
    return fmax(a, b);
}

/* --- floating point ------------------------------------------------------------------------------------------------
 */

static inline float __fmaf_rn(float a, float b, float c) {
    return __builtin_fmaf(a, b, c);
}
static inline float __fadd_rn(float a, float b) {
    return a + b;
}
static inline float __fsub_rn(float a, float b) {
    return a - b;
}
static inline float __fmul_rn(float a, float b) {
    return a * b;
}
static inline float __fdiv_rn(float a, float b) {
    return a / b;
}
static inline float __fsqrt_rn(float a) {
    return sqrtf(a);
}
static inline float __frcp_rn(float a) {
    return 1 / a;
}
static inline double __fma_rn(double a, double b, double c) {
    return __builtin_fma(a, b, c);
}
static inline double __dadd_rn(double a, double b) {
    return a + b;
}
static inline double __dsub_rn(double a, double b) {
    return a - b;
}
static inline double __dmul_rn(double a, double b) {
    return a * b;
}
static inline double __ddiv_rn(double a, double b) {
    return a / b;
}
static inline double __dsqrt_rn(double a) {
    return sqrt(a);
}

static inline int __float_as_int(float x) {
    return stand_in::bits<int>(x);
}
static inline unsigned __float_as_uint(float x) {
    return stand_in::bits<unsigned>(x);
}
static inline float __int_as_float(int x) {
    return stand_in::bits<float>(x);
}
static inline float __uint_as_float(unsigned x) {
    return stand_in::bits<float>(x);
}
static inline long long __double_as_longlong(double x) {
    return stand_in::bits<long long>(x);
}
static inline double __longlong_as_double(long long x) {
    return stand_in::bits<double>(x);
}
static inline int __double2hiint(double x) {
    return (int)(stand_in::bits<int64_t>(x) >> 32);
}
static inline int __double2loint(double x) {
    return (int)stand_in::bits<int64_t>(x);
}
static inline double __hiloint2double(int high, int low) {
    return stand_in::bits<double>((uint64_t)(uint32_t)high << 32 | (uint32_t)low);
}

namespace stand_in {
/* An integer of type To, saturated; NaN gives `nan`. x has been rounded already. */
template <class To> static inline To saturated(double x, To nan) {
    const double end = std::ldexp(1.0, (int)sizeof(To) * 8 - std::is_signed<To>::value);
    const double low = std::is_signed<To>::value ? -end : 0;
    const To least = std::is_signed<To>::value ? (To)((To)1 << (sizeof(To) * 8 - 1)) : (To)0;
    return x != x ? nan : x < low ? least : x >= end ? (To)~least : (To)x;
}
} // namespace stand_in

/* PTX cvt: to the nearest even (rn), to zero (rz), down (rd), up (ru); NaN gives 0 from float to 32 bits, and the
 * integer with only its highest bit set otherwise. */
#define STAND_IN_TO_INTEGER(from, name, to, nan)                                                                       \
    static inline to name##_rn(from x) {                                                                               \
        return stand_in::saturated<to>(std::nearbyint((double)x), nan);                                                \
    }                                                                                                                  \
    static inline to name##_rz(from x) {                                                                               \
        return stand_in::saturated<to>(std::trunc((double)x), nan);                                                    \
    }                                                                                                                  \
    static inline to name##_rd(from x) {                                                                               \
        return stand_in::saturated<to>(std::floor((double)x), nan);                                                    \
    }                                                                                                                  \
    static inline to name##_ru(from x) {                                                                               \
        return stand_in::saturated<to>(std::ceil((double)x), nan);                                                     \
    }
STAND_IN_TO_INTEGER(float, __float2int, int, 0)
STAND_IN_TO_INTEGER(float, __float2uint, unsigned, 0)
STAND_IN_TO_INTEGER(float, __float2ll, long long, (long long)(1ull << 63))
STAND_IN_TO_INTEGER(float, __float2ull, unsigned long long, 1ull << 63)
STAND_IN_TO_INTEGER(double, __double2int, int, (int)(1u << 31))
STAND_IN_TO_INTEGER(double, __double2uint, unsigned, 1u << 31)
STAND_IN_TO_INTEGER(double, __double2ll, long long, (long long)(1ull << 63))
STAND_IN_TO_INTEGER(double, __double2ull, unsigned long long, 1ull << 63)
#undef STAND_IN_TO_INTEGER
static inline float __int2float_rn(int x) {
    return (float)x;
}
static inline float __uint2float_rn(unsigned x) {
    return (float)x;
}
static inline float __ll2float_rn(long long x) {
    return (float)x;
}
static inline float __ull2float_rn(unsigned long long x) {
    return (float)x;
}
static inline double __int2double_rn(int x) {
    return x;
}
static inline double __uint2double_rn(unsigned x) {
    return x;
}
static inline double __ll2double_rn(long long x) {
    return (double)x;
}
static inline double __ull2double_rn(unsigned long long x) {
    return (double)x;
}
static inline float __double2float_rn(double x) {
    return (float)x;
}

template <class T> static inline T __ldg(const T *p) {
    return *p;
}

#endif
