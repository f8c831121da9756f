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
    bool halves; /* there is a record of sums of fp16 */
    int major;   /* compute capability */
};
const Gpu gpus[] = {{"a100", 8, 4, 24, false, 8}, {"h100", 16, 4, 25, true, 9}};

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

/* 2^exponent, of a normal number: |exponent| is below 1023. A product by it is exact, unlike std::ldexp it is no call.
 */
double power(int exponent) {
    const uint64_t bits = (uint64_t)(1023 + exponent) << 52;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

struct FloatKind { /* of an operand */
    int bits, fraction, bias;
};
const FloatKind kinds[] = {{16, 10, 15}, {16, 7, 127}, {32, 23, 127}}; /* fp16, bf16, tf32 */

struct Number {
    double value;
    int64_t exponent; /* of a subnormal number: that of the smallest normal one */
};
struct Numbers { /* a row of a, or a column of b */
    double values[16];
    int64_t exponents[16];
};

/* |x| is in [2^(exponent - 1), 2^exponent), for normal numbers. */
int exponent_of(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (int)(bits >> 52 & 2047) - 1022;
}

Number number_of(uint32_t word, const FloatKind &kind) {
    const int field = (int)(word >> kind.fraction) & (2 * kind.bias + 1), exponent = (field ? field : 1) - kind.bias;
    const uint32_t fraction = word & ((1u << kind.fraction) - 1);
    double x = ((double)fraction + (field ? 1 << kind.fraction : 0)) * power(exponent - kind.fraction);
    if (field == 2 * kind.bias + 1)
        x = fraction ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
    return Number{word >> (kind.bits - 1) ? -x : x, exponent};
}

/* Truncated to a binary32, or rounded to the nearest fp16, which it may be too large for. */
float cut(double x, bool half) {
    const int exponent = exponent_of(x);
    if (half) {
        const int unit = std::max(exponent - 11, -24);
        x = std::nearbyint(x * power(-unit)) * power(unit);
        return std::fabs(x) < 65536 ? (float)x : std::copysign(std::numeric_limits<float>::infinity(), (float)x);
    }
    const int last = std::max(exponent - 24, -149);
    return (float)(std::trunc(x * power(-last)) * power(last));
}

/* The bits of a number that fp16 holds, of Inf and of a NaN. */
uint16_t half_of(float x) {
    const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
    if (!(std::fabs(x) < 65536))
        return x != x ? 0x7fff : (uint16_t)(sign | 0x7c00);
    int exponent;
    std::frexp(x, &exponent);
    const int unit = x == 0 ? -24 : std::max(exponent - 11, -24);
    return (uint16_t)(sign | (((unit + 24) << 10) + (int)((double)std::fabs(x) * power(-unit))));
}

template <int k> float add_group(const Numbers &a, const Numbers &b, int first, float c, bool half) {
    constexpr int64_t none = -10000;
    double product[k];
    int64_t largest = c != 0 ? std::max(exponent_of(c) - 1, -126) : none, odd = !std::isfinite(c);
    for (int i = 0; i < k; i++) {
        product[i] = a.values[first + i] * b.values[first + i];
        const int64_t exponent = product[i] != 0 ? a.exponents[first + i] + b.exponents[first + i] : none;
        largest = exponent > largest ? exponent : largest;
        odd |= !(std::fabs(product[i]) <= std::numeric_limits<double>::max());
    }
    if (odd) {
        double plain = c;
        for (int i = 0; i < k; i++)
            plain += product[i];
        return (float)plain;
    }
    if (largest == none)
        return 0;
    const int unit = (int)largest - gpu().fraction;
    const double scale = power(-unit);
    int64_t sum = (int64_t)((double)c * scale); /* of numbers below 2^27 */
    for (int i = 0; i < k; i++)
        sum += (int64_t)(product[i] * scale);
    return sum == 0 ? 0 : cut((double)sum * power(unit), half);
}

} // namespace

int major_capability() {
    return gpu().major;
}

/* mma.m16n8kK: d, a, b, c. PTX ISA, "Matrix Fragments for mma.m16n8k16" and "k8": of elements that a register holds
 * `each` of, element i of register r of lane 4 g + t is a[g + 8 (r mod 2)][each t + i + 4 each (r div 2)] and b[each t
 * + i + 4 each r][g]; sum j of c and d, of which a register holds one of binary32 or two of fp16, is [g + 8 (j div
 * 2)][2 t
 * + j mod 2]. how: the kind; 3: fp16 with sums of fp16. */
void multiply_floats(Warp &w, const Insn &in) {
    const bool half = in.how == 3;
    const FloatKind &kind = kinds[in.how % 3];
    const int each = 32 / kind.bits, depth = 8 * each, group = in.how == 2 ? gpu().k_tf32 : gpu().k;
    const size_t sums = half ? 2 : 4;
    Numbers a[16], b[8]; /* b by columns */
    if (in.more.size() != 6 + 2 * sums)
        give_up("mma with another number of registers: " + std::string(in.text));
    if (half && !gpu().halves)
        give_up("sums of fp16 of " + std::string(gpu().name) + ", which no record has");
    for (int r = 0; r < 6; r++) {
        const uint32_t *const words = w.at<uint32_t>(in.more[sums + (size_t)r]);
        for (int lane = 0; lane < (int)LANES; lane++) {
            const int g = lane / 4, t = lane % 4;
            Numbers &to = r < 4 ? a[g + 8 * (r % 2)] : b[g];
            for (int i = 0, at = each * (t + 4 * (r < 4 ? r / 2 : r - 4)); i < each; i++, at++) {
                const uint32_t word = each == 2 ? words[lane] >> (16 * i) & 0xffffu : words[lane] & ~0x1fffu;
                const Number x = number_of(word, kind);
                to.values[at] = x.value;
                to.exponents[at] = x.exponent;
            }
        }
    }
    for (int j = 0; j < 4; j++) {
        unsigned char *const d = w.at<unsigned char>(in.more[half ? (size_t)j / 2 : (size_t)j]);
        const unsigned char *const c = w.at<unsigned char>(in.more[6 + sums + (half ? (size_t)j / 2 : (size_t)j)]);
        for (int lane = 0; lane < (int)LANES; lane++) {
            const Numbers &row = a[lane / 4 + 8 * (j / 2)], &column = b[2 * (lane % 4) + j % 2];
            const size_t at = half ? (size_t)lane * 4 + (size_t)(j % 2) * 2 : (size_t)lane * 4;
            uint16_t bits;
            float sum;
            memcpy(half ? (void *)&bits : &sum, c + at, half ? sizeof bits : sizeof sum);
            if (half)
                sum = (float)number_of(bits, kind).value;
            for (int k = 0; k < depth; k += group)
                sum = (group == 16  ? add_group<16>
                       : group == 8 ? add_group<8>
                                    : add_group<4>)(row, column, k, sum, half);
            const uint32_t nan = 0x7fffffff;
            if (half) {
                bits = half_of(sum);
                memcpy(d + at, &bits, sizeof bits);
            } else {
                memcpy(d + at, sum != sum ? (const void *)&nan : &sum, sizeof sum);
            }
        }
    }
}

} // namespace ptx
