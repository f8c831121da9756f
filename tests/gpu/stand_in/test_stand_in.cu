/* test_stand_in.cu - the stand-in itself: every meaning, and every mistake that it must notice. Compiled with
 * -fsanitize=thread (and linked without it) it also tests the checks of accesses. */
#include "gpu/device.h"
#include <csignal>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define TEST_UNDER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TEST_UNDER_ASAN 1
#endif
#endif

static long passed, failed;
static uint64_t seed_now;
#define CHECK(condition)                                                                                               \
    ((condition) ? (void)passed++                                                                                      \
                 : (void)(failed++, printf("%s:%d: seed %llu: %s\n", __FILE__, __LINE__, (unsigned long long)seed_now, \
                                           #condition)))

static uint32_t random_state;
static uint32_t draw() { /* xorshift */
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    return random_state ^= random_state << 5;
}

static void set_seed(uint64_t seed) {
    seed_now = seed;
    random_state = 2463534242u + (uint32_t)seed;
    stand_in_seed(seed);
}

template <class T> static T *on_device(const std::vector<T> &values) {
    T *p;
    cudaMalloc(&p, values.size() * sizeof(T));
    cudaMemcpy(p, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice);
    return p;
}
template <class T> static T *room_for(size_t n) {
    T *p;
    cudaMalloc(&p, n * sizeof(T));
    return p;
}
template <class T> static std::vector<T> fetch(const T *p, size_t n) {
    std::vector<T> values(n);
    cudaMemcpy(values.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost);
    return values;
}

/* --- threads and barriers ------------------------------------------------------------------------------------------
 */

__global__ void write_indices(unsigned *out) {
    const unsigned t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const unsigned b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    out[b * blockDim.x * blockDim.y * blockDim.z + t] = b << 16 | t;
}

template <class T> __global__ void __launch_bounds__(1024) reverse(T *out, const T *in, int n) {
    __shared__ T fixed[1024];
    GPU_DYNAMIC_SHARED(T, dynamic);
    const int t = (int)threadIdx.x;
    for (int round = 0; round < 2; round++) {
        fixed[t] = in[t];
        dynamic[t] = in[t] * 3;
        __syncthreads();
        out[(int)blockIdx.x * n + t] = fixed[n - 1 - t] + dynamic[n - 1 - t];
        __syncthreads();
    }
}

__global__ void vote(int *out, int threshold) {
    const int t = (int)threadIdx.x;
    int *const o = out + 3 * t;
    o[0] = __syncthreads_or(t == threshold);
    o[1] = __syncthreads_and(t < threshold);
    o[2] = __syncthreads_count(t < threshold);
}

/* Sum over a tree in shared memory: a barrier in a loop, in a function. */
__device__ static int sum_of_block(int value) {
    __shared__ int part[1024];
    const int t = (int)threadIdx.x;
    part[t] = value;
    __syncthreads();
    for (int half = (int)blockDim.x / 2; half; half /= 2) {
        if (t < half)
            part[t] += part[t + half];
        __syncthreads();
    }
    return part[0];
}
__global__ void sum_blocks(int *out, const int *in) {
    const int sum = sum_of_block(in[blockIdx.x * blockDim.x + threadIdx.x]);
    if (threadIdx.x == 0)
        out[blockIdx.x] = sum;
}

static void test_threads() {
    unsigned *const d = room_for<unsigned>(24 * 60);
    CHECK(gpu_launch(write_indices, dim3(2, 3, 4), dim3(3, 4, 5), 0, nullptr, d) == cudaSuccess);
    const std::vector<unsigned> ids = fetch(d, 24 * 60);
    bool good = true;
    for (unsigned i = 0; i < 24 * 60; i++)
        good = good && ids[i] == (i / 60 << 16 | i % 60);
    CHECK(good);
    cudaFree(d);

    for (int n : {1, 31, 32, 33, 100, 256, 1024}) {
        std::vector<long long> in((size_t)n);
        for (long long &v : in)
            v = (int)draw();
        long long *const from = on_device(in), *const to = room_for<long long>(3 * (size_t)n);
        CHECK(gpu_launch(reverse<long long>, 3, (unsigned)n, (size_t)n * 8, nullptr, to, from, n) == cudaSuccess);
        const std::vector<long long> out = fetch(to, 3 * (size_t)n);
        good = true;
        for (int i = 0; i < 3 * n; i++)
            good = good && out[(size_t)i] == 4 * in[(size_t)(n - 1 - i % n)];
        CHECK(good && !stand_in_errors());
        cudaFree(from);
        cudaFree(to);
    }

    int *const votes = room_for<int>(3 * 77);
    for (int threshold : {0, 1, 40, 76, 77}) {
        gpu_launch(vote, 1, 77, 0, nullptr, votes, threshold);
        const std::vector<int> v = fetch(votes, 3 * 77);
        good = true;
        for (size_t i = 0; i < 77; i++)
            good =
                good && v[3 * i] == (threshold < 77) && v[3 * i + 1] == (threshold == 77) && v[3 * i + 2] == threshold;
        CHECK(good);
    }
    cudaFree(votes);

    std::vector<int> in(64 * 128), sums(64);
    for (size_t i = 0; i < in.size(); i++)
        sums[i / 128] += in[i] = (int)(draw() % 1000);
    int *const from = on_device(in), *const to = room_for<int>(64);
    gpu_launch(sum_blocks, 64, 128, 0, nullptr, to, (const int *)from);
    CHECK(fetch(to, 64) == sums);
    cudaFree(from);
    cudaFree(to);
}

/* --- collectives ---------------------------------------------------------------------------------------------------
 */

enum { COLLECTIVES = 20 };

__global__ void collectives(long long *out, const int *in) {
    const int l = (int)threadIdx.x & 31, v = in[threadIdx.x];
    long long *o = out + (size_t)threadIdx.x * COLLECTIVES;
    *o++ = __shfl_sync(~0u, v, 5);
    *o++ = __shfl_sync(~0u, v, 1, 8);
    *o++ = __shfl_xor_sync(~0u, v, 3);
    *o++ = __shfl_xor_sync(~0u, v, 4, 4);
    *o++ = __shfl_down_sync(~0u, v, 4);
    *o++ = __shfl_down_sync(~0u, v, 3, 16);
    *o++ = __shfl_up_sync(~0u, v, 2);
    *o++ = __shfl_up_sync(~0u, v, 5, 16);
    *o++ = __shfl_xor_sync(~0u, (long long)v * (1 << 20), 16);
    *o++ = (long long)__shfl_sync(~0u, (double)v, 31);
    *o++ = __ballot_sync(~0u, v & 1);
    *o++ = __any_sync(~0u, v == in[threadIdx.x & ~31u]);
    *o++ = __all_sync(~0u, v < 900);
    *o++ = (int)__reduce_add_sync(~0u, v);
    *o++ = __reduce_max_sync(~0u, (unsigned)v);
    *o++ = __reduce_min_sync(~0u, v);
    *o++ = __reduce_xor_sync(~0u, (unsigned)v);
    *o++ = __match_any_sync(~0u, v & 3);
    if (l < 16)
        *o++ = __reduce_add_sync(0xffffu, v);
    else
        *o++ = __reduce_max_sync(0xffff0000u, v);
    *o++ = __reduce_min_sync(~0u, (unsigned)v);
}

static void test_collectives() {
    std::vector<int> in(96);
    for (int &v : in)
        v = (int)(draw() % 2000) - 1000;
    int *const from = on_device(in);
    long long *const to = room_for<long long>(96 * COLLECTIVES);
    gpu_launch(collectives, 1, 96, 0, nullptr, to, (const int *)from);
    const std::vector<long long> out = fetch(to, 96 * COLLECTIVES);
    bool good[COLLECTIVES];
    std::fill(good, good + COLLECTIVES, true);
    for (int i = 0; i < 96; i++) {
        const int l = i & 31, *const w = in.data() + (i & ~31);
        unsigned odd = 0, same = 0, uleast = ~0u, umost = 0, xored = 0;
        int sum = 0, least = w[0], low = 0, high = w[16], below = 1;
        for (int j = 0; j < 32; j++) {
            odd |= (unsigned)(w[j] & 1) << j;
            same |= (unsigned)((w[j] & 3) == (w[l] & 3)) << j;
            sum += w[j];
            least = std::min(least, w[j]);
            uleast = std::min(uleast, (unsigned)w[j]);
            umost = std::max(umost, (unsigned)w[j]);
            xored ^= (unsigned)w[j];
            low += j < 16 ? w[j] : 0;
            high = j >= 16 ? std::max(high, w[j]) : high;
            below = below && w[j] < 900;
        }
        const long long want[COLLECTIVES] = {w[5],
                                             w[(l & ~7) + 1],
                                             w[l ^ 3],
                                             l & 4 ? w[l ^ 4] : w[l],
                                             w[l + 4 < 32 ? l + 4 : l],
                                             w[(l & 15) + 3 < 16 ? l + 3 : l],
                                             w[l >= 2 ? l - 2 : l],
                                             w[(l & 15) >= 5 ? l - 5 : l],
                                             (long long)w[l ^ 16] * (1 << 20),
                                             w[31],
                                             odd,
                                             1,
                                             below,
                                             sum,
                                             umost,
                                             least,
                                             xored,
                                             same,
                                             l < 16 ? low : high,
                                             uleast};
        for (int j = 0; j < COLLECTIVES; j++)
            good[j] = good[j] && out[(size_t)(i * COLLECTIVES + j)] == want[j];
    }
    for (bool g : good)
        CHECK(g);
    cudaFree(from);
    cudaFree(to);
}

/* --- atomics -------------------------------------------------------------------------------------------------------
 */

struct Totals {
    int sum, most, least, bits;
    unsigned usum, taken, locked;
    unsigned long long wide;
    float real;
    double precise;
};

__global__ void add_up(Totals *t, const int *in, int n) {
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= n)
        return;
    const int v = in[i];
    atomicAdd(&t->sum, v);
    atomicAdd(&t->usum, (unsigned)v);
    atomicAdd(&t->wide, (unsigned long long)(long long)v);
    atomicAdd(&t->real, (float)v);
    atomicAdd(&t->precise, (double)v / 4);
    atomicMax(&t->most, v);
    atomicMin(&t->least, v);
    atomicOr(&t->bits, 1 << (v & 15));
    if (atomicExch(&t->taken, 1u) == 0)
        atomicAdd(&t->locked, 1u);
}

__global__ void add_by_cas(unsigned long long *p) {
    unsigned long long old = atomicAdd(p, 0ull), seen;
    do {
        seen = old;
        old = atomicCAS(p, seen, seen + 3);
    } while (old != seen);
}

static void test_atomics() {
    std::vector<int> in(1000);
    Totals want = {};
    want.most = want.least = 0;
    for (int &v : in) {
        v = (int)(draw() % 4001) - 2000;
        want.sum += v;
        want.wide += (unsigned long long)(long long)v;
        want.precise += (double)v / 4;
        want.most = std::max(want.most, v);
        want.least = std::min(want.least, v);
        want.bits |= 1 << (v & 15);
    }
    int *const from = on_device(in);
    Totals *const to = on_device(std::vector<Totals>(1, Totals{}));
    gpu_launch(add_up, 8, 128, 0, nullptr, to, (const int *)from, 1000);
    const Totals t = fetch(to, 1)[0];
    CHECK(t.sum == want.sum && t.usum == (unsigned)want.sum && t.wide == want.wide && t.real == (float)want.sum);
    CHECK(t.precise == want.precise && t.most == want.most && t.least == want.least && t.bits == want.bits);
    CHECK(t.taken == 1 && t.locked == 1);
    unsigned long long *const counter = on_device(std::vector<unsigned long long>(1, 5));
    gpu_launch(add_by_cas, 4, 64, 0, nullptr, counter);
    CHECK(fetch(counter, 1)[0] == 5 + 3 * 256);
    cudaFree(from);
    cudaFree(to);
    cudaFree(counter);
}

/* --- scalar functions ----------------------------------------------------------------------------------------------
 */

static void test_scalars() {
    CHECK(__clz(0) == 32 && __clz(1) == 31 && __clz(-1) == 0 && __clzll(0) == 64 && __clzll(1) == 63);
    CHECK(__ffs(0) == 0 && __ffs(8) == 4 && __popc(0xf0f0u) == 8 && __popcll(~0ull) == 64 && __brev(1) == 1u << 31);
    CHECK(__byte_perm(0x33221100, 0x77665544, 0x7531) == 0x77553311);
    CHECK(gpu_byte_perm(0x33221100, 0x77665544, 0x6420) == 0x66442200);
    CHECK(__byte_perm(0x00008000, 0, 0x8989) == 0x00ff00ff);
    CHECK(__dp4a((int)0x80ff7f01u, (int)0x80ff7f02u, 5) == 16384 + 1 + 16129 + 2 + 5);
    CHECK(__dp4a(0x80ff7f01u, 0x80ff7f02u, 5u) == 16384u + 65025 + 16129 + 2 + 5);
    CHECK(__mulhi(1 << 30, -8) == -2 && __umulhi(~0u, ~0u) == ~0u - 1 && __umul64hi(~0ull, 4) == 3);
    CHECK(__funnelshift_l(0x80000000u, 1, 1) == 3 && __funnelshift_r(1, 1, 1) == 0x80000000u);
    CHECK(__float_as_uint(1.0f) == 0x3f800000 && __uint_as_float(0x40000000) == 2 && __float_as_int(-0.0f) < 0);
    CHECK(__double_as_longlong(1.0) == 0x3ff0000000000000ll && __hiloint2double(0x3ff00000, 0) == 1);
    CHECK(__double2hiint(1.0) == 0x3ff00000 && __double2loint(1.0) == 0);
    CHECK(__float2int_rn(2.5f) == 2 && __float2int_rn(3.5f) == 4 && __float2int_rz(-2.9f) == -2);
    CHECK(__float2int_rd(-2.1f) == -3 && __float2int_ru(2.1f) == 3 && __float2int_rn(1e20f) == 2147483647);
    CHECK(__float2int_rn(-1e20f) == -2147483647 - 1 && __float2int_rn(NAN) == 0 && __float2uint_rn(-5) == 0);
    CHECK(__double2int_rn(0.5) == 0 && __double2int_rn(1.5) == 2 && __double2ll_rn(1e300) == 9223372036854775807ll);
    CHECK(__double2float_rn(1 + 0x1p-24) == 1 && __double2float_rn(1 + 0x1.8p-24) == 1 + 0x1p-23f);
    CHECK(__fmaf_rn(1 + 0x1p-12f, 1 + 0x1p-12f, -1) == 0x1p-11f + 0x1p-24f);
    CHECK(min(3, -2) == -2 && max(3u, 2u) == 3 && max(NAN, 1.0f) == 1 && min(1.0, (double)NAN) == 1);
    CHECK(warpSize == 32);
}

#include "test_tensor_cores.h"

/* --- memory, streams and events ------------------------------------------------------------------------------------
 */

__global__ void add_to(int *p, int n, int value) {
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n)
        p[i] += value;
}
__global__ void store_sum(int *out, const int *a, const int *b) {
    *out = *a + *b;
}
__global__ void store(int *out, int value) {
    *out = value;
}

static void test_memory() {
    size_t before, after, total;
    cudaMemGetInfo(&before, &total);
    CHECK(before <= total);
    unsigned char *const p = room_for<unsigned char>(1000);
    CHECK((uintptr_t)p % 256 == 0);
    cudaMemGetInfo(&after, &total);
    CHECK(after < before);
    const std::vector<unsigned char> rubbish = fetch(p, 1000);
    for (size_t i = 0; i < 1000; i++)
        if (rubbish[i] == 0) {
            CHECK(!"new memory is zero");
            break;
        }
    CHECK(cudaMemset(p, 7, 1000) == cudaSuccess);
    CHECK(fetch(p, 1000) == std::vector<unsigned char>(1000, 7));
    CHECK(cudaFree(p) == cudaSuccess && cudaFree(nullptr) == cudaSuccess);
    cudaMemGetInfo(&after, &total);
    CHECK(after == before);

    void *much;
    CHECK(cudaMalloc(&much, total + 1) == cudaErrorMemoryAllocation && !much);
    CHECK(cudaGetLastError() == cudaErrorMemoryAllocation && cudaGetLastError() == cudaSuccess);
    std::vector<int *> parts;
    for (size_t n : {100, 3000, 257, 1, 70000, 4096})
        parts.push_back(room_for<int>(n));
    for (size_t i : {1, 3, 5, 0, 2, 4})
        cudaFree(parts[i]);
    cudaMemGetInfo(&after, &total);
    CHECK(after == before);

    cudaStream_t s;
    cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    for (int i = 0; i < 50; i++) { /* more than there is, but never at one time */
        int *q;
        CHECK(cudaMallocAsync(&q, total / 5, s) == cudaSuccess);
        cudaFreeAsync(q, s);
    }
    cudaStreamSynchronize(s);
    cudaMemGetInfo(&after, &total);
    CHECK(after == before);

    int *const d = on_device(std::vector<int>(4, 1));
    int source[4] = {1, 2, 3, 4}, result[4] = {0};
    cudaMemcpyAsync(d, source, sizeof source, cudaMemcpyHostToDevice, s);
    source[0] = 9; /* pageable memory has been read */
    cudaMemcpyAsync(result, d, sizeof result, cudaMemcpyDeviceToHost, s);
    CHECK(result[0] == 1 && result[3] == 4);
    int *fast;
    cudaHostAlloc(&fast, 2 * sizeof source, cudaHostAllocDefault);
    memcpy(fast, source, sizeof source);
    fast[4] = -1;
    cudaMemcpyAsync(d, fast, sizeof source, cudaMemcpyDefault, s);
    cudaMemcpyAsync(fast + 4, d, sizeof source, cudaMemcpyDefault, s);
    fast[0] = 10; /* pinned memory is read when the copy is made */
    CHECK(fast[4] == -1);
    cudaStreamSynchronize(s);
    CHECK(fast[4] == 10 && fast[7] == 4);
    cudaFreeHost(fast);

    stand_in_print(false);
    CHECK(cudaMemcpyAsync(d, source, 5 * sizeof(int), cudaMemcpyHostToDevice, s) == cudaErrorInvalidValue);
    CHECK(cudaMemcpyAsync(source, result, 4, cudaMemcpyDeviceToHost, s) == cudaErrorInvalidValue);
    CHECK(cudaMemsetAsync(source, 0, 4, s) == cudaErrorInvalidValue);
    CHECK(cudaFree(d + 1) == cudaErrorInvalidValue && stand_in_errors() == 4);
    CHECK(strstr(stand_in_messages(), "not within an allocation"));
    stand_in_print(true);
    stand_in_clear();
    cudaGetLastError();
    cudaStreamDestroy(s);
    cudaFree(d);
}

/* The second stream reads what the first writes: with the event it is always right. */
static int through_event(bool with_event) {
    cudaStream_t a, b;
    cudaEvent_t written;
    cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&written, cudaEventDisableTiming);
    int *const p = on_device(std::vector<int>{1, 0}), result;
    gpu_launch(add_to, 1, 1, 0, a, p, 1, 1);
    cudaEventRecord(written, a);
    if (with_event)
        cudaStreamWaitEvent(b, written, 0);
    gpu_launch(store_sum, 1, 1, 0, b, p + 1, (const int *)p, (const int *)p);
    cudaStreamSynchronize(b);
    cudaMemcpy(&result, p + 1, sizeof result, cudaMemcpyDeviceToHost);
    cudaEventSynchronize(written);
    cudaEventDestroy(written);
    cudaStreamDestroy(a);
    cudaStreamDestroy(b);
    cudaFree(p);
    return result;
}

