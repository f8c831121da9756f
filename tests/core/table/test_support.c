/* docs/support.md: which operation runs in which format on which backend, its promise, its gradient; then networks. The
 * page is generated from the kernel sets, a device that runs the kernels of a GPU, and the objects of the operations
 * (core/ops/operation.h). The test fails if the page differs.
 *
 *    test_support [--write | --print]
 *
 * --write writes the page; --print prints that of this build, which may lack kernel sets and a device. */
#include "check.h"
#include "core/ops/operation.h"
#include "core/queue/queue.h"
#include "flexlab/nn.h"
#include <string.h>

static const char *const promise_names[] = {[FL_PROMISE_EXACT] = "exact",
                                            [FL_PROMISE_DOUBLE] = "double",
                                            [FL_PROMISE_COPY] = "copy",
                                            [FL_PROMISE_NUMBERS] = "numbers"};

/* --- the page ----------------------------------------------------------------------------------------------------- */

static FILE *out;

static const char *const letters[FL_KERNEL_SETS] = {
    [FL_REF] = "r",    [FL_PORTABLE] = "p",   [FL_AVX2] = "2",         [FL_AVX2_VNNI] = "2v",      [FL_AVX512BW] = "b",
    [FL_AVX512] = "v", [FL_AVX512_AMX] = "t", [FL_AVX512_FAST] = "fv", [FL_AVX512_AMX_FAST] = "ft"};

static bool has_kernel(const struct fl_format *format, enum fl_op op, enum fl_backend backend) {
    if (backend == FL_REF)
        return fl_ref_kernel(op) != NULL;
    const struct fl_kernels *set = format->sets[backend];
    return (set && set->op[op]) || fl_any_format_kernel(format, op, backend);
}

static bool on_device(tensor_device *device, const struct fl_format *format, enum fl_op op) {
    struct fl_choice choice;
    return device->find(device, format, op, &choice);
}

/* Prints "r p 2 b": the kernel sets with a kernel; with a "g" the operations that a GPU has. */
static void print_cell(tensor_device *device, const struct fl_format *format, enum fl_op op) {
    fprintf(out, " |");
    for (int backend = 0; backend < FL_KERNEL_SETS; backend++)
        if (has_kernel(format, op, (enum fl_backend)backend))
            fprintf(out, " %s", letters[backend]);
    CHECK(fl_ref_kernel(op), "%s.%s has no reference kernel", format->name, fl_op_name(op));
    if (device && on_device(device, format, op))
        fprintf(out, " g");
    else if (device)
        CHECK(fl_operation_of(op)->promise == FL_PROMISE_NUMBERS, "%s.%s: a GPU has no kernel", format->name,
              fl_op_name(op));
}

static void print_operation(tensor_device *device, enum fl_op op) {
    const struct fl_operation *o = fl_operation_of(op);
    CHECK(o, "%s (%d) is no object", fl_op_name(op), (int)op);
    if (!o)
        return;
    fprintf(out, "| `%s`", fl_op_name(op));
    for (int i = 0; fl_format_at(i); i++)
        print_cell(device, fl_format_at(i), op);
    char own[80];
    snprintf(own, sizeof own, "%s_grad", fl_op_name(op));
    const char *gradient = o->gradient ? o->gradient : fl_op_named(own) ? own : "";
    fprintf(out, " | %s | %s |\n", fl_op_is_real(op) ? "real" : promise_names[o->promise], gradient);
}

static void print_head(void) {
    fprintf(
        out,
        "# What runs where\n\n"
        "`test_support --write` writes this page, and the test compares it with the code.\n\n"
        "## Operations\n"
        "A cell lists the backends with a kernel of their own; each other backend runs that of the one before it.\n"
        "`r` the reference, `p` portable C, `2` AVX2, `2v` AVX-VNNI, `b` AVX-512 (bw), `v` AVX-512 VNNI, `t` AMX\n"
        "tiles, `fv`, `ft` class fast with AVX512_BF16 and with AMX tiles, `g` a GPU. All except class fast give the\n"
        "same bits.\n\n"
        "Promises ([semantics.md](semantics.md) has them in full):\n"
        "- *exact*: shared exponents: the exact result, a rational number, rounded once. Float formats: binary32 in a\n"
        "  fixed order, rounded once when stored.\n"
        "- *real*: the real number rounded once, in every format.\n"
        "- *double*: exact sums, then double precision in a fixed sequence, rounded once; float formats in double.\n"
        "- *copy*: the values themselves, stored like any result.\n"
        "- *numbers*: numbers beside the formats (means, indices, factors), double in a fixed sequence.\n\n"
        "Gradients: the operation that computes the gradient, or the operations that it consists of.\n\n"
        "| operation");
    for (int i = 0; fl_format_at(i); i++)
        fprintf(out, " | %s", fl_format_at(i)->name);
    fprintf(out, " | promise | gradient |\n| ---");
    for (int i = 0; fl_format_at(i); i++)
        fprintf(out, " | ---");
    fprintf(out, " | --- | --- |\n");
}

