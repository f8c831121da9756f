// test_ptx_machine.cu - that the PTX machine can fail: kernels and calls with one mistake each, which it must name, and
// what is right, which must pass. Each case runs in a process of its own, because a finding ends one.
//
//     test_ptx_machine [CASE]        CASE: run it in this process
#include "gpu/device.h"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

typedef unsigned __int128 u128;
enum { THREADS = 64 };

// --- kernels: right

__global__ void identities(int *a) {
    a[blockIdx.x * blockDim.x + threadIdx.x] = (int)(blockIdx.x * blockDim.x + threadIdx.x);
}
__global__ void atomics(int *a) {
    atomicAdd(a, (int)threadIdx.x);
}
__global__ void exchange(int *a) {
    __shared__ int buffer[THREADS];
    buffer[threadIdx.x] = (int)threadIdx.x;
    __syncthreads();
    a[threadIdx.x] = buffer[(threadIdx.x + 33) % THREADS];
}
__global__ void sums_of_warps(int *a) {
    int v = (int)threadIdx.x;
    for (int by = 16; by > 0; by /= 2)
        v += __shfl_down_sync(0xffffffffu, v, by);
    a[threadIdx.x] = v;
}
__global__ void maxima_of_warps(int *a) {
    a[threadIdx.x] = (int)__reduce_max_sync(0xffffffffu, (threadIdx.x * 37 + 5) % 64);
}
// The steps of Collatz from each number: lanes part and meet.
__global__ void collatz(int *a) {
    int n = (int)threadIdx.x + 1, steps = 0;
    while (n != 1) {
        if (n % 2)
            n = 3 * n + 1;
        else
            n /= 2;
        steps++;
    }
    a[threadIdx.x] = steps;
}
__device__ __noinline__ int of_array(const int *values, int at) {
    return values[at] + 1;
}
__global__ void local_array(int *a, int n) {
    int values[8];
    for (int i = 0; i < 8; i++)
        values[i] = i * n;
    a[threadIdx.x] = of_array(values, (int)threadIdx.x % 8);
}
__global__ void local_place(int *a, int n) {
    int values[8];
    for (int i = 0; i < 8; i++)
        values[i] = i * n;
    a[threadIdx.x] = of_array(values, n);
}
__global__ void divide_wide(const u128 *a, const u128 *b, u128 *q, u128 *r) {
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    q[i] = a[i] / b[i];
    r[i] = a[i] % b[i];
}
// c[16][8] = a[16][32] b[32][8]: by fragments as device.h describes them; b from shared memory by ldmatrix.
__global__ void tile(const signed char *a, const unsigned char *b, int *c) {
    __shared__ __align__(16) unsigned char rows[8][32]; // b by columns
    const int lane = (int)threadIdx.x, g = lane / 4, t = lane % 4;
    for (int i = 0; i < 8; i++)
        rows[i][lane] = b[lane * 8 + i];
    __syncthreads();
    uint32_t fa[4], fb[4]; // two matrices, twice
    int32_t fc[4] = {0, 0, 0, 0};
    for (int r = 0; r < 4; r++)
        memcpy(&fa[r], &a[(g + 8 * (r % 2)) * 32 + 4 * t + 16 * (r / 2)], 4);
    gpu_ldmatrix_x4(fb, &rows[lane % 8][lane / 8 % 2 * 16]);
    gpu_mma_s8u8(fc, fa, {fb[0], fb[1]});
    for (int j = 0; j < 4; j++)
        c[(g + 8 * (j / 2)) * 8 + 2 * t + j % 2] = fc[j];
}

// --- kernels: wrong

