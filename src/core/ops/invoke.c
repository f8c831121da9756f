/* invoke.c - calls a function: makes the checks that its object describes, then submits the operation. */
#include "core/base/fail.h"
#include "core/ops/operation.h"
#include "core/queue/queue.h"
#include "core/tensor/wide.h"
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { LAYOUT_TEXT = 24 * (TENSOR_MAX_DIMS + 1) };

static const char *class_name(enum fl_class class) {
    static const char *const names[] = {
        [FL_CLASS_F64] = "f64", [FL_CLASS_F32] = "f32", [FL_CLASS_I32] = "i32", [FL_CLASS_U8] = "u8"};
    return names[class];
}

/* --- shapes ------------------------------------------------------------------------------------------------------- */

/* A dimension of a shape's text: factor times the size of a letter; letter 0: the factor itself. */
struct dimension {
    int64_t factor;
    char letter;
    bool many;
};

static const char *next_dimension(const char *text, struct dimension *d) {
    *d = (struct dimension){.factor = 0};
    if (*text >= '0' && *text <= '9')
        d->factor = *text++ - '0';
    if (*text >= 'A') {
        d->letter = *text++;
        d->factor = d->factor ? d->factor : 1;
    }
    d->many = *text == '*';
    return text + d->many;
}

/* The sizes of the letters that are known so far. */
struct binding {
    struct fl_sizes sizes;
    uint64_t known;
    const int64_t *dims[FL_SIZES]; /* the dimensions of letters with * */
    int count[FL_SIZES];           /* and their number */
};

static int index_of(char letter) {
    return letter - '@';
}
static bool is_known(const struct binding *b, char letter) {
    return b->known >> index_of(letter) & 1;
}
static void set_size(struct binding *b, char letter, int64_t size) {
    b->sizes.of[index_of(letter)] = size;
    b->known |= (uint64_t)1 << index_of(letter);
}

/* The number of dimensions in the text without letters with *. many: whether there is such a letter. */
static int fixed_dimensions(const char *text, bool *many) {
    int count = 0;
    *many = false;
    for (; *text; text++)
        if (*text == '*') {
            *many = true;
            count--;
        } else if (*text >= 'A' || text[1] < 'A') { /* a letter, or a digit that stands alone */
            count++;
        }
    return count;
}

static bool is_derived(const struct fl_function *f, char letter) {
    return f->derived && strchr(f->derived, letter);
}

/* A shape compared with its text. */
enum reading {
    FITS,   /* all sizes are as expected */
    OPEN,   /* a size differs, or a letter is not known yet: to be compared once all sizes are known */
    MISFITS /* the number of dimensions is wrong */
};

/* Learns the sizes of letters that are not known, and compares those that are. */
static enum reading learn(const struct fl_function *f, struct binding *b, const char *text, const tensor *t) {
    struct dimension d;
    bool many;
    enum reading reading = FITS;
    const int fixed = fixed_dimensions(text, &many), rest = t->ndim - fixed;
    if (many ? rest < 0 : rest != 0)
        return MISFITS;
    for (int at = 0; *text; at += d.many ? rest : 1) {
        text = next_dimension(text, &d);
        const int index = d.letter ? index_of(d.letter) : 0;
        if (d.letter && !is_known(b, d.letter) && is_derived(f, d.letter)) {
            reading = OPEN;
        } else if (d.many && !is_known(b, d.letter)) {
            int64_t size = 1;
            for (int k = 0; k < rest; k++)
                size *= t->shape[at + k];
            b->dims[index] = t->shape + at;
            b->count[index] = rest;
            set_size(b, d.letter, size);
        } else if (d.many) {
            if (b->count[index] != rest || memcmp(b->dims[index], t->shape + at, (size_t)rest * sizeof t->shape[0]))
                reading = OPEN;
        } else if (!d.letter || is_known(b, d.letter)) {
            if (t->shape[at] != (d.letter ? d.factor * b->sizes.of[index] : d.factor))
                reading = OPEN;
        } else if (d.factor == 1) { /* the usual case, without a division */
            set_size(b, d.letter, t->shape[at]);
        } else if (t->shape[at] % d.factor == 0) {
            set_size(b, d.letter, t->shape[at] / d.factor);
        } else {
            reading = OPEN;
        }
    }
    return reading;
}

