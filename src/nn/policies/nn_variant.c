/* nn_variant.c - the variants by name: a format and how its weights are written. */
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/base/text.h"
#include "core/values/tensor_state.h"
#include "flexlab/nn.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static const nn_variant known[] = {
    {"fp32", FMT_FP32, NULL, false, false, "binary32 throughout, the baseline"},
    {"fp16", FMT_FP16, NULL, true, false, "binary16, fp32 master weights"},
    {"fp16-sr", FMT_FP16, NULL, false, true, "fp16, 16-bit weights written by stochastic rounding"},
    {"bf16", FMT_BF16, NULL, true, false, "bfloat16, fp32 master weights"},
    {"bf16-sr", FMT_BF16, NULL, false, true, "bf16, 16-bit weights written by stochastic rounding"},
    {"flex16+5", FMT_FLEX16_5, "paper", true, false, "16-bit integers under a shared 5-bit exponent, wide weights"},
    {"flex16+5-sr", FMT_FLEX16_5, "paper", false, true, "flex16+5, 16-bit weights written by stochastic rounding"},
    {"flex16+5-paper", FMT_FLEX16_5, "paper", false, false,
     "flex16+5, rounded to nearest everywhere: weights stop moving at low learning rates"},
    {"dfp16", FMT_DFP16, "current", true, false,
     "16-bit integers under an exponent taken from the result, wide weights"},
};
enum { KNOWN = sizeof known / sizeof known[0], ADDED_LIMIT = 64 };

/* Every added format is a variant of its own. */
static nn_variant added[ADDED_LIMIT];
static int added_count;
static pthread_once_t added_once = PTHREAD_ONCE_INIT;

static void find_added(void) {
    tensor_format format;
    for (int i = 0; (format = tensor_format_at(i)) && added_count < ADDED_LIMIT; i++) {
        bool has = false;
        for (int k = 0; k < KNOWN; k++)
            has = has || known[k].format == format;
        if (!has)
            added[added_count++] =
                (nn_variant){tensor_format_name(format),     format, fl_format_predictor(format), true, false,
                             "an added format, wide weights"};
    }
}

int nn_variant_count(void) {
    int count = 0;
    while (nn_variant_at(count))
        count++;
    return count;
}

const nn_variant *nn_variant_at(int i) {
    pthread_once(&added_once, find_added);
    if (i < 0 || i >= KNOWN + added_count)
        return NULL;
    return i < KNOWN ? &known[i] : &added[i - KNOWN];
}

static const char *name_of(int i) {
    const nn_variant *v = nn_variant_at(i);
    return v ? v->name : NULL;
}

/* --- formats made from their parameters --------------------------------------------------------------------------- */

/* The variants of such formats that were asked for; they live as long as the process. */
struct made {
    nn_variant variant;
    char name[32];
    struct made *next;
};
static struct made *made;
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

static struct made *make(const char *name, tensor_format format, bool stochastic) {
    struct made *const m = fl_alloc_zero(sizeof *m);
    if (!m)
        return NULL;
    snprintf(m->name, sizeof m->name, "%s", name);
    m->variant = (nn_variant){m->name,
                              format,
                              fl_format_predictor(format),
                              !stochastic,
                              stochastic,
                              stochastic ? "a format made from its parameters, weights written by stochastic rounding"
                                         : "a format made from its parameters, wide weights"};
    m->next = made;
    return made = m;
}

/* "flex12+5", or "flex12+5-sr"; NULL if the format is none that can be made. "e5m10" is "fp16". */
static const nn_variant *find_made(const char *name) {
    static const char ending[] = "-sr";
    char text[sizeof made->name];
    const size_t length = strlen(name), end = sizeof ending - 1;
    const bool stochastic = length > end && !strcmp(name + length - end, ending);
    snprintf(text, sizeof text, "%.*s", (int)(length - (stochastic ? end : 0)), name);
    tensor_format format;
    if (tensor_format_find(&format, length < sizeof text ? text : name))
        return NULL;
    if (format < FMT_MADE) { /* another text for a format of a folder */
        snprintf(text, sizeof text, "%s%s", tensor_format_name(format), stochastic ? ending : "");
        const nn_variant *v;
        for (int i = 0; (v = nn_variant_at(i)); i++)
            if (!strcmp(v->name, text))
                return v;
        return NULL;
    }
    pthread_mutex_lock(&making);
    struct made *m = made;
    while (m && strcmp(m->name, name) != 0)
        m = m->next;
    if (!m)
        m = make(name, format, stochastic);
    pthread_mutex_unlock(&making);
    return m ? &m->variant : NULL;
}

const nn_variant *nn_variant_find(const char *name) {
    const nn_variant *v;
    for (int i = 0; name && (v = nn_variant_at(i)); i++)
        if (!strcmp(v->name, name))
            return v;
    v = name ? find_made(name) : NULL;
    if (v)
        return v;
    const bool is_float =
        name && ((name[0] == 'e' && name[1] >= '0' && name[1] <= '9') || !strncmp(name, "tensor:", 7));
    if (name && (is_float || !strncmp(name, "flex", 4) || !strncmp(name, "dfp", 3)) &&
        strncmp(tensor_error(), "unknown", 7) != 0)
        return NULL; /* with the position in such a text */
    fl_fail(TENSOR_E_ARGUMENT, "variant %s: expected one of %s", fl_quote(name).text, fl_list_names(name_of).text);
    return NULL;
}