static void test_streams() {
    int wrong = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        set_seed(seed);
        CHECK(through_event(true) == 4);
        wrong += through_event(false) != 4;
    }
    CHECK(wrong > 2 && wrong < 18);
    set_seed(0);

    cudaEvent_t e;
    cudaEventCreateWithFlags(&e, cudaEventDisableTiming);
    CHECK(cudaEventQuery(e) == cudaSuccess && cudaEventSynchronize(e) == cudaSuccess);
    int *const p = on_device(std::vector<int>(1, 0));
    cudaStream_t s;
    cudaStreamCreate(&s); /* a blocking stream: the default stream waits for it */
    for (int i = 0; i < 3000; i++)
        gpu_launch(add_to, 1, 1, 0, s, p, 1, 1);
    cudaEventRecord(e, s);
    CHECK(cudaEventQuery(e) == cudaErrorNotReady);
    CHECK(fetch(p, 1)[0] == 3000);
    CHECK(cudaEventQuery(e) == cudaSuccess && cudaStreamQuery(s) == cudaSuccess);
    gpu_launch(add_to, 1, 1, 0, s, p, 1, 1);
    int polls = 0;
    while (cudaStreamQuery(s) == cudaErrorNotReady)
        polls++;
    CHECK(polls < 10 && cudaGetLastError() == cudaSuccess);
    int calls = 0;
    cudaLaunchHostFunc(
        s, [](void *n) { ++*(int *)n; }, &calls);
    CHECK(calls == 0 && cudaDeviceSynchronize() == cudaSuccess && calls == 1);
    CHECK(cudaStreamDestroy(s) == cudaSuccess);
    CHECK(cudaStreamSynchronize(s) == cudaErrorInvalidResourceHandle && cudaGetLastError() != cudaSuccess);
    cudaEventDestroy(e);
    cudaFree(p);
}

