/* device.h - the only header of CUDA that kernel sources include.
 *
 * Rules of kernel sources: launches through gpu_launch, dynamic shared memory through GPU_DYNAMIC_SHARED, PTX only
 * here, no __CUDA_ARCH__, no cub and no cooperative groups. Threads of a block that uses barriers do not return before
 * the last one, and lanes in the mask of a collective not before it.
 *
 * Fragments of m16n8k32 (PTX ISA, "Matrix Fragments for mma.m16n8k32"), with g = lane / 4 and t = lane % 4:
 *
 *   operand  register  byte or element  row                  column
 *   a        r = 0..3  byte i           g + 8 (r mod 2)      k = 4 t + i + 16 (r div 2)
 *   b        r = 0..1  byte i           k = 4 t + i + 16 r   g
 *   c, d     j = 0..3  whole            g + 8 (j div 2)      2 t + (j mod 2)
 *
 * ldmatrix: lane 8 m + j gives the address of row j of the 8 x 8 matrix m of 16-bit elements. Register m receives row
 * g, columns 2 t and 2 t + 1; with trans, rows 2 t and 2 t + 1 of column g. */
#ifndef FL_GPU_DEVICE_H
#define FL_GPU_DEVICE_H

#include <cuda_runtime.h>
#include <stddef.h>
#include <stdint.h>

/* Dynamic shared memory of the block as an array of `type`, aligned to 128 bytes. */
#define GPU_DYNAMIC_SHARED(type, name)                                                                                 \
    extern __shared__ __align__(128) unsigned char gpu_dynamic_shared[];                                               \
    type *const name = reinterpret_cast<type *>(gpu_dynamic_shared)

/* Returns an error of CUDA to the caller. */
#define TRY_CUDA(what)                                                                                                 \
    do {                                                                                                               \
        const cudaError_t error_ = (what);                                                                             \
        if (error_ != cudaSuccess)                                                                                     \
            return error_;                                                                                             \
    } while (0)

template <class... P, class... A>
static inline cudaError_t gpu_launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes,
                                     cudaStream_t stream, A... arguments) {
    kernel<<<grid, block, shared_bytes, stream>>>(static_cast<P>(arguments)...);
    return cudaGetLastError();
}

/* d += a b; all 32 lanes of a warp together. Of bytes, whose types the name gives, exact modulo 2^32; of floats with
 * sums of binary32, in the order of the GPU. Fragments of floats are those of ldmatrix: of a, rows 0 to 7 and 8 to 15
 * of the first 16 bytes along k, then of the next; of b, the first 16 bytes and the next. */
#define GPU_MMA(name, sum, place, types)                                                                               \
    static __device__ __forceinline__ void name(sum(&d)[4], const uint32_t(&a)[4], const uint32_t(&b)[2]) {            \
        asm("mma.sync.aligned." types " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                         \
            : place(d[0]), place(d[1]), place(d[2]), place(d[3])                                                       \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                                       \
    }
GPU_MMA(gpu_mma_s8s8, int32_t, "+r", "m16n8k32.row.col.s32.s8.s8.s32")
GPU_MMA(gpu_mma_s8u8, int32_t, "+r", "m16n8k32.row.col.s32.s8.u8.s32")
GPU_MMA(gpu_mma_u8s8, int32_t, "+r", "m16n8k32.row.col.s32.u8.s8.s32")
GPU_MMA(gpu_mma_u8u8, int32_t, "+r", "m16n8k32.row.col.s32.u8.u8.s32")
GPU_MMA(gpu_mma_f16, float, "+f", "m16n8k16.row.col.f32.f16.f16.f32")
GPU_MMA(gpu_mma_bf16, float, "+f", "m16n8k16.row.col.f32.bf16.bf16.f32")
GPU_MMA(gpu_mma_tf32, float, "+f", "m16n8k8.row.col.f32.tf32.tf32.f32")
#undef GPU_MMA
/* fp16 with sums of fp16, of which a register has two neighbours. */
static __device__ __forceinline__ void gpu_mma_f16(uint32_t (&d)[2], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%0,%1};"
        : "+r"(d[0]), "+r"(d[1])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

static __device__ __forceinline__ uint32_t gpu_shared_address(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* `row`: 16 bytes of shared memory, aligned to 16. */
#define GPU_LDMATRIX_X4(name, shape)                                                                                   \
    static __device__ __forceinline__ void name(uint32_t(&r)[4], const void *row) {                                    \
        asm volatile("ldmatrix.sync.aligned.m8n8." shape ".shared.b16 {%0,%1,%2,%3}, [%4];"                            \
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])                                                  \
                     : "r"(gpu_shared_address(row))                                                                    \
                     : "memory");                                                                                      \
    }
GPU_LDMATRIX_X4(gpu_ldmatrix_x4, "x4")
GPU_LDMATRIX_X4(gpu_ldmatrix_x4_trans, "x4.trans")
#undef GPU_LDMATRIX_X4

/* Starts a copy of 16 bytes to shared memory: the first valid_bytes (0 to 16) from src, zeros after them. Both
 * addresses are aligned to 16, even if valid_bytes is 0. */
static __device__ __forceinline__ void gpu_cp_async16(void *dst_shared, const void *src_global, int valid_bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(gpu_shared_address(dst_shared)), "l"(src_global),
                 "r"(valid_bytes)
                 : "memory");
}
/* Closes a group of this thread's copies. */
static __device__ __forceinline__ void gpu_cp_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Waits until at most `pending` of this thread's groups are unfinished; other threads see the bytes after a barrier. */
template <int pending> static __device__ __forceinline__ void gpu_cp_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

/* A binary16; of a NaN the payload is open. */
static __device__ __forceinline__ float gpu_float_of_half(uint16_t h) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
    return x;
}

#endif
