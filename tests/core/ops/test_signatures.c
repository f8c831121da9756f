/* The signatures of all operations and functions: names are unique, nothing has two meanings (no two operands or
 * scalars of one occupy overlapping bytes of struct fl_args), every position is within struct fl_args, limits are not
 * contradictory, letters that derive reads have a size in every call, every signature has sizes that fit it, and
 * operands that may not be views with strides are refused as such. test_headers.py looks for functions without one. */
#include "core/ops/operation.h"
#include "draw_function.h"

static size_t operand_bytes(const struct fl_operand *o) {
    if (o->flags & FL_LATE_VALUE)
        return o->class == FL_CLASS_F64 ? sizeof(double) : sizeof(float);
    return o->class >= FL_CLASS_F64 ? sizeof(void *) : sizeof(struct fl_view);
}

static size_t scalar_bytes(const struct fl_scalar_rule *s) {
    return s->type == FL_REAL32 || s->type == FL_INT32 ? 4 : s->type == FL_BOOL ? sizeof(bool) : 8;
}

/* Records the owner of each byte; a late value and the scalar that it replaces are never given in one call. */
static void take_place(const char *name, const char *what, unsigned at, size_t bytes, const char **taken) {
    if (!at)
        return;
    CHECK(at + bytes <= sizeof(struct fl_args), "%s: %s lies at %u, expected it inside struct fl_args", name, what, at);
    for (size_t i = at; i < at + bytes && i < sizeof(struct fl_args); i++) {
        CHECK(!taken[i], "%s: %s and %s have the same place", name, what, taken[i]);
        taken[i] = what;
    }
}

static void check_operand(const char *name, const struct fl_operand *o) {
    const bool numbers = o->class >= FL_CLASS_F64;
    CHECK(o->name && *o->name && o->shape && *o->shape, "%s: an operand has no name or no shape", name);
    CHECK(!(o->flags & FL_LATE_VALUE) || (numbers && o->what), "%s: the late value %s has no text", name, o->name);
    CHECK(!o->below || o->class == FL_CLASS_I32, "%s: %s has an end of indices, and is none", name, o->name);
    CHECK(!numbers || !(o->flags & FL_WIDE), "%s: numbers %s have no wide part", name, o->name);
}

static void check_scalar(const struct fl_function *f, const struct fl_scalar_rule *s) {
    CHECK(s->name && *s->name, "%s: a scalar has no name", f->name);
    CHECK(s->most == 0 || s->least < s->most || (s->least == s->most && !s->above && !s->under),
          "%s: %s is %g to %g, expected room between them", f->name, s->name, s->least, s->most);
    CHECK(s->type < FL_DIM || s->type > FL_LENGTH || (s->of >= 0 && s->of < f->operand_count),
          "%s: %s is of operand %d, expected 0 to %d", f->name, s->name, s->of, f->operand_count - 1);
}

static void check_function(const struct fl_function *f) {
    const char *taken[sizeof(struct fl_args)] = {NULL};
    CHECK(f->operand_count <= FL_OPERANDS && f->scalar_count <= FL_SCALARS && f->outputs <= f->operand_count,
          "%s has %d operands, %d of them outputs, and %d scalars", f->name, f->operand_count, f->outputs,
          f->scalar_count);
    CHECK(f->op || f->run, "%s has neither an operation nor calls of its own", f->name);
    for (int i = 0; i < f->operand_count; i++) {
        const struct fl_operand *o = &f->operands[i];
        check_operand(f->name, o);
        CHECK(o->shape[0] != '=' || f->shape_of, "%s: nothing computes the shape of %s", f->name, o->name);
        take_place(f->name, o->name, o->at, operand_bytes(o), taken);
        for (int k = 0; k < i; k++)
            CHECK(strcmp(o->name, f->operands[k].name), "%s: two operands are %s", f->name, o->name);
    }
    for (int i = 0; i < f->scalar_count; i++) {
        const struct fl_scalar_rule *s = &f->scalars[i];
        bool late = false;
        check_scalar(f, s);
        for (int k = 0; k < f->operand_count; k++)
            late = late || (f->operands[k].flags & FL_LATE_VALUE && f->operands[k].at == s->at);
        if (!late)
            take_place(f->name, s->name, s->at, scalar_bytes(s), taken);
        for (int k = 0; k < i; k++)
            CHECK(strcmp(s->name, f->scalars[k].name), "%s: two scalars are %s", f->name, s->name);
    }
    for (int i = 0; fl_function_at(i) != f; i++)
        CHECK(strcmp(f->name, fl_function_at(i)->name), "two functions are %s", f->name);
}

static void check_operation(enum fl_op op) {
    const struct fl_operation *o = fl_operation_of(op);
    const char *taken[sizeof(struct fl_args)] = {NULL};
    CHECK(o && o->op == op, "operation %s is no object, or one of another number", fl_op_name(op));
    if (!o || o->op != op)
        return;
    CHECK(o->reference.kernel, "%s has no reference kernel", fl_op_name(op));
    CHECK(o->operands || fl_function_named(fl_op_name(op)), "%s has no operands", fl_op_name(op));
    for (int i = 0; i < o->operand_count; i++) {
        check_operand(fl_op_name(op), &o->operands[i]);
        take_place(fl_op_name(op), o->operands[i].name, o->operands[i].at, operand_bytes(&o->operands[i]), taken);
    }
}