/* The shape that the text stands for; -1 where a letter is not known. */
static int expected_shape(const struct binding *b, const char *text, int64_t *shape) {
    struct dimension d;
    int ndim = 0;
    while (*text) {
        text = next_dimension(text, &d);
        if (d.letter && !is_known(b, d.letter))
            return -1;
        const int count = d.many ? b->count[index_of(d.letter)] : 1;
        if (ndim + count > TENSOR_MAX_DIMS)
            return -1;
        for (int k = 0; k < count; k++)
            shape[ndim++] = !d.letter ? d.factor
                            : d.many  ? b->dims[index_of(d.letter)][k]
                                      : d.factor * FL_SIZE(&b->sizes, d.letter);
    }
    return ndim;
}

static const char *shape_text(int ndim, const int64_t *shape, char *text) {
    tensor t = {.ndim = ndim};
    memcpy(t.shape, shape, (size_t)ndim * sizeof shape[0]);
    return fl_shape_text(&t, text);
}

/* "[N,...,C]" */
static const char *layout_text(const char *text, char *line) {
    size_t used = 0;
    struct dimension d;
    for (line[used++] = '['; *text;) {
        text = next_dimension(text, &d);
        const char *comma = *text ? "," : "";
        if (d.many)
            used += (size_t)snprintf(line + used, LAYOUT_TEXT - used, "...%s", comma);
        else if (!d.letter)
            used += (size_t)snprintf(line + used, LAYOUT_TEXT - used, "%lld%s", (long long)d.factor, comma);
        else if (d.factor > 1)
            used +=
                (size_t)snprintf(line + used, LAYOUT_TEXT - used, "%lld %c%s", (long long)d.factor, d.letter, comma);
        else
            used += (size_t)snprintf(line + used, LAYOUT_TEXT - used, "%c%s", d.letter, comma);
    }
    snprintf(line + used, LAYOUT_TEXT - used, "]");
    return line;
}

static bool is_computed(const struct fl_operand *o) {
    return o->shape[0] == '=';
}

static tensor_status wrong_layout(const struct fl_function *f, const struct fl_operand *o, const tensor *t) {
    char shape[TENSOR_TEXT], layout[LAYOUT_TEXT];
    return fl_fail(TENSOR_E_SHAPE, "%s: %s is %s, expected %s", f->name, o->name, fl_shape_text(t, shape),
                   layout_text(o->shape, layout));
}

static bool fits(const struct fl_operand *o, const tensor *t, int ndim, const int64_t *shape, int64_t count) {
    if (o->class >= FL_CLASS_F64 && !(o->flags & FL_BROADCAST)) /* numbers need the right count alone */
        return t->count == count;
    if (!(o->flags & FL_BROADCAST))
        return t->ndim == ndim && !memcmp(t->shape, shape, (size_t)ndim * sizeof shape[0]);
    for (int d = 0; d < t->ndim; d++)
        if (t->ndim > ndim || (t->shape[d] != 1 && t->shape[d] != shape[ndim - t->ndim + d]))
            return false;
    return true;
}

static tensor_status check_shape(const struct fl_invocation *call, const struct binding *b, int i) {
    const struct fl_function *f = call->function;
    const struct fl_operand *o = &f->operands[i];
    const tensor *t = call->tensors[i];
    int64_t shape[TENSOR_MAX_DIMS], count = 1;
    char text[TENSOR_TEXT], expected[TENSOR_TEXT];
    const int ndim = is_computed(o) ? f->shape_of(call, i, shape) : expected_shape(b, o->shape, shape);
    if (ndim < 0)
        return is_computed(o) ? tensor_error_status() : wrong_layout(f, o, t);
    for (int d = 0; d < ndim; d++)
        count *= shape[d];
    if (fits(o, t, ndim, shape, count))
        return TENSOR_OK;
    return o->class >= FL_CLASS_F64 && !(o->flags & FL_BROADCAST)
               ? fl_fail(TENSOR_E_SHAPE, "%s: %s is %s %s, expected %s with %lld elements", f->name, o->name,
                         t->format->name, fl_shape_text(t, text), class_name(o->class), (long long)count)
               : fl_fail(TENSOR_E_SHAPE, "%s: %s is %s, expected %s%s", f->name, o->name, fl_shape_text(t, text),
                         shape_text(ndim, shape, expected),
                         o->flags & FL_BROADCAST ? ", or 1 in any dimension, the last ones aligned" : "");
}

static bool same_dims(const tensor *a, const tensor *b) {
    if (a->ndim != b->ndim)
        return false;
    for (int d = 0; d < a->ndim; d++)
        if (a->shape[d] != b->shape[d])
            return false;
    return true;
}

