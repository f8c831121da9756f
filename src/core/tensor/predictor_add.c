/* predictor_add.c - the public function that adds an exponent predictor; src/autoflex itself reports no failures. */
#include "autoflex/autoflex_rules.h"
#include "core/base/fail.h"
#include "core/base/text.h"

autoflex_predictor autoflex_add(const char *name, autoflex_predict_fn predict, void *context) {
    const char *why;
    const autoflex_predictor predictor = fl_autoflex_add(name, predict, context, &why);
    if (!predictor)
        fl_fail(TENSOR_E_ARGUMENT, "autoflex_add: predictor %s: %s", fl_quote(name).text, why);
    return predictor;
}