/* Whether another size of the letter changes the result of derive: its answer, or a size that it computes. */
static bool derive_reads(const struct fl_function *f, char letter, int64_t size) {
    struct fl_sizes usual, other;
    union fl_value scalars[FL_SCALARS] = {{.integer = 0}};
    for (int i = 0; i < f->scalar_count; i++)
        scalars[i].integer = (int64_t)f->scalars[i].least; /* no padding, steps and groups of 1 */
    for (int i = 0; i < FL_SIZES; i++)
        usual.of[i] = 8;
    other = usual;
    FL_SIZE(&other, letter) = size;
    if (f->derive(&usual, scalars, f->name, true) != f->derive(&other, scalars, f->name, true))
        return true;
    FL_SIZE(&other, letter) = FL_SIZE(&usual, letter);
    return memcmp(&usual, &other, sizeof usual) != 0;
}

/* The letters that derive reads occur in an operand that is always given: otherwise the size would be undefined. */
static void check_derive(const struct fl_function *f) {
    int found = 0;
    for (char letter = 'A'; letter <= 'z'; letter++) {
        bool given = false;
        for (int i = 0; i < f->operand_count; i++)
            given = given || (!(f->operands[i].flags & FL_OPTIONAL) && strchr(f->operands[i].shape, letter));
        if (!derive_reads(f, letter, 6) && !derive_reads(f, letter, 12) &&
            !derive_reads(f, letter, (int64_t)INT32_MAX + 1))
            continue;
        found++;
        CHECK(given, "%s: derive reads %c, which stands in no operand that is always given", f->name, letter);
    }
    CHECK(found, "%s: derive reads no letter", f->name);
}

/* Every function can be drawn: its signature has sizes, and calls that it accepts. */
static void check_draws(const struct fl_function *f) {
    static const int64_t sizes[] = {1, 2, 3, 4, 6, 8};
    static const struct draw_dims many[] = {{0, {0}}, {1, {5}}, {2, {2, 3}}, {3, {2, 1, 4}}};
    const struct draw_limits limits = {sizes, 6, many, 4, 3000, 3000, 3000, 0};
    struct drawn call;
    for (int i = 0; i < 20; i++)
        CHECK(draw_call(&call, f, &limits), "%s: no sizes were found", f->name);
}

/* Prints "softmax: y x; scale causal", without the scalars that the wrapper reads from tensors: test_names.py compares
 * these names with those of the prototypes. */
static void print_names(const struct fl_function *f) {
    printf("%s:", f->name);
    for (int i = 0; i < f->operand_count; i++)
        printf(" %s", f->operands[i].name);
    printf(";");
    for (int i = 0; i < f->scalar_count; i++)
        if (f->scalars[i].type != FL_LENGTH)
            printf(" %s", f->scalars[i].name);
    printf("\n");
}

/* Passes a view with strides as every operand of every function that may not be one: the call is refused and nothing is
 * written, also if several operations implement the function and the view is an operand of a later one. The view
 * repeats one element, so that an access by its count would go far beyond it. */
static void check_strides(const struct fl_function *f, int which) {
    static const int64_t sizes[] = {2, 4}, still[TENSOR_MAX_DIMS] = {0};
    static const struct draw_dims several[] = {{1, {5}}, {2, {2, 3}}};
    static const struct draw_limits limits = {sizes, 2, several, 2, 3000, 3000, 3000, 0};
    struct drawn call;
    const tensor *given[FL_OPERANDS] = {NULL};
    tensor *tensors[FL_OPERANDS] = {NULL};
    char *before[FL_OPERANDS] = {NULL};
    do
        CHECK(draw_call(&call, f, &limits), "%s: no call", f->name);
    while (!call.operand[which].given);
    const struct drawn_operand *o = call.operand;
    if (count_of(o[which].ndim, o[which].shape) == 1)
        return; /* a number has no strides */
    for (int i = 0; i < f->operand_count; i++) {
        const tensor_format format = o[i].numbers ? o[i].format : FMT_FLEX16_5;
        if (!o[i].given)
            continue;
        tensors[i] = i == which ? tensor_new(format, TENSOR_SHAPE(1)) : tensor_new(format, o[i].ndim, o[i].shape);
        CHECK(tensors[i], "%s", tensor_error());
        given[i] = i == which ? tensor_new_strided(tensors[i], o[i].ndim, o[i].shape, still, 0) : tensors[i];
        before[i] = memcpy(malloc(tensor_bytes(tensors[i])), tensor_const_data(tensors[i]), tensor_bytes(tensors[i]));
    }
    CHECK(fl_invoke(f, given, call.scalar) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "a view with strides"),
          "%s, %s: %s", f->name, f->operands[which].name, tensor_error());
    for (int i = 0; i < f->operand_count; i++) {
        CHECK(!tensors[i] || !memcmp(before[i], tensor_const_data(tensors[i]), tensor_bytes(tensors[i])),
              "%s, %s: wrote %s", f->name, f->operands[which].name, f->operands[i].name);
        free(before[i]);
        tensor_free(i == which ? (tensor *)given[i] : NULL);
        tensor_free(tensors[i]);
    }
}

int main(void) {
    CHECK(sizeof(struct fl_args) <= 512, "struct fl_args has %zu bytes, expected at most 512", sizeof(struct fl_args));
    for (int i = 0; fl_function_at(i); i++) {
        check_function(fl_function_at(i));
        check_draws(fl_function_at(i));
        print_names(fl_function_at(i));
        for (int k = 0; k < fl_function_at(i)->operand_count; k++)
            if (!(fl_function_at(i)->operands[k].flags & FL_STRIDED))
                check_strides(fl_function_at(i), k);
        if (fl_function_at(i)->derive)
            check_derive(fl_function_at(i));
    }
    for (int op = 1; op < FL_OP_LIMIT; op++)
        if (fl_op_name((enum fl_op)op))
            check_operation((enum fl_op)op);
    return check_summary();
}