/* Whether operand i is to have the shape of the first input, and has it, as most operands of most calls do. */
static bool is_like_first(const struct fl_invocation *call, int i, int first) {
    const struct fl_operand *o = &call->function->operands[i], *other = &call->function->operands[first];
    const tensor *t = call->tensors[i], *like = call->tensors[first];
    return o->shape == other->shape && like && o->class == FL_CLASS_CALL && other->class == FL_CLASS_CALL &&
           !((o->flags | other->flags) & FL_BROADCAST) && !is_computed(o) && same_dims(t, like);
}

static tensor_status check_shapes(const struct fl_invocation *call, struct binding *b) {
    const struct fl_function *f = call->function;
    const int first = f->outputs < f->operand_count ? f->outputs : 0;
    unsigned checked = 0, numbers = 0;
    for (int k = 0; k < f->operand_count; k++) { /* inputs first */
        const int i = k + f->outputs < f->operand_count ? k + f->outputs : k + f->outputs - f->operand_count;
        const struct fl_operand *o = &f->operands[i];
        const tensor *t = call->tensors[i];
        if (!t || is_computed(o) || o->flags & FL_BROADCAST)
            continue;
        if (o->class >= FL_CLASS_F64) {
            numbers |= 1u << i;
        } else if (k && is_like_first(call, i, first)) { /* right if the first is */
            checked |= 1u << i;
        } else {
            const enum reading reading = learn(f, b, o->shape, t);
            if (reading == MISFITS)
                return wrong_layout(f, o, t);
            checked |= (unsigned)(reading == FITS) << i;
        }
    }
    for (int i = 0; numbers >> i; i++) /* numbers give sizes that no other operand gives; only their count is checked */
        if (numbers >> i & 1)
            learn(f, b, f->operands[i].shape, call->tensors[i]);
    if (f->derive && !f->derive(&b->sizes, call->scalars, f->name, false))
        return tensor_error_status();
    for (const char *letter = f->derived; letter && *letter; letter++)
        b->known |= (uint64_t)1 << index_of(*letter);
    for (int i = 0; i < f->operand_count; i++)
        if (call->tensors[i] && !(checked >> i & 1))
            TRY(check_shape(call, b, i));
    return TENSOR_OK;
}

/* --- operands ----------------------------------------------------------------------------------------------------- */

/* The first operand that has a format of arithmetic; -1: there is none. */
static int first_of_call(const struct fl_invocation *call) {
    for (int i = 0; i < call->function->operand_count; i++)
        if (call->function->operands[i].class <= FL_CLASS_ANY && call->tensors[i])
            return i;
    return -1;
}

/* Factors of products have shared exponents, all of them or none. */
static tensor_status check_factor(const struct fl_invocation *call, int i) {
    const struct fl_function *f = call->function;
    int first = 0;
    while (f->operands[first].class != FL_CLASS_FACTOR)
        first++;
    const struct fl_format *a = call->tensors[first]->format, *b = call->tensors[i]->format;
    return a->arithmetic == b->arithmetic
               ? TENSOR_OK
               : fl_fail(TENSOR_E_FORMAT,
                         "%s: %s is %s, %s is %s: a shared exponent and a float have no product; tensor_convert makes "
                         "one of the other",
                         f->name, f->operands[first].name, a->name, f->operands[i].name, b->name);
}

static tensor_status check_format(const struct fl_invocation *call, int i, int first) {
    const struct fl_function *f = call->function;
    const struct fl_operand *o = &f->operands[i];
    const tensor *t = call->tensors[i];
    char text[TENSOR_TEXT];
    if (o->class >= FL_CLASS_F64)
        return strcmp(t->format->name, class_name(o->class)) == 0
                   ? TENSOR_OK
                   : fl_fail(TENSOR_E_FORMAT, "%s: %s is %s %s, expected %s", f->name, o->name, t->format->name,
                             fl_shape_text(t, text), class_name(o->class));
    if (o->class == FL_CLASS_TARGETS && t->format != call->tensors[first]->format)
        return t->format->id == FMT_F64 || t->format->id == FMT_F32
                   ? TENSOR_OK
                   : fl_fail(TENSOR_E_FORMAT, "%s: %s is %s, expected %s, f64 or f32", f->name, o->name,
                             t->format->name, call->tensors[first]->format->name);
    if (o->class == FL_CLASS_CALL && t->format != call->tensors[first]->format)
        return fl_fail(TENSOR_E_FORMAT, "%s: %s is %s, %s is %s; use tensor_convert", f->name, f->operands[first].name,
                       call->tensors[first]->format->name, o->name, t->format->name);
    TRY(fl_need_arithmetic(f->name, o->name, t));
    return o->class == FL_CLASS_FACTOR ? check_factor(call, i) : TENSOR_OK;
}

