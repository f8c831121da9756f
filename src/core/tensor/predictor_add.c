/* predictor_add.c - the public functions that add an exponent predictor, and find one with a message that lists them.
 */
#include "autoflex/autoflex_rules.h"
#include "autoflex/delayed.h"
#include "core/base/fail.h"
#include "core/base/text.h"

autoflex_predictor autoflex_add(const char *name, autoflex_predict_fn predict, void *context) {
    const char *why;
    const autoflex_predictor predictor = fl_autoflex_add(name, predict, context, &why);
    if (!predictor)
        fl_fail(TENSOR_E_ARGUMENT, "autoflex_add: predictor %s: %s", fl_quote(name).text, why);
    return predictor;
}

static const char *name_at(int i) {
    const autoflex_predictor predictor = autoflex_at(i);
    return predictor ? autoflex_name(predictor) : NULL;
}

tensor_status autoflex_parse(autoflex_predictor *predictor, const char *name) {
    if (!predictor)
        return fl_fail(TENSOR_E_ARGUMENT, "autoflex_parse: result is NULL");
    if (name && fl_delayed_begins(name))
        return fl_delayed_find(predictor, name);
    *predictor = autoflex_find(name);
    return *predictor ? TENSOR_OK
                      : fl_fail(TENSOR_E_ARGUMENT, "unknown predictor %s, expected one of %s", fl_quote(name).text,
                                fl_list_names(name_at).text);
}
