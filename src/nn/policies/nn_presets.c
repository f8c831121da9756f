/* nn_presets.c - policies by name. docs/policies.md gives the source of each item. */
#include "flexlab/nn.h"
#include "nn/policies/nn_policy.h"
#include <string.h>

/* Micikevicius et al. 2018, and the four usual levels of training in mixed precision. */
#define O1(format)                                                                                                     \
    "variant fp32\n"                                                                                                   \
    "if-any @product operands=" format "\n"                                                                            \
    "if-any @recurrent activations=" format " gradients=" format "\n"
#define O2(format)                                                                                                     \
    "variant " format "\n"                                                                                             \
    "* master=fp32\n"                                                                                                  \
    "if-any @norm format=fp32\n"                                                                                       \
    "@loss format=fp32\n"
#define O3(format)                                                                                                     \
    "variant " format "\n"                                                                                             \
    "* master=none\n"
#define DYNAMIC "loss-scale dynamic\n"
/* Products in blocks, everything else as it is without them. */
#define BLOCKS(operands) "variant fp32\nif-any @product operands=" operands "\n"
/* bf16 beside fp32 masters, normalisation and loss; the products of attention and the last layer stay so. */
#define WITHOUT_BLOCKS(pattern) "if-any " pattern " operands=auto gradient-operands=auto\n"
#define LINEAR_BLOCKS(operands)                                                                                        \
    O2("bf16")                                                                                                         \
    "if-any @product operands=" operands "\n" WITHOUT_BLOCKS("@scores") WITHOUT_BLOCKS("@mixture")                     \
        WITHOUT_BLOCKS("head") WITHOUT_BLOCKS("head.*")
#define WITHOUT_SCALES(pattern) "if-any " pattern " operands=auto gradient-operands=auto result=auto\n"
/* The recipe HYBRID of TransformerEngine: E4M3 forward, E5M2 for gradients, a scale for each tensor. */
#define LINEAR_FP8(predictor)                                                                                          \
    O2("bf16")                                                                                                         \
    "if-any @product operands=tensor:e4m3fn:" predictor " gradient-operands=tensor:e5m2:" predictor                    \
    " result=bf16\n" WITHOUT_SCALES("@scores") WITHOUT_SCALES("@mixture") WITHOUT_SCALES("head")                       \
        WITHOUT_SCALES("head.*")
#define FIRST_AND_LAST WITHOUT_BLOCKS("conv1") WITHOUT_BLOCKS("conv1.*") WITHOUT_BLOCKS("fc") WITHOUT_BLOCKS("fc.*")

static const struct preset {
    const char *name, *text, *summary;
} presets[] = {
    {"O0", "variant fp32\n", "fp32 throughout"},
    {"O1", O1("fp16") DYNAMIC, "fp16 matmul and convolution, everything else fp32; dynamic loss scale"},
    {"O2", O2("fp16") DYNAMIC, "fp16 except for normalisation, fp32 master weights; dynamic loss scale"},
    {"O3", O3("fp16") "loss-scale none\n", "fp16 throughout, without master weights and loss scale"},
    {"O1:bf16", O1("bf16"), "bf16 matmul and convolution, everything else fp32"},
    {"O2:bf16", O2("bf16"), "bf16 except for normalisation, fp32 master weights"},
    {"O3:bf16", O3("bf16"), "bf16 throughout, without master weights"},
    {"flex16+5", "variant flex16+5\n", "16-bit integers throughout, wide weights"},
    {"flex16+5-sr", "variant flex16+5-sr\n", "flex16+5, stochastic rounding of the weight write"},
    {"flex16+5-paper", "variant flex16+5-paper\n", "flex16+5, rounded to nearest everywhere"},
    {"dfp16", "variant fp32\nif-any @product operands=dfp16 result=fp32\n",
     "dfp16 matmul and convolution by exact maxima, everything else fp32 (Das et al. 2018)"},
    {"mxint8", BLOCKS("mx:int8"), "MXINT8 operands of all products, everything else fp32 (Rouhani et al. 2023)"},
    {"mxfp6", BLOCKS("mx:e3m2"), "MXFP6 operands (E3M2) of all products, everything else fp32 (Rouhani et al. 2023)"},
    {"mxfp4", BLOCKS("mx:e3m2,mx:e2m1 gradient-operands=mx:e3m2"),
     "MXFP4 weights, MXFP6 values and gradients in all products, everything else fp32 (Rouhani et al. 2023)"},
    {"mxfp8", LINEAR_BLOCKS("mx:e4m3fn:rceil"),
     "MXFP8 operands (E4M3, scales rounded up) of layers, everything else bf16 or fp32 (Mishra et al. 2025)"},
    {"mxfp8-floor", LINEAR_BLOCKS("mx:e4m3fn"), "mxfp8 with the scales of the MX specification"},
    {"fp8-delayed", LINEAR_FP8("delayed"),
     "E4M3 and E5M2 operands of layers under a scale from earlier maxima, everything else bf16 or fp32"},
    {"fp8-current", LINEAR_FP8("current"),
     "E4M3 and E5M2 operands of layers under a scale from their own maximum, everything else bf16 or fp32"},
    {"nvfp4", LINEAR_BLOCKS("nvfp4,nvfp4:square gradient-operands=nvfp4:stochastic:hadamard") FIRST_AND_LAST,
     "NVFP4 operands of layers but the first and the last, everything else bf16 or fp32 (NVIDIA 2025)"},
    {"hbfp8", BLOCKS("hbfp:int8/64"),
     "int8 under one exponent for 64 in all products, everything else fp32 (Drumond et al. 2018)"},
    {"dfp16-all", "variant dfp16\n", "the variant dfp16: dfp16 throughout, wide weights"},
};
enum { PRESETS = sizeof presets / sizeof presets[0] };

int nn_policy_count(void) {
    int count = 0;
    while (nn_policy_at(count))
        count++;
    return count;
}

const char *nn_policy_at(int i) {
    return i >= 0 && i < PRESETS ? presets[i].name : NULL;
}

const char *nn_policy_summary(int i) {
    return i >= 0 && i < PRESETS ? presets[i].summary : NULL;
}

const char *nn_policy_text(int i) {
    return i >= 0 && i < PRESETS ? presets[i].text : NULL;
}

const char *fl_preset_text(const char *name) {
    for (int i = 0; i < PRESETS; i++)
        if (!strcmp(presets[i].name, name))
            return presets[i].text;
    return NULL;
}