/* Whether both lie on one device without overlap, as most operands do. */
static bool is_elsewhere(const struct fl_storage *a, const struct fl_storage *b) {
    const char *pa = a->data, *pb = b->data;
    return a->device == b->device && ((uintptr_t)pa >= (uintptr_t)pb + (size_t)b->count * (size_t)b->format->bytes ||
                                      (uintptr_t)pb >= (uintptr_t)pa + (size_t)a->count * (size_t)a->format->bytes);
}

/* Outputs differ from all other operands except FL_IN_PLACE inputs, and memory of different tensors does not overlap.
 */
static tensor_status check_outputs(const struct fl_invocation *call) {
    const struct fl_function *f = call->function;
    for (int i = 0; i < f->outputs; i++)
        for (int j = i + 1; j < f->operand_count && call->tensors[i]; j++) {
            const tensor *a = call->tensors[i], *b = call->tensors[j];
            const bool may_share =
                f->operands[j].flags & FL_IN_PLACE && j >= f->outputs && f->operands[i].class < FL_CLASS_F64;
            if (!b || is_elsewhere(a->storage, b->storage))
                continue;
            if (a->storage == b->storage && !may_share)
                return fl_fail(TENSOR_E_ARGUMENT, "%s: %s and %s are the same tensor, the output must be another",
                               f->name, f->operands[i].name, f->operands[j].name);
            TRY(fl_check_apart(f->name, f->operands[i].name, a, f->operands[j].name, b));
        }
    return TENSOR_OK;
}

static tensor_status check_operands(const struct fl_invocation *call) {
    const struct fl_function *f = call->function;
    const int first = first_of_call(call);
    for (int i = 0; i < f->operand_count; i++) {
        const struct fl_operand *o = &f->operands[i];
        const tensor *t = call->tensors[i];
        if (!t && o->flags & FL_OPTIONAL)
            continue;
        if (!t)
            return fl_fail(TENSOR_E_ARGUMENT, "%s: %s is NULL", f->name, o->name);
        if (i > first && first >= 0 && o->class == FL_CLASS_CALL && t->format == call->tensors[first]->format &&
            !t->storage->hidden && !t->is_strided)
            continue; /* the usual case */
        TRY(check_format(call, i, first));
        if (!(o->flags & FL_SHAPE_ONLY))
            TRY(fl_need_present(f->name, t));
        if (!(o->flags & FL_STRIDED))
            TRY(fl_need_contiguous(f->name, t));
    }
    return TENSOR_OK;
}

/* --- scalars ------------------------------------------------------------------------------------------------------ */

static bool is_integer(const struct fl_scalar_rule *s) {
    return s->type == FL_INT32 || s->type == FL_INT64;
}

/* A dimension, a set of them, or an order of them. */
static tensor_status check_dimensions(const struct fl_invocation *call, const struct fl_scalar_rule *s,
                                      const union fl_value *v) {
    const struct fl_function *f = call->function;
    const tensor *t = call->tensors[s->of];
    char text[TENSOR_TEXT];
    unsigned seen = 0;
    if (s->type == FL_DIM && (v->integer < 0 || v->integer >= t->ndim))
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %s is %lld, expected 0 to %d: %s is %s", f->name, s->name,
                       (long long)v->integer, t->ndim - 1, f->operands[s->of].name, fl_shape_text(t, text));
    if (s->type == FL_AXES && v->integer >> t->ndim)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %s are 0x%llx, expected bits 0 to %d alone for %s", f->name, s->name,
                       (unsigned long long)v->integer, t->ndim - 1, fl_shape_text(t, text));
    for (int d = 0; s->type == FL_ORDER && d < t->ndim; d++) {
        const int from = FL_ORDER_AT(v->integer, d);
        if (from >= t->ndim || seen >> from & 1)
            return fl_fail(TENSOR_E_ARGUMENT, "%s: %s[%d] is %d, expected each of 0 to %d once", f->name, s->name, d,
                           from, t->ndim - 1);
        seen |= 1u << from;
    }
    return TENSOR_OK;
}

