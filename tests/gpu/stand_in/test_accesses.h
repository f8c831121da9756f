/* test_accesses.h - test_stand_in: the checks of loads and stores, in kernels compiled with -fsanitize=thread. Included
 * once, behind the helpers that it uses. */
#ifndef TEST_ACCESSES_H
#define TEST_ACCESSES_H

#ifdef STAND_IN_INSTRUMENTED

__global__ void no_second_barrier(int *out, int n) {
    GPU_DYNAMIC_SHARED(int, s);
    const int t = (int)threadIdx.x;
    for (int i = 0; i < 3; i++) {
        s[t] = t + i;
        __syncthreads();
        out[t] = s[(t + 37) % n];
    }
}
__global__ void exchange_in_warp(int *out, int sync) {
    __shared__ int s[64];
    const int t = (int)threadIdx.x;
    s[t] = t;
    if (sync)
        __syncwarp();
    out[t] = s[t ^ 1];
}
__global__ void static_without_barrier(int *out) {
    __shared__ int s[64];
    const int t = (int)threadIdx.x;
    s[t] = t;
    out[t] = s[63 - t];
}
__global__ void past_static_shared(int *out, int at) {
    __shared__ int s[64];
    s[at] = 1;
    __syncthreads();
    out[0] = s[at];
}
__global__ void unwritten_shared(int *out) {
    GPU_DYNAMIC_SHARED(int, s);
    out[threadIdx.x] = s[threadIdx.x];
}
__global__ void double_up(int *out, const int *in) {
    out[threadIdx.x] = 2 * in[threadIdx.x];
}
__global__ void same_place(int *out) {
    *out = (int)blockIdx.x;
}
__global__ void read_of_other_block(int *p) {
    p[blockIdx.x] = blockIdx.x ? p[0] : 5;
}
__global__ void write_after_read(int *p, int *out) {
    if (blockIdx.x == 0)
        p[0] = 5;
    else
        out[0] = p[0];
}
__global__ void plain_and_atomic(int *p) {
    if (blockIdx.x == 0)
        *p = 1;
    else
        atomicAdd(p, 1);
}
/* The block that takes the last ticket adds up what the others have left. */
__global__ void last_block(int *total, int *part, unsigned *ticket, int fence) {
    __shared__ int last;
    if (threadIdx.x == 0) {
        part[blockIdx.x] = (int)blockIdx.x + 1;
        if (fence)
            __threadfence();
        last = atomicAdd(ticket, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last || threadIdx.x)
        return;
    int sum = 0;
    for (unsigned i = 0; i < gridDim.x; i++)
        sum += part[i];
    *total = sum;
}
__global__ void crooked_load(int *out, const char *in) {
    *out = *(const int *)(in + 2);
}
static const int table[4] = {1, 2, 3, 4};
__global__ void from_table(int *out) {
    out[threadIdx.x] = table[threadIdx.x & 3];
}

static void test_checks() {
    int *const p = on_device(std::vector<int>(256, 3)), *const fresh = room_for<int>(256),
               *const out = room_for<int>(256);
    unsigned *const ticket = on_device(std::vector<unsigned>(1, 0));
    stand_in_print(false);
    gpu_launch(double_up, 1, 256, 0, nullptr, out, (const int *)p);
    CHECK(unnoticed());
    gpu_launch(double_up, 1, 256, 0, nullptr, out, (const int *)fresh);
    CHECK(noticed("not been written"));
    gpu_launch(double_up, 1, 256, 0, nullptr, out, (const int *)p + 1);
    CHECK(noticed("outside of every allocation"));
    gpu_launch(double_up, 1, 1, 0, nullptr, out - 1, (const int *)p);
    CHECK(noticed("outside of every allocation"));
    int on_host[4] = {0};
    gpu_launch(double_up, 1, 1, 0, nullptr, out, (const int *)on_host);
    CHECK(noticed("address of the host"));
    gpu_launch(crooked_load, 1, 1, 0, nullptr, out, (const char *)p);
    CHECK(noticed("not aligned"));
    gpu_launch(from_table, 1, 32, 0, nullptr, out);
    CHECK(unnoticed());
    int *const gone = room_for<int>(256);
    cudaFree(gone);
    gpu_launch(store, 1, 1, 0, nullptr, gone, 1);
    CHECK(noticed("outside of every allocation"));
    cudaMemcpyAsync(out, fresh, 4, cudaMemcpyDeviceToDevice);
    gpu_launch(double_up, 1, 1, 0, nullptr, p, (const int *)out);
    CHECK(noticed("not been written"));

    gpu_launch(no_barrier, 1, 64, 256, nullptr, out, 64);
    CHECK(noticed(seed_now ? "of" : "not written"));
    gpu_launch(no_second_barrier, 1, 64, 256, nullptr, out, 64);
    CHECK(noticed("races"));
    gpu_launch(exchange_in_warp, 1, 64, 0, nullptr, out, 1);
    CHECK(unnoticed());
    gpu_launch(exchange_in_warp, 1, 64, 0, nullptr, out, 0);
    CHECK(noticed("shared memory"));
    gpu_launch(static_without_barrier, 1, 64, 0, nullptr, out);
    CHECK(noticed("races"));
    gpu_launch(unwritten_shared, 1, 32, 128, nullptr, out);
    CHECK(noticed("not written"));
    gpu_launch(past_dynamic_shared, 1, 1, 256, nullptr, out, 64);
    CHECK(noticed("outside of dynamic shared memory"));

    gpu_launch(same_place, 2, 1, 0, nullptr, out);
    CHECK(noticed("races with an earlier write"));
    gpu_launch(read_of_other_block, 2, 1, 0, nullptr, p);
    CHECK(noticed("races"));
    gpu_launch(write_after_read, 2, 1, 0, nullptr, p, out);
    CHECK(noticed("races"));
    gpu_launch(plain_and_atomic, 2, 1, 0, nullptr, p);
    CHECK(noticed("races"));
    gpu_launch(last_block, 8, 32, 0, nullptr, out, p, ticket, 1);
    CHECK(unnoticed());
    cudaMemset(ticket, 0, sizeof *ticket);
    gpu_launch(last_block, 8, 32, 0, nullptr, out, p, ticket, 0);
    CHECK(noticed("races"));

    gpu_launch(copy_async, 1, 32, 1024, nullptr, out, (const int *)p, 16, 2, 1);
    CHECK(unnoticed());
    gpu_launch(copy_async, 1, 32, 1024, nullptr, out, (const int *)p, 16, 1, 1);
    CHECK(noticed("cp.async"));
    gpu_launch(copy_async, 1, 32, 1024, nullptr, out, (const int *)p, 16, 0, 1);
    CHECK(noticed("cp.async"));
    gpu_launch(copy_async, 1, 32, 1024, nullptr, out, (const int *)p, 16, 2, 0);
    CHECK(noticed(""));
    gpu_launch(past_static_shared, 1, 1, 0, nullptr, out, 63);
    CHECK(unnoticed());
    stand_in_print(true);
    cudaFree(p);
    cudaFree(fresh);
    cudaFree(out);
    cudaFree(ticket);
}

#endif

#endif