static void test_graphs() {
    cudaStream_t a, b;
    cudaEvent_t fork, join;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaStreamCaptureStatus status;
    cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&fork, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&join, cudaEventDisableTiming);
    int *const p = on_device(std::vector<int>(4, 0));
    for (bool joined : {true, false}) {
        CHECK(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
        cudaStreamIsCapturing(a, &status);
        CHECK(status == cudaStreamCaptureStatusActive);
        gpu_launch(add_to, 1, 4, 0, a, p, 2, 1);
        cudaEventRecord(fork, a);
        cudaStreamWaitEvent(b, fork, 0);
        gpu_launch(add_to, 1, 4, 0, b, p, 1, 10);
        gpu_launch(add_to, 1, 4, 0, a, p + 1, 1, 100);
        cudaEventRecord(join, b);
        if (joined)
            cudaStreamWaitEvent(a, join, 0);
        gpu_launch(store_sum, 1, 1, 0, a, p + 2, (const int *)p, (const int *)(p + 1));
        CHECK(cudaStreamEndCapture(a, &graph) == (joined ? cudaSuccess : cudaErrorStreamCaptureUnjoined));
        cudaGetLastError();
        cudaStreamIsCapturing(b, &status);
        CHECK(status == cudaStreamCaptureStatusNone);
        if (!joined)
            break;
        CHECK(fetch(p, 1)[0] == 0); /* a capture does nothing */
        CHECK(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
        cudaGraphDestroy(graph);
        for (int i = 0; i < 5; i++)
            CHECK(cudaGraphLaunch(exec, a) == cudaSuccess);
        cudaGraphExecDestroy(exec);
        CHECK(cudaStreamSynchronize(a) == cudaSuccess);
        CHECK((fetch(p, 3) == std::vector<int>{55, 505, 560}));
    }
    cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal);
    CHECK(cudaStreamSynchronize(a) == cudaErrorStreamCaptureUnsupported);
    CHECK(cudaStreamEndCapture(a, &graph) == cudaErrorStreamCaptureInvalidated && !graph);
    cudaGetLastError();
    cudaEventDestroy(fork);
    cudaEventDestroy(join);
    cudaStreamDestroy(a);
    cudaStreamDestroy(b);
    cudaFree(p);
}

