/* The cases of ONNX's own tests (Debian's libonnx-testdata), each a model with inputs and outputs as TensorProto files:
 * those of conformance.txt give their outputs, and every other one is refused with a message. A case is named by its
 * folders, "node/test_abs".
 *
 *     test_program_conformance            hold the list, print what has become right since
 *     test_program_conformance --write    write the list anew
 *     test_program_conformance CASE ...   run these alone and say what they give
 *
 * FLEXLAB_ONNX_CASES is the folder with node/, simple/, ...; without it, that of the package. */
#include "check.h"
#include "flexlab/program.h"
#include "flexlab/tensor.h"
#include "program/network/network.h"
#include "program/onnx/onnx_read.h"
#include "program/arrays/operators.h"
#include <dirent.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PORTS = 64, CASES = 4096 };
static const char *folder;
static char why[600]; /* why the last case has failed */
static const double relative = 1e-3, absolute = 1e-5;

static bool exists(const char *path) {
    return access(path, R_OK) == 0;
}

static bool same_number(const struct fl_array *want, const struct fl_array *got, int64_t i) {
    if (!fl_type_is_float(want->type))
        return fl_array_integer(want, i) == fl_array_integer(got, i);
    const double w = fl_array_number(want, i), g = fl_array_number(got, i);
    return isnan(w) ? isnan(g) : isinf(w) ? w == g : fabs(w - g) <= absolute + relative * fabs(w);
}

static bool same_output(int index, const struct fl_array *want, const program_array *output) {
    const tensor_type type = fl_type_is_float(want->type) ? TENSOR_TYPE_F32 : want->type;
    bool shaped = output->type == type && output->ndim == want->ndim;
    for (int d = 0; d < want->ndim && shaped; d++)
        shaped = output->shape[d] == want->dim[d];
    if (!shaped) {
        snprintf(why, sizeof why, "output %d has type %s and %d dimensions [%lld, ...], expected %s and %d [%lld, ...]",
                 index, fl_type_name(output->type), output->ndim, output->ndim ? (long long)output->shape[0] : 1,
                 fl_type_name(type), want->ndim, want->ndim ? (long long)want->dim[0] : 1);
        return false;
    }
    struct fl_array got = {.type = output->type, .ndim = want->ndim, .count = want->count, .data = output->data};
    for (int64_t i = 0; i < want->count; i++)
        if (!same_number(want, &got, i)) {
            snprintf(why, sizeof why, "output %d: element %lld is %.9g, expected %.9g", index, (long long)i,
                     fl_array_number(&got, i), fl_array_number(want, i));
            return false;
        }
    return true;
}

static bool refused(const char *what) {
    CHECK(*tensor_error(), "%s failed without a message", what);
    snprintf(why, sizeof why, "%s: %s", what, tensor_error());
    return false;
}

/* One folder of inputs and outputs. */
static bool run_set(program *p, struct fl_network *memory, const char *set) {
    program_array inputs[PORTS], outputs[PORTS];
    char path[2 * PATH_MAX];
    struct fl_array *a;
    const int in_count = program_input_count(p), out_count = program_output_count(p);
    if (in_count > PORTS || out_count > PORTS)
        return snprintf(why, sizeof why, "too many inputs or outputs for this test"), false;
    for (int i = 0; i < in_count; i++) {
        snprintf(path, sizeof path, "%s/input_%d.pb", set, i);
        if (fl_onnx_read_tensor(&a, memory, path))
            return refused("an input");
        program_port port;
        if (program_input_at(&port, p, i))
            return refused("program_input_at");
        if (a->type == TENSOR_TYPE_U16 && port.type == TENSOR_TYPE_F32)
            a->type = TENSOR_TYPE_BF16; /* the files have the words of bfloat16 as uint16 */
        inputs[i] = (program_array){.type = a->type, .ndim = a->ndim, .data = a->data};
        memcpy(inputs[i].shape, a->dim, sizeof a->dim);
    }
    if (program_run(p, outputs, inputs))
        return refused("program_run");
    for (int i = 0; i < out_count; i++) {
        snprintf(path, sizeof path, "%s/output_%d.pb", set, i);
        if (fl_onnx_read_tensor(&a, memory, path))
            return refused("an output");
        if (a->type == TENSOR_TYPE_U16 && outputs[i].type == TENSOR_TYPE_F32)
            a->type = TENSOR_TYPE_BF16;
        if (!same_output(i, a, &outputs[i]))
            return false;
    }
    return true;
}