static void print_names(const char *what, const char *(*list)(int)) {
    int column = fprintf(out, "- %s:", what);
    for (int i = 0; list(i); i++) {
        const int room = (int)strlen(list(i)) + 4; /* a space, the quotes and a comma */
        if (column + room > 120)
            column = fprintf(out, "\n ") - 1;
        column += fprintf(out, " `%s`%s", list(i), list(i + 1) ? "," : "");
    }
    fprintf(out, "\n");
}

static const char *variant_name(int i) {
    const nn_variant *v = nn_variant_at(i);
    return v ? v->name : NULL;
}

static char *make_page(tensor_device *device, size_t *bytes) {
    char *page = NULL;
    out = open_memstream(&page, bytes);
    if (!out)
        return NULL;
    print_head();
    for (int op = 1; op < FL_OP_LIMIT; op++)
        if (fl_op_name((enum fl_op)op))
            print_operation(device, (enum fl_op)op);
    fprintf(out, "\n## Networks\nModels, variants, losses and optimisers are chosen independently of each other.\n");
    print_names("models of images", nn_model_at);
    print_names("models of texts", nn_text_model_at);
    print_names("variants", variant_name);
    print_names("losses", nn_loss_name_at);
    print_names("optimisers", nn_optimiser_at);
    print_names("real functions as layers", nn_activation_at);
    fclose(out);
    return page;
}

/* --- against the file --------------------------------------------------------------------------------------------- */

static void write_page(const char *page, size_t bytes) {
    FILE *f = fopen(SUPPORT_PAGE, "wb");
    CHECK(f && fwrite(page, 1, bytes, f) == bytes, "%s cannot be written", SUPPORT_PAGE);
    CHECK(f && !fclose(f), "%s cannot be written", SUPPORT_PAGE);
}

static void compare_page(const char *page, size_t bytes) {
    FILE *f = fopen(SUPPORT_PAGE, "rb");
    char *stored = malloc(bytes + 1);
    const size_t n = f && stored ? fread(stored, 1, bytes + 1, f) : 0;
    size_t same = 0;
    while (same < n && same < bytes && stored[same] == page[same])
        same++;
    CHECK(n == bytes && same == n, "%s is stale (from byte %zu on: '%.60s'): build and run test_support --write",
          SUPPORT_PAGE, same, page + same);
    free(stored);
    if (f)
        fclose(f);
}

/* The reason to skip the test if a build lacks something that the page describes, or NULL. */
static const char *what_lacks(const tensor_device *device) {
    if (!device)
        return "neither a GPU nor a machine for its PTX; it says which operations have kernels there";
    for (int backend = 0; backend < FL_KERNEL_SETS; backend++) {
        bool has = backend == FL_REF;
        for (int i = 0; fl_format_at(i); i++)
            has = has || fl_format_at(i)->sets[backend];
        if (!has)
            return "this compiler does not have every instruction set";
    }
    return NULL;
}

int main(int argc, char **argv) {
    const char *option = argc > 1 ? argv[1] : "";
    tensor_device *device = tensor_device_find("cuda");
    const char *lacking = what_lacks(device);
    if (lacking && strcmp(option, "--print"))
        return check_skip(lacking);
    size_t bytes = 0;
    char *page = make_page(device, &bytes);
    CHECK(page, "no memory for the page");
    if (page && !strcmp(option, "--print"))
        fwrite(page, 1, bytes, stdout);
    else if (page && !strcmp(option, "--write"))
        write_page(page, bytes);
    else if (page)
        compare_page(page, bytes);
    free(page);
    return check_summary();
}