/* --- errors --------------------------------------------------------------------------------------------------------
 */

static void test_launch_errors() {
    int *const p = on_device(std::vector<int>(1, 0));
    const struct {
        dim3 grid, block;
        size_t shared;
        cudaError_t error;
    } bad[] = {{1, 1025, 0, cudaErrorInvalidConfiguration},
               {0, 1, 0, cudaErrorInvalidConfiguration},
               {1, 0, 0, cudaErrorInvalidConfiguration},
               {dim3(1, 65536), 1, 0, cudaErrorInvalidConfiguration},
               {1, dim3(1, 1, 65), 0, cudaErrorInvalidConfiguration},
               {1, 1, (48 << 10) + 1, cudaErrorInvalidValue}};
    for (const auto &b : bad) {
        CHECK(gpu_launch(store, b.grid, b.block, b.shared, nullptr, p, 1) == b.error);
        CHECK(cudaPeekAtLastError() == cudaSuccess);
    }
    CHECK(cudaFuncSetAttribute(store, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 << 10) == cudaSuccess);
    CHECK(gpu_launch(store, 1, 1, 100 << 10, nullptr, p, 1) == cudaSuccess);
    CHECK(cudaFuncSetAttribute(store, cudaFuncAttributeMaxDynamicSharedMemorySize, 228 << 10) == cudaErrorInvalidValue);
    cudaGetLastError();
    cudaFuncSetAttribute(store, cudaFuncAttributeMaxDynamicSharedMemorySize, 0);

    stand_in_fail(2, cudaErrorLaunchOutOfResources);
    CHECK(gpu_launch(store, 1, 1, 0, nullptr, p, 1) == cudaSuccess);
    CHECK(gpu_launch(store, 1, 1, 0, nullptr, p, 2) == cudaErrorLaunchOutOfResources);
    CHECK(gpu_launch(store, 1, 1, 0, nullptr, p, 3) == cudaSuccess);
    CHECK(fetch(p, 1)[0] == 3);
    stand_in_fail(1, cudaErrorLaunchFailure);
    CHECK(gpu_launch(store, 1, 1, 0, nullptr, p, 4) == cudaSuccess);
    CHECK(cudaDeviceSynchronize() == cudaErrorLaunchFailure);
    void *q;
    CHECK(cudaMalloc(&q, 4) == cudaErrorLaunchFailure && gpu_launch(store, 1, 1, 0, nullptr, p, 5) != cudaSuccess);
    stand_in_clear();
    cudaGetLastError();
    CHECK(fetch(p, 1)[0] == 3);
    cudaFree(p);
    CHECK(!strcmp(cudaGetErrorName(cudaErrorIllegalAddress), "cudaErrorIllegalAddress"));
    CHECK(!strcmp(cudaGetErrorString(cudaErrorNoDevice), "no CUDA-capable device is detected"));
}

