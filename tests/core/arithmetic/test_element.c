/* Elements made from their parameters: every code of every eXmY of at most 16 bits and of every intN, both ways,
 * against values written down from the fields; numbers between neighbours, halfway too, by comparison with both
 * neighbours; draws by integers; and texts that are no elements. */
#include "check.h"
#include "core/arithmetic/element.h"
#include "flexlab/status.h"
#include <math.h>
#include <string.h>

enum { CODES = 1 << 16 };
static uint64_t state = 29;

/* The magnitudes of an element in the order of their codes, the number behind the largest too, and what the codes
 * behind it are. */
struct witness {
    struct fl_element e;
    double value[CODES / 2 + 1];
    int count; /* of finite magnitudes */
};
static struct witness w;

static void from_fields(int x, int y, bool fn) {
    const int bits = 1 + x + y, bias = (1 << (x - 1)) - 1;
    const bool nan_alone = bits > 6 && (fn || y == 0), ieee = bits > 6 && !nan_alone;
    w.count = 0;
    for (int exponent = 0; exponent < 1 << x; exponent++)
        for (int fraction = 0; fraction < 1 << y; fraction++) {
            const int code = exponent << y | fraction;
            const double got = fl_element_decode(&w.e, (uint32_t)code),
                         minus = fl_element_decode(&w.e, (uint32_t)(code | 1 << (x + y)));
            const bool last = exponent == (1 << x) - 1;
            if (nan_alone ? last && fraction == (1 << y) - 1 : ieee && last) {
                const bool infinite = ieee && fraction == 0;
                CHECK(infinite ? got == INFINITY && minus == -INFINITY : isnan(got) && isnan(minus),
                      "%s code %#x is %g", w.e.name, (unsigned)code, got);
                continue;
            }
            const double want =
                exponent ? ldexp(1 + ldexp(fraction, -y), exponent - bias) : ldexp(fraction, 1 - bias - y);
            CHECK(got == want && minus == -want && signbit(minus), "%s code %#x is %a, want %a", w.e.name,
                  (unsigned)code, got, want);
            CHECK(w.count == code, "%s code %#x: a number behind codes of none", w.e.name, (unsigned)code);
            w.value[w.count++] = want;
        }
}

static void from_integers(int bits) {
    w.count = 0;
    for (int i = -(1 << (bits - 1)); i < 1 << (bits - 1); i++) {
        const double got = fl_element_decode(&w.e, (uint32_t)i & ((1u << bits) - 1)), want = ldexp(i, 2 - bits);
        CHECK(got == want, "%s of %d is %a, want %a", w.e.name, i, got, want);
        if (i >= 0)
            w.value[w.count++] = want;
    }
}

/* What a number must become, by its magnitude's place in the list; w.count: too large. */
static void encodes(double x, int place, const uint32_t *draw) {
    const uint32_t code = fl_element_encode(&w.e, x, draw);
    const double got = fl_element_decode(&w.e, code);
    bool right;
    if (place < w.count || w.e.saturates)
        right = got == copysign(w.value[place < w.count ? place : w.count - 1], x) &&
                (w.e.kind == FL_ELEMENT_INTEGER || !signbit(got) == !signbit(x));
    else
        right = w.e.has_infinity ? got == copysign(INFINITY, x) : isnan(got);
    CHECK(right && code < 1u << w.e.bits, "%s: %a with draw %lld became %a (%#x), want place %d of %d", w.e.name, x,
          draw ? (long long)*draw : -1, got, code, place, w.count);
}

/* x lies between places low and low + 1; `next` is the value of the latter. */
static void nearest(double x, int low, double next) {
    const double twice = 2 * x, sum = w.value[low] + next; /* both exact */
    /* IEEE 754-2019, 4.3.1: where neither has an even last digit, because it has but one, the larger */
    const int even = w.e.kind == FL_ELEMENT_FLOAT && !w.e.fraction_bits && low ? low + 1 : low + (low & 1);
    const int place = twice < sum ? low : twice > sum ? low + 1 : even;
    encodes(x, place, NULL);
    encodes(-x, place, NULL);
}

/* A draw moves x = low + j / 2^20 of the step up if j * 2^12 + draw reaches 2^32; below 0 what is left of the step. */
static void drawn(int low, double next) {
    const uint64_t random = check_random(&state);
    const uint32_t j = (uint32_t)(random & 0xfffff);
    const uint32_t edge = (uint32_t) - (int64_t)((uint64_t)j << 12),
                   draws[3] = {(uint32_t)(random >> 32), edge, edge - 1};
    const double x = w.value[low] + (next - w.value[low]) * ldexp(j, -20); /* exact: 16 + 20 bits */
    for (int i = 0; i < 3; i++) {
        encodes(x, low + (int)((((uint64_t)j << 12) + draws[i]) >> 32), &draws[i]);
        encodes(-x, low + 1 - (int)((((uint64_t)(0x100000 - j) << 12) + draws[i]) >> 32), &draws[i]);
    }
}