__global__ void beyond(int *a) {
    a[threadIdx.x + 1] = 1;
}
__global__ void read_beyond(int *a) {
    a[threadIdx.x] = a[threadIdx.x + 1];
}
__global__ void misaligned(int *a) {
    *(volatile int *)((char *)a + 2) = 1;
}
__global__ void copy_of(const int *from, int *to) {
    to[threadIdx.x] = from[threadIdx.x];
}
__global__ void all_to_one(int *a) {
    a[0] = (int)threadIdx.x;
}
__global__ void from_neighbour(int *a) {
    a[threadIdx.x] = ((volatile int *)a)[(threadIdx.x + 1) % THREADS] + 1;
}
__global__ void read_only_and_written(int *a) {
    int x;
    a[threadIdx.x] = 1;
    asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(x) : "l"(a + threadIdx.x) : "memory");
    a[threadIdx.x] = x + 1;
}
__global__ void without_barrier(int *a) {
    __shared__ volatile int buffer[THREADS];
    buffer[threadIdx.x] = (int)threadIdx.x;
    a[threadIdx.x] = buffer[(threadIdx.x + 33) % THREADS];
}
// One thread writes what all of its warp read at once.
__global__ void written_by_one(int *a, int writer) {
    volatile int *const place = a + 200;
    if ((int)threadIdx.x == writer)
        *place = 1;
    a[threadIdx.x] = *place;
}
__global__ void shared_by_one(int *a, int writer) {
    __shared__ volatile int place;
    if ((int)threadIdx.x == writer)
        place = 1;
    a[threadIdx.x] = place;
}
__global__ void late_reader(int *a) {
    __shared__ volatile int buffer[THREADS];
    buffer[threadIdx.x] = (int)threadIdx.x;
    __syncthreads();
    const int x = buffer[(threadIdx.x + 33) % THREADS];
    buffer[threadIdx.x] = x;
    a[threadIdx.x] = x;
}
__global__ void early_end(int *a) {
    __shared__ volatile int buffer[THREADS];
    buffer[threadIdx.x] = 1;
    if (threadIdx.x == 5)
        return;
    __syncthreads();
    a[threadIdx.x] = buffer[threadIdx.x];
}
__global__ void two_barriers(int *a) {
    if (threadIdx.x % 2) {
        __syncthreads();
        a[threadIdx.x] = 1;
    } else {
        __syncthreads();
        a[threadIdx.x] = 2;
    }
}
__global__ void beyond_shared(int *a, int by) {
    __shared__ volatile int buffer[THREADS];
    buffer[threadIdx.x + by] = 1;
    a[threadIdx.x] = 1;
}
__global__ void unwritten_shared(int *a) {
    __shared__ volatile int buffer[THREADS];
    a[threadIdx.x] = buffer[threadIdx.x];
}
__global__ void copies(int *a, const int *b, int valid, int wait, int barrier, int by) {
    __shared__ __align__(16) int buffer[4 * THREADS];
    gpu_cp_async16(&buffer[4 * threadIdx.x], b + 4 * threadIdx.x, valid);
    gpu_cp_commit();
    if (wait)
        gpu_cp_wait<0>();
    if (barrier)
        __syncthreads();
    if (by >= 0)
        a[threadIdx.x] = ((volatile int *)buffer)[4 * ((threadIdx.x + by) % THREADS)];
}
__global__ void absent_lanes(int *a) {
    int v = (int)threadIdx.x;
    if (threadIdx.x < 16)
        v = __shfl_down_sync(0xffffffffu, v, 1);
    a[threadIdx.x] = v;
}
__global__ void not_in_its_mask(int *a) {
    a[threadIdx.x] = __shfl_down_sync(0x0000ffffu, (int)threadIdx.x, 1);
}
__global__ void too_large(int *a, double x) {
    a[threadIdx.x] = (int)x;
}
__global__ void quotient(int *a, int by) {
    a[threadIdx.x] = (int)threadIdx.x / by;
}
__global__ void unwritten_register(int *a) {
    asm volatile("{ .reg .u32 nothing; st.global.u32 [%0], nothing; }" ::"l"(a + threadIdx.x) : "memory");
}
__global__ void unwritten_branch(int *a) {
    asm volatile("{ .reg .u32 nothing; .reg .pred p; setp.eq.u32 p, nothing, 3; @p st.global.u32 [%0], 1; }" ::"l"(
                     a + threadIdx.x)
                 : "memory");
}
__global__ void unwritten_local(int *a, int n) {
    volatile int values[4];
    values[n] = 1;
    a[threadIdx.x] = values[n + 1];
}
__global__ void traps() {
    asm volatile("trap;");
}

// --- cases

static cudaStream_t s;
static cudaMemPool_t pool;
static int *a, *b, host[4 * THREADS], *pinned;

template <class T> static cudaError_t allocate(T **p, size_t bytes) {
    return cudaMallocFromPoolAsync((void **)p, bytes, pool, s);
}