/* Whether a wait tells of the error that the last launch made, and a message has `text`. Clears it. */
static bool noticed(const char *text) {
    const bool told = cudaDeviceSynchronize() != cudaSuccess, counted = stand_in_errors() > 0;
    const bool found = strstr(stand_in_messages(), text) != nullptr;
    if (!(told && counted && found))
        printf("got: %s", stand_in_messages());
    stand_in_clear();
    cudaGetLastError();
    return told && counted && found;
}
#ifdef STAND_IN_INSTRUMENTED
static bool unnoticed() {
    const bool good = cudaDeviceSynchronize() == cudaSuccess && stand_in_errors() == 0;
    if (!good)
        printf("got: %s", stand_in_messages());
    stand_in_clear();
    cudaGetLastError();
    return good;
}
#endif

__global__ void barrier_of_some(int *out) {
    if (threadIdx.x < 16)
        __syncthreads();
    out[threadIdx.x] = 1;
}
__global__ void two_barriers(int *out) {
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __syncthreads();
    out[threadIdx.x] = 1;
}
__global__ void barrier_and_shuffle(int *out) {
    if (threadIdx.x == 3)
        __syncthreads();
    else
        out[threadIdx.x] = __shfl_sync(~0u, 1, 0);
}
__global__ void lost_lane(int *out) {
    if (threadIdx.x != 3)
        out[threadIdx.x] = __shfl_sync(~0u, 1, 0);
}
__global__ void wrong_mask(int *out) {
    out[threadIdx.x] = __shfl_sync(0xffffu, 1, 0);
}
__global__ void wrong_source(int *out) {
    if (threadIdx.x < 16)
        out[threadIdx.x] = __shfl_sync(0xffffu, 1, 20);
}
__global__ void other_masks(int *out) {
    out[threadIdx.x] = (int)__ballot_sync(threadIdx.x < 16 ? ~0u : 0xffff0000u, 1);
}
__global__ void other_collectives(int *out) {
    if (threadIdx.x < 16)
        out[threadIdx.x] = (int)__ballot_sync(~0u, 1);
    else
        out[threadIdx.x] = __reduce_add_sync(~0u, 1);
}
__global__ void past_dynamic_shared(int *out, int at) {
    GPU_DYNAMIC_SHARED(int, s);
    s[at] = 1;
    out[threadIdx.x] = 1;
}
__global__ void crooked_ldmatrix(int *out) {
    GPU_DYNAMIC_SHARED(uint16_t, s);
    uint32_t r[4];
    gpu_ldmatrix_x4(r, s + 4 * threadIdx.x);
    out[threadIdx.x] = (int)r[0];
}
__global__ void crooked_copy(int *in) {
    GPU_DYNAMIC_SHARED(int, s);
    gpu_cp_async16(s, in + 1, 12);
}
__global__ void copy_of_too_much(int *in) {
    GPU_DYNAMIC_SHARED(int, s);
    gpu_cp_async16(s, in, 20);
}
__global__ void partial_mma(int *out) {
    int32_t d[4] = {0};
    const uint32_t a[4] = {0}, b[2] = {0};
    gpu_mma_s8s8(d, a, b);
    out[0] = d[0];
}
__device__ __attribute__((noinline)) static int deep(int n) {
    volatile int much[1000];
    much[n % 1000] = n;
    return n == 0 ? 0 : deep(n - 1) + much[n % 1000];
}
__global__ void overflow_stack(int *out, int n) {
    *out = deep(n);
}