static bool run_case(const char *name) {
    char path[PATH_MAX];
    program *p;
    snprintf(path, sizeof path, "%s/%s/model.onnx", folder, name);
    if (program_read(&p, path))
        return refused("program_read");
    struct fl_network *const memory = fl_network_new(FL_NET_ONNX);
    bool right = memory != NULL;
    int sets = 0;
    for (; right; sets++) {
        snprintf(path, sizeof path, "%s/%s/test_data_set_%d", folder, name, sets);
        if (!exists(path))
            break;
        right = run_set(p, memory, path);
    }
    if (right && !sets)
        right = snprintf(why, sizeof why, "no test_data_set_0") < 0;
    fl_network_free(memory);
    program_free(p);
    return right;
}

/* --- lists -------------------------------------------------------------------------------------------------------- */

static char *cases[CASES], *listed[CASES];
static int case_count, listed_count;

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void add(char **list, int *count, const char *name) {
    if (*count < CASES && (list[*count] = strdup(name)))
        ++*count;
}

static void find_cases(void) {
    static const char *const parts[] = {"node", "simple", "pytorch-converted", "pytorch-operator"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        char path[PATH_MAX], name[2 * NAME_MAX];
        snprintf(path, sizeof path, "%s/%s", folder, parts[i]);
        DIR *const d = opendir(path);
        for (struct dirent *e; d && (e = readdir(d));) {
            if (snprintf(name, sizeof name, "%s/%s", parts[i], e->d_name) >= (int)sizeof name)
                continue;
            snprintf(path, sizeof path, "%s/%s/model.onnx", folder, name);
            if (exists(path))
                add(cases, &case_count, name);
        }
        if (d)
            closedir(d);
    }
    qsort(cases, (size_t)case_count, sizeof *cases, by_name);
}

static void read_list(void) {
    char line[PATH_MAX];
    FILE *const file = fopen(CONFORMANCE_LIST, "r");
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (*line && *line != '#')
            add(listed, &listed_count, line);
    }
    if (file)
        fclose(file);
    qsort(listed, (size_t)listed_count, sizeof *listed, by_name);
}

static void free_lists(void) {
    while (case_count)
        free(cases[--case_count]);
    while (listed_count)
        free(listed[--listed_count]);
}

static int run_all(FILE *list) {
    int right = 0;
    if (list)
        fprintf(list, "# Cases of ONNX's own tests that programs pass; test_program_conformance --write writes it.\n");
    for (int i = 0; i < case_count; i++) {
        const bool passes = run_case(cases[i]);
        const bool expected = bsearch(&cases[i], listed, (size_t)listed_count, sizeof *listed, by_name) != NULL;
        right += passes;
        if (list && passes)
            fprintf(list, "%s\n", cases[i]);
        if (list)
            continue;
        CHECK(passes || !expected, "%s: %s", cases[i], why);
        if (passes && !expected)
            printf("passes, and is not in the list: %s\n", cases[i]);
    }
    for (int i = 0; i < listed_count && !list; i++)
        CHECK(bsearch(&listed[i], cases, (size_t)case_count, sizeof *cases, by_name), "%s is not in %s", listed[i],
              folder);
    printf("%d of %d cases pass\n", right, case_count);
    return check_summary();
}

int main(int argc, char **argv) {
    static const char package[] = "/usr/lib/python3/dist-packages/onnx/backend/test/data";
    const char *const given = getenv("FLEXLAB_ONNX_CASES");
    folder = given ? given : package;
    if (!exists(folder))
        return check_skip("neither FLEXLAB_ONNX_CASES nor Debian's libonnx-testdata is there");
    struct fl_network *n;
    if (fl_onnx_read(&n, "/nonexistent") == TENSOR_E_UNSUPPORTED)
        return check_skip(tensor_error());
    if (argc > 1 && strcmp(argv[1], "--write")) {
        for (int i = 1; i < argc; i++)
            if (run_case(argv[i]))
                printf("%s: passes\n", argv[i]);
            else
                printf("%s: %s\n", argv[i], why);
        return 0;
    }
    find_cases();
    read_list();
    CHECK(case_count, "no case is in %s", folder);
    FILE *const list = argc > 1 ? fopen(CONFORMANCE_LIST, "w") : NULL;
    if (argc > 1 && !list)
        return printf("cannot write %s\n", CONFORMANCE_LIST), 1;
    const int status = run_all(list);
    if (list)
        fclose(list);
    free_lists();
    return status;
}
