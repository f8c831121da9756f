/* real_tables.h - constants of real_functions.inc as pairs of doubles, value = first + second, each nearest to what the
 * first leaves: right to 106 bits. Made from 600-bit arithmetic; test_functions.c computes them again by MPFR. */
#ifndef FL_REAL_TABLES_H
#define FL_REAL_TABLES_H

#include "autoflex/both.h"
#include <stdint.h>

#define FL_REAL_LN2 0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56
#define FL_REAL_INVERSE_LN2 0x1.71547652b82fep+0, 0x1.777d0ffda0d24p-56
#define FL_REAL_INVERSE_LN10 0x1.bcb7b1526e50ep-2, 0x1.95355baaafad3p-57
#define FL_REAL_PI 0x1.921fb54442d18p+1, 0x1.1a62633145c07p-53
#define FL_REAL_HALF_PI 0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54
#define FL_REAL_SQRT_HALF 0x1.6a09e667f3bcdp-1, -0x1.bdd3413b26456p-55
#define FL_REAL_DENSITY_AT_0 0x1.9884533d43651p-2, -0x1.cbc0d30ebfd15p-56  /* 1 / sqrt(2 pi) */
#define FL_REAL_GELU_1 0x1.9884533d43651p+0, -0x1.cbc0d30ebfd15p-54        /* 2 sqrt(2 / pi) */
#define FL_REAL_GELU_3 0x1.2444f2a4d8b4bp-4, -0x1.6c843a29d1c7p-61         /* that times 0.044715 */
#define FL_REAL_GELU_3_SLOPE 0x1.b6676bf7450fp-3, 0x1.bba7351828aabp-57    /* three times that */
#define FL_REAL_STEP_OVER_2PI 0x1.d48d59dd2103cp-5, -0x1.93a58771c22f8p-60 /* of the step 23 / 64 of FL_REAL_GAUSS */
#define FL_REAL_2PI_OVER_STEP 0x1.17bd03a9ebb32p+4, 0x1.1d7c187b51ea1p-50
/* ln 2 = their sum; multiples of the first two by integers below 2^11 are exact */
#define FL_REAL_LN2_1 0x1.62e42fefa38p-1
#define FL_REAL_LN2_2 0x1.ef35793c76p-45
#define FL_REAL_LN2_3 0x1.cc01f97b57a08p-87

enum { FL_REAL_FACTORIALS, FL_REAL_ODD, FL_REAL_GAUSS };

