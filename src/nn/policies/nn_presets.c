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