static tensor_status check_scalar(const struct fl_invocation *call, const struct fl_scalar_rule *s,
                                  const union fl_value *v) {
    const char *op = call->function->name;
    if (s->type <= FL_REAL64 && isfinite(v->real) && s->least == 0 && s->most == 0 && !s->under &&
        (!s->above || v->real > 0))
        return TENSOR_OK; /* any finite number, or any above 0 */
    if (s->type == FL_RESULT)
        return v->result ? TENSOR_OK : fl_fail(TENSOR_E_ARGUMENT, "%s: %s is NULL", op, s->name);
    if (s->type >= FL_DIM)
        return check_dimensions(call, s, v);
    const bool limited = s->least != 0 || s->most != 0 || s->above || s->under;
    if (s->type == FL_KEY64 || s->type == FL_BOOL)
        return TENSOR_OK;
    if (is_integer(s)) {
        if (!limited || ((double)v->integer >= s->least && (double)v->integer <= s->most))
            return TENSOR_OK;
        if (s->most >= INT32_MAX)
            return fl_fail(TENSOR_E_ARGUMENT, "%s: %s is %lld, expected %.0f or more", op, s->name,
                           (long long)v->integer, s->least);
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %s is %lld, expected %.0f to %.0f", op, s->name, (long long)v->integer,
                       s->least, s->most);
    }
    const double x = v->real;
    const bool low = s->above ? x > s->least : x >= s->least, high = s->under ? x < s->most : x <= s->most;
    if (isfinite(x) && (!limited || (low && (s->most == 0 || high))))
        return TENSOR_OK;
    if (!limited)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %s is %g, expected a finite number", op, s->name, x);
    if (s->most == 0 || s->most >= FLT_MAX)
        return fl_fail(TENSOR_E_ARGUMENT,
                       s->above ? "%s: %s is %g, expected a finite number above %g"
                                : "%s: %s is %g, expected %g or more",
                       op, s->name, x, s->least);
    return fl_fail(TENSOR_E_ARGUMENT, "%s: %s is %g, expected %s%g %s %g", op, s->name, x, s->above ? "more than " : "",
                   s->least,
                   s->under   ? "or more and less than"
                   : s->above ? "and at most"
                              : "to",
                   s->most);
}

static void place_scalar(struct fl_args *args, const struct fl_scalar_rule *s, const union fl_value *v) {
    char *to = (char *)args + s->at;
    const float small = (float)v->real;
    const int32_t whole = (int32_t)v->integer;
    const bool flag = v->integer != 0;
    switch (s->type) {
    case FL_REAL32:
        memcpy(to, &small, sizeof small);
        return;
    case FL_INT32:
        memcpy(to, &whole, sizeof whole);
        return;
    case FL_BOOL:
        memcpy(to, &flag, sizeof flag);
        return;
    default:
        memcpy(to, v, 8);
    }
}

/* --- the call ----------------------------------------------------------------------------------------------------- */

static void place_operand(struct fl_args *args, const struct fl_operand *o, const tensor *t) {
    char *to = (char *)args + o->at;
    if (o->flags & FL_LATE_VALUE) {
        args->late = (struct fl_late){.at = t->storage->data,
                                      .what = o->what,
                                      .member = (uint16_t)o->at,
                                      .kind = o->class == FL_CLASS_F64 ? FL_LATE_DOUBLE : FL_LATE_FLOAT,
                                      .bound = (o->flags & FL_NOT_NEGATIVE) != 0};
    } else if (o->class >= FL_CLASS_F64) {
        memcpy(to, &t->storage->data, sizeof(void *));
    } else {
        *(struct fl_view *)(void *)to = o->flags & FL_WIDE ? fl_wide_view_of(t) : fl_view_of(t);
    }
}

/* Fills args, which are zero before. */
static void prepare(const struct fl_invocation *call, struct fl_args *args) {
    const struct fl_function *f = call->function;
    args->op = f->op;
    for (int i = 0; i < f->operand_count; i++)
        if (f->operands[i].at && call->tensors[i])
            place_operand(args, &f->operands[i], call->tensors[i]);
    for (int i = 0; i < f->scalar_count; i++)
        if (f->scalars[i].at)
            place_scalar(args, &f->scalars[i], &call->scalars[i]);
    if (f->prepare)
        f->prepare(args, call->sizes, call->scalars);
}

tensor_status fl_invoke(const struct fl_function *f, const tensor *const *tensors, const union fl_value *scalars) {
    struct binding b;
    b.known = 0;
    const struct fl_invocation call = {f, tensors, scalars, &b.sizes};
    TRY(check_operands(&call));
    TRY(check_outputs(&call));
    for (int i = 0; i < f->scalar_count; i++)
        TRY(check_scalar(&call, &f->scalars[i], &scalars[i]));
    TRY(check_shapes(&call, &b));
    if (f->check)
        TRY(f->check(&call));
    struct fl_args args = {0};
    prepare(&call, &args);
    if (f->run)
        return f->run(&call, &args);
    return f->operands[0].class < FL_CLASS_F64 ? fl_write((tensor *)tensors[0], &args)
                                               : fl_run(tensors[first_of_call(&call)], &args);
}