/* Row i of a table: 1 / i!, 1 / (2 i + 1), or exp(-(23 i / 64)^2). */
FL_BOTH const double *fl_real_table(int which, int i) {
    static const double factorials[][2] = {{0x1p+0, 0x0p+0},
                                           {0x1p+0, 0x0p+0},
                                           {0x1p-1, 0x0p+0},
                                           {0x1.5555555555555p-3, 0x1.5555555555555p-57},
                                           {0x1.5555555555555p-5, 0x1.5555555555555p-59},
                                           {0x1.1111111111111p-7, 0x1.1111111111111p-63},
                                           {0x1.6c16c16c16c17p-10, -0x1.f49f49f49f49fp-65},
                                           {0x1.a01a01a01a01ap-13, 0x1.a01a01a01a01ap-73},
                                           {0x1.a01a01a01a01ap-16, 0x1.a01a01a01a01ap-76},
                                           {0x1.71de3a556c734p-19, -0x1.c154f8ddc6cp-73},
                                           {0x1.27e4fb7789f5cp-22, 0x1.cbbc05b4fa99ap-76},
                                           {0x1.ae64567f544e4p-26, -0x1.c062e06d1f209p-80},
                                           {0x1.1eed8eff8d898p-29, -0x1.2aec959e14c06p-83},
                                           {0x1.6124613a86d09p-33, 0x1.f28e0cc748ebep-87},
                                           {0x1.93974a8c07c9dp-37, 0x1.05d6f8a2efd1fp-92},
                                           {0x1.ae7f3e733b81fp-41, 0x1.1d8656b0ee8cbp-97},
                                           {0x1.ae7f3e733b81fp-45, 0x1.1d8656b0ee8cbp-101},
                                           {0x1.952c77030ad4ap-49, 0x1.ac981465ddc6cp-103},
                                           {0x1.6827863b97d97p-53, 0x1.eec01221a8b0bp-107},
                                           {0x1.2f49b46814157p-57, 0x1.2650f61dbdcb4p-112},
                                           {0x1.e542ba4020225p-62, 0x1.ea72b4afe3c2fp-120},
                                           {0x1.71b8ef6dcf572p-66, -0x1.d043ae40c4647p-120},
                                           {0x1.0ce396db7f853p-70, -0x1.aebcdbd20331cp-124},
                                           {0x1.761b41316381ap-75, -0x1.3423c7d91404fp-130},
                                           {0x1.f2cf01972f578p-80, -0x1.9ada5fcc1ab14p-135},
                                           {0x1.3f3ccdd165fa9p-84, -0x1.58ddadf344487p-139},
                                           {0x1.88e85fc6a4e5ap-89, -0x1.71c37ebd1654p-143},
                                           {0x1.d1ab1c2dccea3p-94, 0x1.054d0c78aea14p-149},
                                           {0x1.0a18a2635085dp-98, 0x1.b9e2e28e1aa54p-153},
                                           {0x1.259f98b4358adp-103, 0x1.eaf8c39dd9bc5p-157}};
    static const double odd[][2] = {{0x1p+0, 0x0p+0},
                                    {0x1.5555555555555p-2, 0x1.5555555555555p-56},
                                    {0x1.999999999999ap-3, -0x1.999999999999ap-57},
                                    {0x1.2492492492492p-3, 0x1.2492492492492p-57},
                                    {0x1.c71c71c71c71cp-4, 0x1.c71c71c71c71cp-58},
                                    {0x1.745d1745d1746p-4, -0x1.745d1745d1746p-59},
                                    {0x1.3b13b13b13b14p-4, -0x1.3b13b13b13b14p-58},
                                    {0x1.1111111111111p-4, 0x1.1111111111111p-60},
                                    {0x1.e1e1e1e1e1e1ep-5, 0x1.e1e1e1e1e1e1ep-61},
                                    {0x1.af286bca1af28p-5, 0x1.af286bca1af28p-59},
                                    {0x1.8618618618618p-5, 0x1.8618618618618p-59},
                                    {0x1.642c8590b2164p-5, 0x1.642c8590b2164p-60},
                                    {0x1.47ae147ae147bp-5, -0x1.eb851eb851eb8p-61},
                                    {0x1.2f684bda12f68p-5, 0x1.2f684bda12f68p-59},
                                    {0x1.1a7b9611a7b96p-5, 0x1.1a7b9611a7b96p-61},
                                    {0x1.0842108421084p-5, 0x1.0842108421084p-60},
                                    {0x1.f07c1f07c1f08p-6, -0x1.f07c1f07c1f08p-61},
                                    {0x1.d41d41d41d41dp-6, 0x1.075075075075p-60},
                                    {0x1.bacf914c1badp-6, -0x1.bacf914c1badp-60},
                                    {0x1.a41a41a41a41ap-6, 0x1.069069069069p-60},
                                    {0x1.8f9c18f9c18fap-6, -0x1.f3831f3831f38p-61},
                                    {0x1.7d05f417d05f4p-6, 0x1.7d05f417d05f4p-62},
                                    {0x1.6c16c16c16c17p-6, -0x1.f49f49f49f49fp-61},
                                    {0x1.5c9882b931057p-6, 0x1.310572620ae4cp-61},
                                    {0x1.4e5e0a72f0539p-6, 0x1.e0a72f0539783p-60},
                                    {0x1.4141414141414p-6, 0x1.4141414141414p-62},
                                    {0x1.3521cfb2b78c1p-6, 0x1.a90e7d95bc60ap-61},
                                    {0x1.29e4129e4129ep-6, 0x1.04a7904a7904ap-60},
                                    {0x1.1f7047dc11f7p-6, 0x1.1f7047dc11f7p-60},
                                    {0x1.15b1e5f75270dp-6, 0x1.15b1e5f75270dp-64},
                                    {0x1.0c9714fbcda3bp-6, -0x1.f79b47582192ep-61},
                                    {0x1.041041041041p-6, 0x1.041041041041p-60},
                                    {0x1.f81f81f81f82p-7, -0x1.f81f81f81f82p-61}};
    static const double gauss[][2] = {{0x1p+0, 0x0p+0},
                                      {0x1.c1f78cf2cf2d7p-1, 0x1.3a1669dcf818ap-59},
                                      {0x1.316e456034a07p-1, 0x1.5ee199307237dp-56},
                                      {0x1.4041572360bdfp-2, -0x1.00ad170d527d5p-56},
                                      {0x1.035bdf80102bbp-3, 0x1.ae91dd43c47bfp-57},
                                      {0x1.447509fbe441bp-5, 0x1.3d4be661dc6a9p-61},
                                      {0x1.397f8a997d8cdp-7, 0x1.2ea4ed8eb48cep-61},
                                      {0x1.d3e974b462f89p-10, -0x1.37140dfda7fap-64},
                                      {0x1.0db3c75613576p-12, -0x1.85d5d0b39212ep-66},
                                      {0x1.e045657233679p-16, -0x1.a90ef68641afp-70},
                                      {0x1.4a472cecbf851p-19, 0x1.394c8eef48262p-73},
                                      {0x1.5eda30351b6eep-23, -0x1.d48142e544a2ep-78},
                                      {0x1.1fddb1b6cdf3dp-27, -0x1.82333bb860e9bp-81},
                                      {0x1.6cd830779f7cbp-32, -0x1.e80c58079a379p-86},
                                      {0x1.65258cbfca61fp-37, -0x1.bddb4b4dd121p-92},
                                      {0x1.0e06db0545094p-42, -0x1.1c6d6a5c54badp-96},
                                      {0x1.3b5e5c86b944p-48, -0x1.8d698aca7829bp-102},
                                      {0x1.1c7ad531cd2f5p-54, -0x1.46f6ef7b5992fp-108},
                                      {0x1.8c66eab9f2e1ep-61, 0x1.6989a1c786ca4p-115},
                                      {0x1.aa9ed4d42ff3bp-68, 0x1.a8cdf8e9a0f21p-122},
                                      {0x1.629fe51e5ac6fp-75, 0x1.83e2113880e09p-129},
                                      {0x1.c75a292dc3973p-83, -0x1.005b35fd99feap-141},
                                      {0x1.c397dd170e1d2p-91, 0x1.28d27ddb198e2p-145},
                                      {0x1.59ea1daed62p-99, -0x1.213c9a9e9e1b9p-157},
                                      {0x1.994cc1095a083p-108, -0x1.5c2ab7472bad1p-164}};
    return which == FL_REAL_FACTORIALS ? factorials[i] : which == FL_REAL_ODD ? odd[i] : gauss[i];
}

