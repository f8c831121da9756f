/* ptx_tensor.cpp - tensor-core products of floats, as the GPU that FLEXLAB_PTX_GPU names sums them: Khattak and
 * Mikaitis, "Accurate models of NVIDIA tensor cores", 2025 (docs/semantics.md, class accumulate). Numbers of at most 24
 * bits whose exponents are known: doubles hold every step exactly. */
#include "ptx.h"

#include <cmath>
#include <limits>

namespace ptx {
namespace {

/* A group of `k` products and the sum so far are truncated `fraction` bits below the largest exponent among them. */
struct Gpu {
    const char *name;
    int k, k_tf32, fraction;
};
const Gpu gpus[] = {{"a100", 8, 4, 24}, {"h100", 16, 4, 25}};

const Gpu &gpu() {
    static const Gpu *const chosen = [] {
        const char *name = getenv("FLEXLAB_PTX_GPU");
        for (const Gpu &g : gpus)
            if (!name || std::string(name) == g.name)
                return &g;
        give_up("FLEXLAB_PTX_GPU=" + std::string(name) + ", expected a100 or h100");
    }();
    return *chosen;
}

struct FloatKind { /* of an operand */
    int bits, fraction, bias;
};
const FloatKind kinds[] = {{16, 10, 15}, {16, 7, 127}, {32, 23, 127}}; /* fp16, bf16, tf32 */

struct Number {
    double value;
    int exponent; /* of a subnormal number: that of the smallest normal one */
};

Number number_of(uint32_t word, const FloatKind &kind) {
    const int field = (int)(word >> kind.fraction) & (2 * kind.bias + 1), exponent = (field ? field : 1) - kind.bias;
    const uint32_t fraction = word & ((1u << kind.fraction) - 1);
    double x = std::ldexp((double)fraction + (field ? 1 << kind.fraction : 0), exponent - kind.fraction);
    if (field == 2 * kind.bias + 1)
        x = fraction ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
    return Number{word >> (kind.bits - 1) ? -x : x, exponent};
}

/* Truncated to a binary32, which it may be too large for. */
float cut(double x) {
    int exponent;
    std::frexp(x, &exponent); /* |x| is in [2^(exponent - 1), 2^exponent) */
    const int last = std::max(exponent - 24, -149);
    return (float)std::ldexp(std::trunc(std::ldexp(x, -last)), last);
}

float add_group(const Number *a, const Number *b, int k, float c) {
    const Number addend = {c, std::max(c == 0 ? -126 : std::ilogb(c), -126)};
    double product[16], plain = c;
    int largest = std::numeric_limits<int>::min();
    if (c != 0)
        largest = addend.exponent;
    for (int i = 0; i < k; i++) {
        product[i] = a[i].value * b[i].value;
        plain += product[i];
        if (product[i] != 0)
            largest = std::max(largest, a[i].exponent + b[i].exponent);
    }
    if (!std::isfinite(plain))
        return (float)plain;
    if (largest == std::numeric_limits<int>::min())
        return 0;
    const int unit = largest - gpu().fraction;
    double sum = std::trunc(std::ldexp((double)c, -unit));
    for (int i = 0; i < k; i++)
        sum += std::trunc(std::ldexp(product[i], -unit));
    return sum == 0 ? 0 : cut(std::ldexp(sum, unit));
}

} // namespace

/* mma.m16n8kK with sums of binary32: d, a, b, c. PTX ISA, "Matrix Fragments for mma.m16n8k16" and "k8": of elements
 * that a register holds `each` of, element i of register r of lane 4 g + t is a[g + 8 (r mod 2)][each t + i + 4 each (r
 * div 2)] and b[each t + i + 4 each r][g]; register j of c and d is [g + 8 (j div 2)][2 t + j mod 2]. how: the kind. */
void multiply_floats(Warp &w, const Insn &in) {
    const FloatKind &kind = kinds[in.how];
    const int each = 32 / kind.bits, depth = 8 * each, group = in.how == 2 ? gpu().k_tf32 : gpu().k;
    Number a[16][16], b[8][16]; /* b by columns */
    if (in.more.size() != 14)
        give_up("mma with another number of registers: " + std::string(in.text));
    for (int r = 0; r < 6; r++) {
        const uint32_t *const words = w.at<uint32_t>(in.more[(size_t)(4 + r)]);
        for (int lane = 0; lane < (int)LANES; lane++) {
            const int g = lane / 4, t = lane % 4;
            Number *const to =
                r < 4 ? &a[g + 8 * (r % 2)][each * t + 4 * each * (r / 2)] : &b[g][each * t + 4 * each * (r - 4)];
            for (int i = 0; i < each; i++)
                to[i] = number_of(each == 2 ? words[lane] >> (16 * i) & 0xffffu : words[lane] & ~0x1fffu, kind);
        }
    }
    for (int j = 0; j < 4; j++) {
        float *const d = w.at<float>(in.more[(size_t)j]);
        const float *const c = w.at<float>(in.more[(size_t)(10 + j)]);
        for (int lane = 0; lane < (int)LANES; lane++) {
            const Number *const row = a[lane / 4 + 8 * (j / 2)], *const column = b[2 * (lane % 4) + j % 2];
            float sum = c[lane];
            for (int k = 0; k < depth; k += group)
                sum = add_group(row + k, column + k, group, sum);
            const uint32_t nan = 0x7fffffff;
            if (sum != sum)
                memcpy(&sum, &nan, sizeof sum);
            d[lane] = sum;
        }
    }
}

} // namespace ptx