static void test_mistakes() {
    int *const p = on_device(std::vector<int>(256, 0));
    stand_in_print(false);
    gpu_launch(barrier_of_some, 1, 32, 0, nullptr, p);
    CHECK(noticed("divergent"));
    gpu_launch(two_barriers, 1, 64, 0, nullptr, p);
    CHECK(noticed("divergent barrier"));
    gpu_launch(barrier_and_shuffle, 1, 32, 0, nullptr, p);
    CHECK(noticed("divergent"));
    gpu_launch(lost_lane, 1, 32, 0, nullptr, p);
    CHECK(noticed("divergent"));
    gpu_launch(wrong_mask, 1, 32, 0, nullptr, p);
    CHECK(noticed("lacks the lane"));
    gpu_launch(wrong_source, 1, 32, 0, nullptr, p);
    CHECK(noticed("not in the mask"));
    gpu_launch(other_masks, 1, 32, 0, nullptr, p);
    CHECK(noticed("divergent"));
    gpu_launch(other_collectives, 1, 32, 0, nullptr, p);
    CHECK(noticed("meet in"));
    gpu_launch(crooked_ldmatrix, 1, 32, 1024, nullptr, p);
    CHECK(noticed("ldmatrix"));
    gpu_launch(crooked_copy, 1, 1, 1024, nullptr, p);
    CHECK(noticed("multiples of 16"));
    gpu_launch(copy_of_too_much, 1, 1, 1024, nullptr, p);
    CHECK(noticed("not from device to shared"));
    gpu_launch(partial_mma, 1, 48, 0, nullptr, p);
    CHECK(noticed("incomplete warp"));
    for (int at : {64, 65, -1}) {
        gpu_launch(past_dynamic_shared, 1, 1, 256, nullptr, p, at);
        CHECK(noticed("shared memory"));
    }
    gpu_launch(lost_lane, 1, 32, 0, nullptr, p);
    cudaDeviceSynchronize();
    CHECK(strstr(stand_in_messages(), "lost_lane") && strstr(stand_in_messages(), "block (0,0,0)"));
    stand_in_clear();
    cudaGetLastError();
#ifndef TEST_UNDER_ASAN
    gpu_launch(store, 1, 1, 0, nullptr, (int *)8, 1);
    CHECK(noticed("address"));
    gpu_launch(overflow_stack, 1, 1, 0, nullptr, p, 100000);
    CHECK(noticed("overflow"));
#endif
    stand_in_print(true);
    int *const sum = on_device(std::vector<int>(1, 0)); /* all works as before */
    gpu_launch(sum_blocks, 1, 128, 0, nullptr, sum, (const int *)on_device(std::vector<int>(128, 3)));
    CHECK(fetch(sum, 1)[0] == 384);
    cudaFree(sum);
    cudaFree(p);
}