static void failed(const char *what) {
    fprintf(stderr, "wrong result: %s\n", what);
    exit(3);
}
static void get(void *to, const void *from, size_t bytes) {
    cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, s);
    (void)cudaStreamSynchronize(s);
}
static uint64_t random_bits() {
    static uint64_t z = 1;
    z = z * 6364136223846793005u + 1442695040888963407u;
    return (z ^ z >> 29) * 0xbf58476d1ce4e5b9u;
}
static void check_division() {
    enum { N = 2048 };
    static u128 x[N], y[N], q[N], r[N];
    for (int i = 0; i < N; i++) {
        x[i] = ((u128)random_bits() << 64 | random_bits()) >> random_bits() % 127;
        y[i] = ((u128)random_bits() << 64 | random_bits()) >> random_bits() % 127;
        y[i] += !y[i];
    }
    u128 *d[4];
    for (int i = 0; i < 4; i++)
        allocate(&d[i], sizeof x);
    cudaMemcpyAsync(d[0], x, sizeof x, cudaMemcpyHostToDevice, s);
    cudaMemcpyAsync(d[1], y, sizeof y, cudaMemcpyHostToDevice, s);
    divide_wide<<<N / 256, 256, 0, s>>>(d[0], d[1], d[2], d[3]);
    get(q, d[2], sizeof q);
    get(r, d[3], sizeof r);
    for (int i = 0; i < N; i++)
        if (q[i] != x[i] / y[i] || r[i] != x[i] % y[i])
            failed("a division of 128 bits");
}
static void check_tile() {
    signed char x[16][32];
    unsigned char y[32][8];
    int got[16][8];
    for (int i = 0; i < 512; i++)
        ((signed char *)x)[i] = (signed char)random_bits();
    for (int i = 0; i < 256; i++)
        ((unsigned char *)y)[i] = (unsigned char)random_bits();
    signed char *dx;
    unsigned char *dy;
    int *dc;
    allocate(&dx, sizeof x);
    allocate(&dy, sizeof y);
    allocate(&dc, sizeof got);
    cudaMemcpyAsync(dx, x, sizeof x, cudaMemcpyHostToDevice, s);
    cudaMemcpyAsync(dy, y, sizeof y, cudaMemcpyHostToDevice, s);
    tile<<<1, 32, 0, s>>>(dx, dy, dc);
    get(got, dc, sizeof got);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            int want = 0;
            for (int k = 0; k < 32; k++)
                want += x[i][k] * y[k][j];
            if (got[i][j] != want)
                failed("a product of tiles");
        }
}
static void capture(void (*run)()) {
    cudaGraph_t graph;
    cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal);
    run();
    cudaStreamEndCapture(s, &graph);
}
static int steps_of_collatz(int i) {
    int n = i + 1, k = 0;
    for (; n != 1; k++)
        n = n % 2 ? 3 * n + 1 : n / 2;
    return k;
}

