/* windows.c - windows of convolutions and poolings: from what callers give to scalars of a function, and to messages.
 */
#include "core/ops/windows/windows.h"
#include "core/base/fail.h"
#include <stdio.h>

const char *fl_pair_text(char to[FL_NUMBERS_TEXT], int dims, int64_t down, int64_t across) {
    if (dims == 1 || down == across)
        snprintf(to, FL_NUMBERS_TEXT, "%lld", (long long)across);
    else
        snprintf(to, FL_NUMBERS_TEXT, "%lldx%lld", (long long)down, (long long)across);
    return to;
}

const char *fl_steps_text(char to[FL_NUMBERS_TEXT], int dims, const int v[2]) {
    return fl_pair_text(to, dims, v[0], v[1]);
}

const char *fl_size_text(char to[FL_NUMBERS_TEXT], int dims, int64_t down, int64_t across) {
    if (dims == 1)
        return fl_pair_text(to, dims, down, across);
    snprintf(to, FL_NUMBERS_TEXT, "%lldx%lld", (long long)down, (long long)across);
    return to;
}

const char *fl_padding_text(char to[FL_NUMBERS_TEXT], int dims, const int v[4]) {
    if (v[2] == v[3] && (dims == 1 || (v[0] == v[2] && v[1] == v[2])))
        snprintf(to, FL_NUMBERS_TEXT, "%d", v[2]);
    else if (dims == 1)
        snprintf(to, FL_NUMBERS_TEXT, "%d and %d", v[2], v[3]);
    else
        snprintf(to, FL_NUMBERS_TEXT, "%d, %d, %d, %d", v[0], v[1], v[2], v[3]);
    return to;
}

/* --- scalars ------------------------------------------------------------------------------------------------------ */

/* The numbers of `how` that are scalars of such a function, in their order; of one direction those across. */
static int numbers_of(struct fl_window_layout l, tensor_window *how, int *numbers[FL_SCALARS]) {
    const int first = l.dims == 1;
    int n = 0;
    for (int way = first; way < 2 && l.kind >= FL_POOLING; way++)
        numbers[n++] = &how->window[way];
    for (int way = first; way < 2; way++)
        numbers[n++] = &how->stride[way];
    for (int side = 2 * first; side < 4; side++)
        numbers[n++] = &how->padding[side];
    for (int way = first; way < 2 && l.kind != FL_MEANS; way++)
        numbers[n++] = &how->dilation[way];
    if (l.kind < FL_POOLING)
        numbers[n++] = &how->groups;
    for (int way = first; way < 2 && l.kind == FL_TRANSPOSED; way++)
        numbers[n++] = &how->output_padding[way];
    return n;
}

struct fl_windows_given fl_windows_given(struct fl_window_layout l, const union fl_value *scalars, const char *name) {
    struct fl_windows_given v = {name, l.dims, {.window = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}, .groups = 1}};
    int *numbers[FL_SCALARS];
    for (int i = numbers_of(l, &v.how, numbers) - 1; i >= 0; i--)
        *numbers[i] = (int)scalars[i].integer;
    return v;
}

int64_t fl_window_count(const struct fl_windows_given *v, int way, int64_t length, int64_t size) {
    const int *padding = v->how.padding + 2 * way;
    const int64_t room = length + padding[0] + padding[1] - fl_window_reach(v, way, size);
    return room < 0 ? 0 : room / v->how.stride[way] + 1;
}

/* --- windows of the caller ---------------------------------------------------------------------------------------- */

static bool all_are(const int *v, int n, int value) {
    for (int i = 0; i < n; i++)
        if (v[i] != value)
            return false;
    return true;
}

/* A window that is given with a convolution is that of its filters. */
static tensor_status check_filters(const struct fl_windows_given *v, const tensor *filters) {
    char text[FL_NUMBERS_TEXT], other[FL_NUMBERS_TEXT];
    const int *window = v->how.window, dims = v->dims;
    if (all_are(window, 2, 0) || !filters || filters->ndim != dims + 2)
        return TENSOR_OK; /* what is wrong then has a message of its own */
    const int64_t height = dims == 1 ? window[0] : filters->shape[1], width = filters->shape[dims];
    return window[0] == height && window[1] == width
               ? TENSOR_OK
               : fl_fail(TENSOR_E_ARGUMENT, "%s: window %s, expected 0 or the %s of the filters", v->name,
                         fl_size_text(text, dims, window[0], window[1]), fl_size_text(other, dims, height, width));
}

/* Checks the options that are no scalars of the function. */
static tensor_status check_rest(struct fl_window_layout l, const struct fl_windows_given *v) {
    const tensor_window *how = &v->how;
    char text[FL_NUMBERS_TEXT];
    if (l.kind >= FL_POOLING && (how->groups != 1 || !all_are(how->output_padding, 2, 0)))
        return fl_fail(TENSOR_E_ARGUMENT,
                       "%s: %d groups and output padding %s, expected 1 and 0: they belong to convolutions", v->name,
                       how->groups, fl_steps_text(text, l.dims, how->output_padding));
    if (l.kind == FL_MEANS && !all_are(how->dilation, 2, 1))
        return fl_fail(TENSOR_E_ARGUMENT, "%s: dilation %s, expected 1: means are those of neighbouring pixels",
                       v->name, fl_steps_text(text, l.dims, how->dilation));
    if (l.kind == FL_CONVOLUTION && !all_are(how->output_padding, 2, 0))
        return fl_fail(TENSOR_E_ARGUMENT, "%s: output padding %s, expected 0: it belongs to transposed convolutions",
                       v->name, fl_steps_text(text, l.dims, how->output_padding));
    if (l.dims == 1 && (how->window[0] < 0 || how->window[0] > 1 || how->stride[0] != 1 || how->dilation[0] != 1 ||
                        !all_are(how->padding, 2, 0) || how->output_padding[0]))
        return fl_fail(TENSOR_E_ARGUMENT,
                       "%s: the window has numbers for the direction down, expected 0: a sequence has one direction, "
                       "across",
                       v->name);
    return TENSOR_OK;
}

tensor_status fl_invoke_windows(const struct fl_function *function, struct fl_window_layout l,
                                const tensor *const *tensors, const tensor_window *how, const tensor *filters,
                                bool last) {
    struct fl_windows_given v = {function->name, l.dims, how ? *how : (tensor_window){.groups = 1}};
    union fl_value scalars[FL_SCALARS];
    int *numbers[FL_SCALARS],
        *ones[] = {v.how.stride, v.how.stride + 1, v.how.dilation, v.how.dilation + 1, &v.how.groups};
    for (int i = 0; i < 5; i++)
        if (!*ones[i])
            *ones[i] = 1;
    tensor_status status = check_rest(l, &v);
    if (!status && l.kind < FL_POOLING)
        status = check_filters(&v, filters);
    if (status)
        return status;
    const int count = numbers_of(l, &v.how, numbers);
    for (int i = 0; i < count; i++)
        scalars[i].integer = *numbers[i];
    scalars[count].integer = last;
    return fl_invoke(function, tensors, scalars);
}