/* --- random orders -------------------------------------------------------------------------------------------------
 */

__global__ void no_barrier(int *out, int n) {
    GPU_DYNAMIC_SHARED(int, s);
    const int t = (int)threadIdx.x;
    s[t] = t;
    out[t] = s[(t + 37) % n];
}
__global__ void note_order(int *out, int *next) {
    out[atomicAdd(next, 1)] = (int)(blockIdx.x * blockDim.x + threadIdx.x);
}

static std::vector<int> order_of_threads(uint64_t seed) {
    set_seed(seed);
    int *const p = room_for<int>(512), *const next = on_device(std::vector<int>(1, 0));
    gpu_launch(note_order, 4, 128, 0, nullptr, p, next);
    const std::vector<int> order = fetch(p, 512);
    cudaFree(p);
    cudaFree(next);
    return order;
}

static void test_orders() {
    const std::vector<int> plain = order_of_threads(0), one = order_of_threads(1), two = order_of_threads(2);
    bool ascending = true;
    for (int i = 0; i < 512; i++)
        ascending = ascending && plain[(size_t)i] == i;
    CHECK(ascending && one != plain && two != plain && one != two && one == order_of_threads(1));
    std::vector<bool> seen(512);
    for (int i : one)
        seen[(size_t)i] = true;
    CHECK(std::vector<bool>(512, true) == seen);
    stand_in_print(false);
    int wrong = 0;
    int *const p = room_for<int>(64);
    for (uint64_t seed = 0; seed < 4; seed++) {
        set_seed(seed);
        gpu_launch(no_barrier, 1, 64, 256, nullptr, p, 64);
        cudaDeviceSynchronize();
        stand_in_clear();
        const std::vector<int> v = fetch(p, 64);
        bool good = true;
        for (int i = 0; i < 64; i++)
            good = good && v[(size_t)i] == (i + 37) % 64;
        wrong += !good;
    }
    CHECK(wrong == 4);
    stand_in_print(true);
    stand_in_clear();
    cudaGetLastError();
    set_seed(0);
    cudaFree(p);
}

