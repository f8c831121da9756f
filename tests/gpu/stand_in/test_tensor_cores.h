/* test_tensor_cores.h - test_stand_in: tensor-core operations, ldmatrix and asynchronous copies. Included once, behind
 * the helpers that it uses. */
#ifndef TEST_TENSOR_CORES_H
#define TEST_TENSOR_CORES_H

/* d += a b with fragments by the table of device.h; a 16 x 32, b 32 x 8, d 16 x 8, row-major. */
__global__ void multiply(int32_t *d, const uint8_t *a, const uint8_t *b, int mix) {
    const int l = (int)threadIdx.x, g = l / 4, t = l % 4;
    uint32_t ra[4] = {0}, rb[2] = {0};
    int32_t rd[4];
    for (int i = 0; i < 4; i++) {
        for (int r = 0; r < 4; r++)
            ra[r] |= (uint32_t)a[(g + 8 * (r % 2)) * 32 + 4 * t + i + 16 * (r / 2)] << 8 * i;
        for (int r = 0; r < 2; r++)
            rb[r] |= (uint32_t)b[(4 * t + i + 16 * r) * 8 + g] << 8 * i;
        rd[i] = d[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2];
    }
    switch (mix) {
    case 0:
        gpu_mma_s8s8(rd, ra, rb);
        break;
    case 1:
        gpu_mma_s8u8(rd, ra, rb);
        break;
    case 2:
        gpu_mma_u8s8(rd, ra, rb);
        break;
    default:
        gpu_mma_u8u8(rd, ra, rb);
        break;
    }
    for (int j = 0; j < 4; j++)
        d[(g + 8 * (j / 2)) * 8 + 2 * t + j % 2] = rd[j];
}

static void test_mma() {
    for (int mix = 0; mix < 4; mix++)
        for (int round = 0; round < 20; round++) {
            std::vector<uint8_t> a(512), b(256);
            std::vector<int32_t> d(128);
            for (uint8_t &v : a)
                v = round == 0 ? 0x80 : round == 1 ? 0xff : (uint8_t)draw();
            for (uint8_t &v : b)
                v = round < 2 ? 0x80 : (uint8_t)draw();
            for (int32_t &v : d)
                v = (int32_t)draw();
            std::vector<int32_t> want = d;
            for (int i = 0; i < 16; i++)
                for (int j = 0; j < 8; j++)
                    for (int k = 0; k < 32; k++) {
                        const uint8_t x = a[(size_t)(i * 32 + k)], y = b[(size_t)(k * 8 + j)];
                        const int p = (mix < 2 ? (int8_t)x : (int)x) * (mix % 2 ? (int)y : (int8_t)y);
                        int32_t &w = want[(size_t)(i * 8 + j)];
                        w = (int32_t)((uint32_t)w + (uint32_t)p);
                    }
            uint8_t *const da = on_device(a), *const db = on_device(b);
            int32_t *const dd = on_device(d);
            gpu_launch(multiply, 1, 32, 0, nullptr, dd, (const uint8_t *)da, (const uint8_t *)db, mix);
            CHECK(fetch(dd, 128) == want);
            cudaFree(da);
            cudaFree(db);
            cudaFree(dd);
        }
}

/* Eight registers a lane: x4, x2 and x1, or with trans. Matrix m is rows 8 m to 8 m + 7 of eight elements. */
__global__ void load_matrices(uint32_t *out, const uint16_t *in, int trans) {
    __shared__ __align__(16) uint16_t s[32 * 8];
    const int l = (int)threadIdx.x;
    for (int i = l; i < 32 * 8; i += 32)
        s[i] = in[i];
    __syncthreads();
    uint32_t four[4], two[2], one[1];
    if (trans) {
        gpu_ldmatrix_x4_trans(four, s + 8 * l);
        gpu_ldmatrix_x2_trans(two, s + 8 * l);
        gpu_ldmatrix_x1_trans(one, s + 8 * l);
    } else {
        gpu_ldmatrix_x4(four, s + 8 * l);
        gpu_ldmatrix_x2(two, s + 8 * l);
        gpu_ldmatrix_x1(one, s + 8 * l);
    }
    for (int i = 0; i < 4; i++)
        out[8 * l + i] = four[i];
    for (int i = 0; i < 2; i++)
        out[8 * l + 4 + i] = two[i];
    out[8 * l + 6] = one[0];
    out[8 * l + 7] = 0;
}

static void test_ldmatrix() {
    std::vector<uint16_t> in(256);
    for (uint16_t &v : in)
        v = (uint16_t)draw();
    uint16_t *const from = on_device(in);
    uint32_t *const to = room_for<uint32_t>(256);
    for (int trans = 0; trans < 2; trans++) {
        gpu_launch(load_matrices, 1, 32, 0, nullptr, to, (const uint16_t *)from, trans);
        const std::vector<uint32_t> out = fetch(to, 256);
        bool good = true;
        for (int l = 0; l < 32; l++)
            for (int r = 0; r < 7; r++) {
                const int m = r < 4 ? r : r < 6 ? r - 4 : 0, g = l / 4, t = l % 4;
                uint32_t want = 0;
                for (int i = 0; i < 2; i++) {
                    const int row = trans ? 2 * t + i : g, column = trans ? g : 2 * t + i;
                    want |= (uint32_t)in[(size_t)(64 * m + 8 * row + column)] << 16 * i;
                }
                good = good && out[(size_t)(8 * l + r)] == want;
            }
        CHECK(good);
    }
    cudaFree(from);
    cudaFree(to);
}

/* Each thread copies two times 16 bytes, of which the second is cut to `valid`. wait: 0 none, 1 for the first group, 2
 * for both. */
__global__ void copy_async(int *out, const int *in, int valid, int wait, int barrier) {
    GPU_DYNAMIC_SHARED(int, s);
    const int t = (int)threadIdx.x, n = 4 * (int)blockDim.x;
    gpu_cp_async16(s + 4 * t, in + 4 * t, 16);
    gpu_cp_commit();
    gpu_cp_async16(s + n + 4 * t, in + n + 4 * t, valid);
    gpu_cp_commit();
    if (wait == 1)
        gpu_cp_wait<1>();
    if (wait == 2)
        gpu_cp_wait<0>();
    if (barrier)
        __syncthreads();
    for (int i = t; i < 2 * n; i += (int)blockDim.x)
        out[i] = s[i];
}

static void test_cp_async() {
    std::vector<int> in(256);
    for (int &v : in)
        v = (int)draw();
    int *const from = on_device(in), *const to = room_for<int>(256);
    for (int valid : {16, 12, 6, 1, 0}) {
        gpu_launch(copy_async, 1, 32, 1024, nullptr, to, (const int *)from, valid, 2, 1);
        std::vector<int> want = in;
        for (int t = 0; t < 32; t++)
            memset((char *)&want[(size_t)(128 + 4 * t)] + valid, 0, (size_t)(16 - valid));
        CHECK(fetch(to, 256) == want);
    }
    CHECK(!stand_in_errors());
    cudaFree(from);
    cudaFree(to);
}

#endif
