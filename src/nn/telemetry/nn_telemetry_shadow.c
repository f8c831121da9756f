/* nn_telemetry_shadow.c - shadow formats: what another format would have done to the tensors of a training. Its
 * exponents change by the rules of autoflex, which need only the exact maximum of each write. */
#include "nn/telemetry/nn_telemetry.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/base/text.h"
#include <math.h>
#include <string.h>

/* --- list --------------------------------------------------------------------------------------------------------- */

/* Finds the least binary32 that does not fit the format, by bisection: positive numbers are in the order of their
 * words. */
static tensor_status find_beyond(struct fl_shadow *s, tensor *one) {
    uint32_t low = 0, high = 0x7f800000u; /* low fits; high: infinity */
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        tensor_measure m;
        float x;
        memcpy(&x, &middle, sizeof x);
        TRY(tensor_load_f32(one, &x, 1));
        TRY(tensor_measure_in(&m, one, s->format, 0));
        if (m.saturated)
            high = middle;
        else
            low = middle;
    }
    memcpy(&s->beyond, &high, sizeof high);
    return TENSOR_OK;
}

static tensor_status take_limits(struct fl_shadow *s) {
    tensor *one = tensor_new(FMT_FP32, TENSOR_SHAPE(1));
    if (!one)
        return tensor_error_status();
    const tensor_status status = find_beyond(s, one);
    tensor_free(one);
    return status;
}

/* The state that a new tensor of the format begins with. */
static tensor_status take_format(struct fl_shadow *s, const char *format, const char *predictor) {
    TRY(tensor_format_find(&s->format, format));
    s->shared = tensor_format_is_shared(s->format);
    if (!s->shared)
        return predictor
                   ? fl_fail(TENSOR_E_ARGUMENT, "shadow '%s': %s has no shared exponent to predict", s->name, format)
                   : take_limits(s);
    tensor *t = tensor_new(s->format, TENSOR_SHAPE(1));
    if (!t)
        return tensor_error_status();
    const tensor_status status = predictor ? tensor_set_predictor(t, predictor) : TENSOR_OK;
    if (!status)
        s->first = *tensor_autoflex(t);
    tensor_free(t);
    return status;
}

static tensor_status add_shadow(nn_telemetry *t, const char *name, size_t length) {
    char format[64];
    if (t->shadow_count == FL_MOST_SHADOWS)
        return fl_fail(TENSOR_E_ARGUMENT, "shadows: more than %d formats", FL_MOST_SHADOWS);
    struct fl_shadow *s = &t->shadows[t->shadow_count];
    if (!(s->name = fl_format_name("%.*s", (int)length, name)))
        return fl_fail(TENSOR_E_MEMORY, "shadows: no memory");
    t->shadow_count++;
    if (!length || length >= sizeof format)
        return fl_fail(TENSOR_E_ARGUMENT, "shadows: '%s', expected names of formats with commas between", s->name);
    for (int i = 0; i + 1 < t->shadow_count; i++)
        if (!strcmp(t->shadows[i].name, s->name))
            return fl_fail(TENSOR_E_ARGUMENT, "shadows: '%s' twice", s->name);
    strcpy(format, s->name);
    char *const end = format + tensor_format_extent(format), *const predictor = *end ? end + 1 : NULL;
    *end = 0;
    TRY(take_format(s, format, predictor));
    t->shadows_here = t->shadows_here || fl_is_added(s->first.predictor);
    return TENSOR_OK;
}

tensor_status fl_shadows_parse(nn_telemetry *t, const char *list) {
    while (list) {
        const char *comma = strchr(list, ',');
        TRY(add_shadow(t, list, comma ? (size_t)(comma - list) : strlen(list)));
        list = comma ? comma + 1 : NULL;
    }
    return TENSOR_OK;
}

void fl_shadows_clear(nn_telemetry *t) {
    for (int i = 0; i < t->shadow_count; i++)
        fl_free(t->shadows[i].name);
}

/* --- exponents ---------------------------------------------------------------------------------------------------- */

tensor_status fl_shadows_begin(nn_telemetry *t, struct fl_seen_tensor *seen, const tensor *x, const char *role) {
    tensor_description d = {0};
    if (!t->shadow_count)
        return TENSOR_OK;
    if (!strcmp(role, "weight")) /* it was loaded when the network was made */
        TRY(tensor_describe(&d, x));
    for (int i = 0; i < t->shadow_count; i++) {
        struct fl_shadow_state *s = &seen->shadows[i];
        s->a = t->shadows[i].first;
        s->a.role = (int16_t)autoflex_find_role(role);
        seen->shadow_rows[i] = (nn_telemetry_shadow){.name = t->shadows[i].name, .error = NAN};
        if (t->shadows[i].shared && d.largest > 0)
            fl_shadow_write(&s->a, true, d.largest);
    }
    return TENSOR_OK;
}

void fl_shadows_see(const nn_telemetry *t, struct fl_seen_tensor *seen, double maximum) {
    for (int i = 0; i < t->shadow_count; i++) {
        struct fl_shadow_state *s = &seen->shadows[i];
        if (!t->shadows[i].shared) {
            const float x = (float)maximum; /* results are rounded to binary32 first */
            s->saturated_writes += x >= t->shadows[i].beyond && isfinite(x);
            continue;
        }
        const int before = s->a.e;
        const bool known = s->a.initialised;
        fl_shadow_write(&s->a, seen->loaded, maximum);
        s->e_moves += known && s->a.e != before;
        s->saturated_writes += !fl_autoflex_fits(&s->a, maximum);
    }
}

void fl_shadow_measured(nn_telemetry_shadow *row, const tensor_measure *m, int e) {
    row->e = e;
    row->error = m->finite && m->size > 0 ? m->error / m->size : NAN;
    row->saturated = m->saturated;
    row->flushed = m->flushed;
}

tensor_status fl_shadows_measure(const nn_telemetry *t, struct fl_seen_tensor *seen, const tensor *x) {
    for (int i = 0; i < t->shadow_count; i++) {
        const int e = t->shadows[i].shared ? seen->shadows[i].a.e : 0;
        tensor_measure m;
        TRY(tensor_measure_in(&m, x, t->shadows[i].format, e));
        fl_shadow_measured(&seen->shadow_rows[i], &m, e);
    }
    return TENSOR_OK;
}