/* Coefficients of P of real_lanes.inc, which says how far P(u) / (a + 5) is from Mills' ratio. Of the polynomial that
 * interpolates (a + 5) times the ratio at the 21 Chebyshev points of u. */
enum { FL_REAL_MILLS = 21 };
FL_BOTH const double *fl_real_mills(void) {
    static const double mills[] = {0x1.28bed93cc6c02p+1,   -0x1.d19df542cd92ap+0,  0x1.2b6bff45ebfd6p+0,
                                   -0x1.3938bc003e025p-1,  0x1.040b79b2b443fp-2,   -0x1.435e838f16d14p-4,
                                   0x1.fe9c5cf87c8abp-7,   -0x1.f2e4acd2c42adp-12, -0x1.8ed0248e5ba02p-11,
                                   0x1.76a16c115308fp-13,  0x1.6e535661c3b41p-16,  -0x1.fe08d749c01bep-17,
                                   -0x1.060f0d8e6a0e3p-22, 0x1.41a13b89489f5p-20,  -0x1.579eee84828e8p-26,
                                   -0x1.b088139021157p-24, 0x1.35bcf63241dc4p-32,  0x1.273ed0787361dp-27,
                                   0x1.a1cdebe4a4267p-32,  -0x1.2a20d1ed38b3cp-31, -0x1.d47a48cb0822ap-35};
    return mills;
}

/* Bits 64 i to 64 i + 63 of 2 / pi after the binary point; zeros for those before it. */
FL_BOTH uint64_t fl_two_over_pi(int i) {
    static const uint64_t words[] = {0xa2f9836e4e441529u, 0xfc2757d1f534ddc0u, 0xdb6295993c439041u, 0xfe5163abdebbc561u,
                                     0xb7246e3a424dd2e0u, 0x06492eea09d1921cu, 0xfe1deb1cb129a73eu};
    return i < 0 || i > 6 ? 0 : words[i];
}

#endif