struct test {
    const char *expected; // in what the machine prints; NULL: nothing
    const char *name;
    void (*run)();
    int (*element)(int i) = NULL; // of `a` afterwards; NULL: is not looked at
};
static const struct test tests[] = {
    {NULL, "threads", [] { identities<<<1, THREADS, 0, s>>>(a); }, [](int i) { return i; }},
    {NULL, "atomic sums",
     [] {
         atomics<<<4, THREADS, 0, s>>>(b);
         get(host, b, 4);
         if (host[0] != 4 * 2016)
             failed("atomics");
     }},
    {NULL, "a barrier", [] { exchange<<<1, THREADS, 0, s>>>(a); }, [](int i) { return (i + 33) % THREADS; }},
    {NULL, "shuffles",
     [] {
         sums_of_warps<<<1, THREADS, 0, s>>>(a);
         get(host, a, 256);
         if (host[0] != 496 || host[32] != 1520)
             failed("shuffles");
     }},
    {NULL, "maxima", [] { maxima_of_warps<<<1, THREADS, 0, s>>>(a); }, [](int i) { return i < 32 ? 62 : 63; }},
    {NULL, "divergence", [] { collatz<<<1, THREADS, 0, s>>>(a); }, steps_of_collatz},
    {NULL, "local memory", [] { local_array<<<1, THREADS, 0, s>>>(a, 5); }, [](int i) { return i % 8 * 5 + 1; }},
    {NULL, "local memory at one place", [] { local_place<<<1, THREADS, 0, s>>>(a, 5); }, [](int) { return 26; }},
    {NULL, "128 bits", check_division},
    {NULL, "tensor cores", check_tile},
    {NULL, "copies", [] { copies<<<1, THREADS, 0, s>>>(a, b, 16, 1, 1, 1); }, [](int) { return 0; }},
    {NULL, "zeros", [] { copies<<<1, THREADS, 0, s>>>(a, b, 0, 1, 1, 1); }, [](int) { return 0; }},
    {"which is not allocated", "a write beyond an allocation", [] { beyond<<<1, THREADS, 0, s>>>(a); }},
    {"which is not allocated", "a read beyond an allocation", [] { read_beyond<<<1, 4 * THREADS, 0, s>>>(b); }},
    {"is no multiple of", "a misaligned address", [] { misaligned<<<1, 1, 0, s>>>(a); }},
    {"never written", "a read of what nobody wrote", [] { copy_of<<<1, THREADS, 0, s>>>(a, b); }},
    {"is not the device's", "memory of the host", [] { copy_of<<<1, THREADS, 0, s>>>(host, b); }},
    {"race in global memory", "threads that write one place", [] { all_to_one<<<1, THREADS, 0, s>>>(b); }},
    {"race in global memory", "threads that write what others read", [] { from_neighbour<<<1, THREADS, 0, s>>>(b); }},
    {"race in global memory", "blocks that write one place",
     [] {
         identities<<<2, 1, 0, s>>>(b);
         all_to_one<<<2, 1, 0, s>>>(b);
     }},
    {"ld.nc", "the read-only path to what is written", [] { read_only_and_written<<<1, 1, 0, s>>>(b); }},
    {"race in global memory", "the first thread writes what all read", [] { written_by_one<<<1, 32, 0, s>>>(b, 0); }},
    {"race in global memory", "the last thread writes what all read", [] { written_by_one<<<1, 32, 0, s>>>(b, 31); }},
    {"race in shared memory", "the first thread shares what all read", [] { shared_by_one<<<1, 32, 0, s>>>(a, 0); }},
    {"race in shared memory", "the last thread shares what all read", [] { shared_by_one<<<1, 32, 0, s>>>(a, 31); }},
    {"race in shared memory", "no barrier", [] { without_barrier<<<1, THREADS, 0, s>>>(a); }},
    {"race in shared memory", "a barrier too few", [] { late_reader<<<1, THREADS, 0, s>>>(a); }},
    {"a barrier that threads do not reach", "a thread that ends before a barrier",
     [] { early_end<<<1, THREADS, 0, s>>>(a); }},
    {"lanes wait for each other", "two barriers in two branches", [] { two_barriers<<<1, THREADS, 0, s>>>(a); }},
    {"is beyond", "beyond shared memory", [] { beyond_shared<<<1, THREADS, 0, s>>>(a, 60); }},
    {"shared memory that was never written", "shared memory that nobody wrote",
     [] { unwritten_shared<<<1, THREADS, 0, s>>>(a); }},
    {"an asynchronous copy still writes", "a copy without a wait",
     [] { copies<<<1, THREADS, 0, s>>>(a, b, 16, 0, 1, 0); }},
    {"race in shared memory", "a copy of another thread without a barrier",
     [] { copies<<<1, THREADS, 0, s>>>(a, b, 16, 1, 0, 1); }},
    {"nobody has waited for", "a copy that is not waited for",
     [] { copies<<<1, THREADS, 0, s>>>(a, b, 16, 0, 0, -1); }},
    {"is not aligned", "a copy from an odd address", [] { copies<<<1, 1, 0, s>>>(a, b + 1, 16, 1, 1, 0); }},
    {"a mask with lanes that have ended", "a mask of lanes that do not come", [] { absent_lanes<<<1, 32, 0, s>>>(a); }},
    {"not in its mask", "a lane that is not in its mask", [] { not_in_its_mask<<<1, 32, 0, s>>>(a); }},
    {"beyond the range", "a float beyond an integer", [] { too_large<<<1, 1, 0, s>>>(a, 3e10); }},
    {"beyond the range", "a NaN as an integer", [] { too_large<<<1, 1, 0, s>>>(a, strtod("nan", NULL)); }},
    {"division of integers by zero", "a division by zero", [] { quotient<<<1, 1, 0, s>>>(a, 0); }},
    {"never written decides", "a register that is stored unwritten", [] { unwritten_register<<<1, 1, 0, s>>>(a); }},
    {"never written decides", "a register that decides unwritten", [] { unwritten_branch<<<1, 1, 0, s>>>(a); }},
    {"never written decides", "local memory that is stored unwritten", [] { unwritten_local<<<1, 1, 0, s>>>(a, 0); }},
    {"a trap", "a trap", [] { traps<<<1, 1, 0, s>>>(); }},
    {"sizes out of range", "too many threads", [] { identities<<<1, 2048, 0, s>>>(a); }},
    {"sizes out of range", "no blocks", [] { identities<<<0, 32, 0, s>>>(a); }},
    {"more shared memory", "too much shared memory", [] { identities<<<1, 32, 64 << 10, s>>>(a); }},
    {"while a stream is captured", "a wait in a capture", [] { capture([] { (void)cudaStreamSynchronize(s); }); }},
    {"pageable memory is captured", "a pageable copy in a capture",
     [] { capture([] { cudaMemcpyAsync(b, host, 256, cudaMemcpyHostToDevice, s); }); }},
    {"while a stream is captured", "pinned memory in a capture",
     [] { capture([] { cudaHostAlloc((void **)&pinned, 256, 0); }); }},
    {"allocation that is captured", "an allocation in a capture", [] { capture([] { allocate(&a, 256); }); }},
    {"stream of another device", "a launch while another device is the current one",
     [] {
         cudaSetDevice(1);
         identities<<<1, 32, 0, s>>>(b);
         cudaSetDevice(0);
     }},
    {"whose memory is in use", "a pool that is destroyed in use", [] { cudaMemPoolDestroy(pool); }},
    {"a call in a fork", "a call in a fork",
     [] {
         int status;
         if (!fork())
             cudaStreamSynchronize(s);
         else if (wait(&status) > 0)
             exit(WEXITSTATUS(status));
     }},
    {"which is not allocated", "use after it was freed",
     [] {
         cudaFreeAsync(b, s);
         all_to_one<<<1, 1, 0, s>>>(b);
     }},
    {"memory is freed that is none", "memory that is freed twice",
     [] {
         cudaFreeAsync(b, s);
         cudaFreeAsync(b, s);
     }},
    {"direction", "the wrong direction", [] { cudaMemcpyAsync(b, host, 256, cudaMemcpyDeviceToHost, s); }},
    {"what is not allocated", "a copy beyond an allocation",
     [] { cudaMemcpyAsync(b, host, 1100, cudaMemcpyHostToDevice, s); }},
    {"device memory that was never written", "a copy of what nobody wrote", [] { get(host, a, 256); }},
    {NULL, "pinned memory is rubbish before a wait",
     [] {
         cudaMemcpyAsync(pinned, b, 256, cudaMemcpyDeviceToHost, s);
         if (!pinned[0])
             failed("a copy came early");
         cudaStreamSynchronize(s);
         if (pinned[0])
             failed("a copy did not come");
     }},
    {NULL, "a copy from pinned memory comes late",
     [] {
         pinned[0] = 1;
         cudaMemcpyAsync(b, pinned, 256, cudaMemcpyHostToDevice, s);
         pinned[0] = 2;
         get(host, b, 4);
         if (host[0] != 2)
             failed("a copy came early");
     }},
    {NULL, "a fault stays",
     [] {
         if (cudaStreamSynchronize(s))
             failed("an error without a reason");
     }},
};
enum { COUNT = sizeof tests / sizeof tests[0] };

