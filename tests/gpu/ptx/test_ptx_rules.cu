// test_ptx_rules.cu - the rules that a processor and a device share give the same numbers on both, on random cases over
// the whole range of exponents (shared_rules.h); executed by the PTX machine.
#include "gpu/shared_rules.h"

__global__ void cases(int rule, int count, uint64_t *hashes) {
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < count)
        hashes[i] = shared_hash(rule, (uint64_t)i);
}

int main() {
    enum { COUNT = 20000 };
    static uint64_t there[COUNT];
    cudaMemPool_t pool;
    cudaMemPoolProps of;
    cudaStream_t stream;
    void *memory;
    memset(&of, 0, sizeof of);
    if (cudaMemPoolCreate(&pool, &of) || cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) ||
        cudaMallocFromPoolAsync(&memory, sizeof there, pool, stream))
        return 1;
    int bad = 0;
    for (int rule = 0; rule < (int)(sizeof shared_names / sizeof *shared_names); rule++) {
        cases<<<(COUNT + 63) / 64, 64, 0, stream>>>(rule, COUNT, (uint64_t *)memory);
        if (cudaMemcpyAsync(there, memory, sizeof there, cudaMemcpyDeviceToHost, stream) ||
            cudaStreamSynchronize(stream))
            return 1;
        int differ = 0;
        for (int i = 0; i < COUNT; i++)
            differ += shared_hash(rule, (uint64_t)i) != there[i];
        printf("%s: %d cases, %d differ\n", shared_names[rule], COUNT, differ);
        bad += differ;
    }
    return bad != 0;
}