static double step_above_largest(void) {
    const int least = w.e.unit, last = w.e.kind == FL_ELEMENT_FLOAT ? ilogb(w.e.largest) - w.e.fraction_bits : least;
    return ldexp(1, last > least ? last : least);
}

static void check_element(void) {
    CHECK(w.e.largest == w.value[w.count - 1] && (int)w.e.largest_code == w.count - 1, "%s: largest %a", w.e.name,
          w.e.largest);
    const double integer = ldexp(w.e.largest, -w.e.unit);
    CHECK(integer < ldexp(1, w.e.integer_bits) && integer >= ldexp(1, w.e.integer_bits - 1) &&
              w.value[1] == ldexp(1, w.e.unit),
          "%s: unit %d and %d bits, largest %a", w.e.name, w.e.unit, w.e.integer_bits, w.e.largest);
    for (int low = 0; low < w.count; low++) {
        const double here = w.value[low];
        const double next = low + 1 < w.count ? w.value[low + 1] : here + step_above_largest();
        const double middle = (here + next) / 2;
        encodes(here, low, NULL);
        encodes(-here, low, NULL);
        nearest(middle, low, next);
        nearest(nextafter(middle, 0), low, next);
        nearest(nextafter(middle, INFINITY), low, next);
        nearest(nextafter(here, INFINITY), low, next);
        nearest(nextafter(next, 0), low, next);
        nearest(here + (next - here) * ldexp((double)(check_random(&state) >> 11), -53), low, next);
        drawn(low, next);
    }
    static const double large[] = {0x1p130, 0x1.fffffp1023, INFINITY};
    for (int i = 0; i < 3; i++) {
        encodes(large[i], w.count, NULL);
        encodes(-large[i], w.count, &(uint32_t){(uint32_t)check_random(&state)});
    }
    encodes(0x1p-1074, 0, NULL);
    encodes(-0x1p-1074, 0, NULL);
    const double nan = fl_element_decode(&w.e, fl_element_encode(&w.e, NAN, NULL));
    CHECK(w.e.has_nan ? isnan(nan) : nan == 0, "%s: NaN became %g", w.e.name, nan);
}

static void find(const char *text, const char *name, const char *rest) {
    const char *end = NULL;
    CHECK(fl_element_find(&w.e, text, text, &end) == TENSOR_OK && !strcmp(w.e.name, name) && !strcmp(end, rest),
          "%s: %s and %s, want %s and %s (%s)", text, w.e.name, end ? end : "", name, rest, tensor_error());
}

static void refused(const char *text, const char *position, const char *expected) {
    const char *end;
    CHECK(fl_element_find(&w.e, text, text, &end) == TENSOR_E_ARGUMENT && strstr(tensor_error(), position) &&
              strstr(tensor_error(), expected),
          "%s: %s", text, tensor_error());
}

int main(void) {
    static const char *const suffixes[] = {"", "fn", "sat", "fnsat"};
    int elements = 0;
    for (int x = 1; x <= 8; x++)
        for (int y = 0; x + y <= 15; y++)
            for (int s = 0; s < 4; s++, elements++) {
                const bool finite = x + y < 6, fn = s & 1, sat = s & 2;
                char text[32], name[32];
                snprintf(text, sizeof text, "e%dm%d%s", x, y, suffixes[s]);
                snprintf(name, sizeof name, "e%dm%d%s%s", x, y, !finite && (fn || y == 0) ? "fn" : "",
                         !finite && sat ? "sat" : "");
                find(text, name, "");
                CHECK(w.e.bits == 1 + x + y && w.e.saturates == (finite || sat), "%s: %d bits", text, w.e.bits);
                from_fields(x, y, fn);
                check_element();
            }
    for (int bits = 2; bits <= 16; bits++, elements++) {
        char text[16];
        snprintf(text, sizeof text, "int%d", bits);
        find(text, text, "");
        from_integers(bits);
        check_element();
    }
    printf("%d elements\n", elements);
    find("e4m3fn/32", "e4m3fn", "/32");
    find("e2m1:floor", "e2m1", ":floor");
    find("int8/64", "int8", "/64");
    find("e4m3fnx", "e4m3fn", "x");
    refused("e9m3", "character 2 is '9m3'", "exponent bits from 1 to 8");
    refused("e0m3", "character 2 is '0m3'", "exponent bits from 1 to 8");
    refused("e4m20", "character 4 is '20'", "fraction bits from 0 to 11");
    refused("e4m", "character 4 is the end", "fraction bits");
    refused("e4", "character 3 is the end", "'m'");
    refused("int1", "character 4 is '1'", "bits from 2 to 16");
    refused("int17", "character 4 is '17'", "bits from 2 to 16");
    refused("x", "character 1 is 'x'", "an element");
    return check_summary();
}