static int run_here(int number) {
    cudaMemPoolProps of;
    memset(&of, 0, sizeof of);
    if (cudaMemPoolCreate(&pool, &of) || cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) || allocate(&a, 256) ||
        allocate(&b, 1024) || cudaMemsetAsync(b, 0, 1024, s) || cudaHostAlloc((void **)&pinned, 256, 0))
        failed("the beginning");
    memset(pinned, 0, 256);
    tests[number].run();
    if (tests[number].element)
        get(host, a, sizeof(int) * THREADS);
    for (int i = 0; tests[number].element && i < THREADS; i++)
        if (host[i] != tests[number].element(i))
            failed(tests[number].name);
    (void)cudaStreamSynchronize(s);
    return 0;
}

// What case `number` prints, and its exit status.
static std::string said(const char *self, int number, bool diverge, int *status) {
    const std::string command =
        "FLEXLAB_PTX_DEVICES=2 FLEXLAB_PTX_BYTES=33554432 FLEXLAB_PTX_CHECKS=nan,registers,races" +
        std::string(diverge ? ",diverge " : " ") + "'" + self + "' " + std::to_string(number) + " 2>&1";
    FILE *const pipe = popen(command.c_str(), "r");
    std::string text;
    for (int c; (c = fgetc(pipe)) != EOF;)
        text += (char)c;
    const int ended = pclose(pipe);
    *status = WIFEXITED(ended) ? WEXITSTATUS(ended) : -1;
    return text;
}

int main(int argc, char **argv) {
    if (argc > 1)
        return run_here(atoi(argv[1]) % COUNT);
    int bad = 0;
    for (int i = 0; i < 2 * COUNT; i++) {
        const struct test *t = &tests[i / 2];
        int status;
        const std::string text = said(argv[0], i / 2, i % 2, &status);
        const bool found = t->expected && text.find("ptx: FINDING") != text.npos && text.find(t->expected) != text.npos;
        if (t->expected ? found && status == 98 : status == 0 && text.empty())
            continue;
        bad++;
        printf("FAILED %s%s: status %d, expected %s, printed: %s\n", t->name, i % 2 ? ", diverging" : "", status,
               t->expected ? t->expected : "nothing", text.substr(0, 400).c_str());
    }
    printf("%d cases in order and diverging, %d wrong\n", COUNT, bad);
    return bad != 0;
}