/* --- the environment, and the host's reach: in processes of their own ----------------------------------------------
 */

template <class Child> static int in_child(Child child) {
    fflush(stdout);
    const pid_t pid = fork();
    if (!pid) {
        fclose(stderr);
        _exit(child());
    }
    int status;
    waitpid(pid, &status, 0);
    return status;
}

static void test_environment() { /* before the first call of this process */
    CHECK(in_child([] {
              setenv("FLEXLAB_STAND_IN_DEVICES", "0", 1);
              int n = 1;
              void *p;
              const bool none = cudaGetDeviceCount(&n) == cudaErrorNoDevice && n == 0;
              return !(none && cudaMalloc(&p, 4) == cudaErrorNoDevice && cudaSetDevice(0) == cudaErrorNoDevice);
          }) == 0);
    CHECK(in_child([] {
              setenv("FLEXLAB_STAND_IN_DEVICES", "2", 1);
              setenv("FLEXLAB_STAND_IN_BYTES", "1000000", 1);
              int n = 0;
              size_t free, total;
              cudaDeviceProp properties;
              int *p[2], value = 0;
              bool good = cudaGetDeviceCount(&n) == cudaSuccess && n == 2 && cudaSetDevice(2) == cudaErrorInvalidDevice;
              for (int d = 0; d < 2; d++) {
                  good = good && cudaSetDevice(d) == cudaSuccess && cudaMemGetInfo(&free, &total) == cudaSuccess;
                  good = good && cudaGetDeviceProperties(&properties, d) == cudaSuccess &&
                         properties.totalGlobalMem == total && total <= 1000000 && free == total;
                  good = good && cudaMalloc(&p[d], 900000) == cudaSuccess;
                  void *q;
                  good = good && cudaMalloc(&q, 200000) == cudaErrorMemoryAllocation;
                  good = good && cudaGetLastError() == cudaErrorMemoryAllocation;
                  good = good && gpu_launch(store, 1, 1, 0, nullptr, p[d], d + 1) == cudaSuccess;
              }
              cudaDeviceSynchronize();
              cudaSetDevice(0);
              cudaDeviceSynchronize();
              cudaMemcpy(p[0] + 1, p[1], sizeof(int), cudaMemcpyDefault);
              cudaMemcpy(&value, p[0] + 1, sizeof(int), cudaMemcpyDefault);
              return !(good && value == 2);
          }) == 0);
    CHECK(in_child([] {
              setenv("FLEXLAB_STAND_IN_SEED", "5", 1);
              int *const p = room_for<int>(128), *const next = on_device(std::vector<int>(1, 0));
              gpu_launch(note_order, 1, 128, 0, nullptr, p, next);
              const std::vector<int> order = fetch(p, 128);
              return order[0] == 0 && order[1] == 1 && order[2] == 2;
          }) == 0);
#ifndef TEST_UNDER_ASAN
    const int status = in_child([] {
        int *const p = on_device(std::vector<int>(1, 7));
        gpu_launch(add_to, 1, 1, 0, nullptr, p, 1, 1);
        cudaDeviceSynchronize();
        return *(volatile int *)p; /* memory of the device */
    });
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
#endif
}

#include "test_accesses.h"

int main() {
    setenv("FLEXLAB_STAND_IN_BYTES", "8388608", 0);
    test_environment();
    test_streams();
    test_orders();
    for (uint64_t seed : {0, 1, 2, 3}) {
        set_seed(seed);
        test_threads();
        test_collectives();
        test_atomics();
        test_scalars();
        test_mma();
        test_ldmatrix();
        test_cp_async();
        test_memory();
        test_graphs();
        test_launch_errors();
        test_mistakes();
#ifdef STAND_IN_INSTRUMENTED
        test_checks();
#endif
        CHECK(!stand_in_errors());
        if (stand_in_errors())
            printf("%s", stand_in_messages());
        stand_in_clear();
    }
    printf("%ld checks passed, %ld failed\n", passed, failed);
    return failed != 0;
}
