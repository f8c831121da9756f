/* diff.c - see diff.h. */
#include "programs/diff.h"
#include "base/output.h"
#include "base/table.h"
#include "base/text.h"
#include "programs/networks.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

void parted_free(struct parted_list *list) {
    for (int i = 0; i < list->count; i++) {
        free(list->row[i].value);
        free(list->row[i].node);
        free(list->row[i].op);
        free(list->row[i].other);
        free(list->row[i].numbers.data);
    }
    free(list->row);
    *list = (struct parted_list){0};
}

/* Without the suffix of integers. */
static size_t name_length(const char *value, float scale) {
    return scale != 0 ? network_name_length(value) : strlen(value);
}

int parted_find(const struct parted_list *list, const char *value, float scale) {
    const size_t length = name_length(value, scale);
    for (int i = 0; i < list->count; i++) {
        const struct parted *row = &list->row[i];
        if (name_length(row->value, row->scale) == length && !strncmp(row->value, value, length))
            return i;
    }
    return -1;
}

static void append(struct parted *row, const program_array *more) {
    const size_t bytes = network_type_bytes(more->type), before = (size_t)row->count * bytes;
    const int64_t count = network_elements(more);
    row->numbers.data = text_realloc(row->numbers.data, before + (size_t)count * bytes + 1, 1);
    if (count)
        memcpy((char *)row->numbers.data + before, more->data, (size_t)count * bytes);
    if (row->count && row->numbers.ndim)
        row->numbers.shape[0] += more->shape[0];
    row->count += count;
}

/* A row without numbers. */
static struct parted *add_row(struct parted_list *list, const program_tensor *t) {
    if (list->count == list->room) {
        list->room = list->room ? 2 * list->room : 64;
        list->row = text_realloc(list->row, (size_t)list->room, sizeof *list->row);
    }
    struct parted *const row = &list->row[list->count++];
    *row = (struct parted){.value = text_format("%s", t->value),
                           .node = text_format("%s", t->node.name ? t->node.name : ""),
                           .op = text_format("%s", t->node.op ? t->node.op : ""),
                           .numbers = t->numbers,
                           .scale = t->scale,
                           .zero = t->zero,
                           .first = -1,
                           .worst = -1};
    row->numbers.data = NULL;
    return row;
}

void parted_add(struct parted_list *list, const program_tensor *t) {
    const int found = parted_find(list, t->value, t->scale);
    if (found < 0)
        append(add_row(list, t), &t->numbers);
    else if (!strcmp(list->row[found].value, t->value))
        append(&list->row[found], &t->numbers);
}

void parted_note(struct parted_list *list, const program_tensor *t) {
    if (parted_find(list, t->value, t->scale) < 0)
        add_row(list, t);
}

/* --- comparing ---------------------------------------------------------------------------------------------------- */

/* Of integers the float32 number that they stand for, as DequantizeLinear gives it. */
static double number(const program_array *a, float scale, int zero, int64_t i) {
    const double x = network_number(a, i);
    return scale != 0 ? (double)(float)((double)scale * (x - zero)) : x;
}

/* The bits of two numbers of one type: a zero has a sign; one NaN is like another. */
static bool same(double x, double y) {
    return x == y ? !signbit(x) == !signbit(y) : isnan(x) && isnan(y);
}

static void compare_element(struct parted *row, int64_t i, double x, double y) {
    const double gap = same(x, y) || x == y ? 0 : isnan(x) || isnan(y) ? INFINITY : fabs(x - y);
    row->largest = isfinite(x) && fabs(x) > row->largest ? fabs(x) : row->largest;
    if (isfinite(x) && isfinite(y)) {
        row->signal += x * x;
        row->noise += gap * gap;
    }
    if (same(x, y))
        return;
    if (!row->differing++) {
        row->first = i;
        row->first_pair[0] = x;
        row->first_pair[1] = y;
    }
    if (row->worst < 0 || gap > row->difference) {
        row->worst = i;
        row->difference = gap;
        row->worst_pair[0] = x;
        row->worst_pair[1] = y;
    }
}

/* A recorded array may lack dimensions of 1, or have more of them. */
static bool shapes_fit(const program_array *a, const program_array *b) {
    int i = 0, k = 0;
    for (;;) {
        while (i < a->ndim && a->shape[i] == 1)
            i++;
        while (k < b->ndim && b->shape[k] == 1)
            k++;
        if (i == a->ndim || k == b->ndim)
            return i == a->ndim && k == b->ndim;
        if (a->shape[i++] != b->shape[k++])
            return false;
    }
}

static void set_other_shape(struct parted *row, const program_array *b) {
    row->other_ndim = b->ndim;
    memcpy(row->other_shape, b->shape, sizeof row->other_shape);
}

bool parted_compare(struct parted_list *list, const program_tensor *t, const char *as) {
    const int found = parted_find(list, as, t->scale);
    if (found < 0)
        return false;
    struct parted *const row = &list->row[found];
    const int64_t count = network_elements(&t->numbers);
    int64_t start = 0;
    if (row->other && strcmp(row->other, t->value) != 0)
        return true;
    if (row->other) { /* the next part of a batch */
        start = 1;
        for (int d = 0; d < row->other_ndim; d++)
            start *= row->other_shape[d];
        row->other_shape[0] += t->numbers.shape[0];
    } else {
        row->other = text_format("%s", t->value);
        set_other_shape(row, &t->numbers);
    }
    for (int64_t i = 0; i < count && start + i < row->count; i++)
        compare_element(row, start + i, number(&row->numbers, row->scale, row->zero, start + i),
                        number(&t->numbers, t->scale, t->zero, i));
    program_array whole = {.ndim = row->other_ndim};
    memcpy(whole.shape, row->other_shape, sizeof whole.shape);
    row->shapes_differ = !shapes_fit(&row->numbers, &whole);
    return true;
}

int parted_compared(const struct parted_list *list) {
    int count = 0;
    for (int i = 0; i < list->count; i++)
        count += list->row[i].other != NULL;
    return count;
}

static double relative(const struct parted *row) {
    return row->difference > 0 ? row->difference / row->largest : 0;
}

bool parted_differs(const struct parted *row, double tolerance) {
    return row->other && (row->shapes_differ || (row->differing && (tolerance <= 0 || relative(row) > tolerance)));
}

const struct parted *parted_first(const struct parted_list *list, double tolerance) {
    for (int i = 0; i < list->count; i++)
        if (parted_differs(&list->row[i], tolerance))
            return &list->row[i];
    return NULL;
}

/* --- printing ----------------------------------------------------------------------------------------------------- */

/* "[0, 3, 1]" of element i. */
static char *index_text(const program_array *a, int64_t i) {
    int64_t at[PROGRAM_MAX_DIMS] = {0};
    for (int d = a->ndim; d-- > 0;) {
        at[d] = i % a->shape[d];
        i /= a->shape[d];
    }
    return text_shape(a->ndim, at);
}

static char *decibels(const struct parted *row) {
    return row->noise > 0 ? text_format("%.1f", 10 * log10(row->signal / row->noise)) : text_format("-");
}

static void print_element(const struct parted *row, const char *what, int64_t i, const double pair[2]) {
    char *const at = index_text(&row->numbers, i);
    printf("%s at %s: %.9g in A, %.9g in B", what, at, pair[0], pair[1]);
    free(at);
}

void parted_print_first(const struct parted *row, double tolerance) {
    char *const value = text_shown(row->value), *const node = text_shown(row->node),
                *const shape = text_shape(row->numbers.ndim, row->numbers.shape),
                *const other = text_shape(row->other_ndim, row->other_shape);
    printf("They part at tensor '%s' %s", value, shape);
    if (*row->node || strcmp(row->op, "output") != 0)
        printf(", which the node '%s' (%s) computes", node, row->op);
    puts(":");
    if (row->shapes_differ) {
        printf("  shape %s in A, %s in B\n", shape, other);
    } else {
        if (tolerance <= 0) {
            print_element(row, "  first", row->first, row->first_pair);
            putchar('\n');
        }
        print_element(row, "  most", row->worst, row->worst_pair);
        printf(": %.3g of the largest magnitude, %.9g\n  %lld of %lld elements differ\n", relative(row), row->largest,
               (long long)row->differing, (long long)row->count);
    }
    free(value);
    free(node);
    free(shape);
    free(other);
}

static void print_row(struct table *t, const struct parted *row) {
    table_take(t, text_shown(row->value));
    table_take(t, text_shown(row->node));
    table_cell(t, "%s", row->op);
    if (!row->other || row->shapes_differ) {
        table_cell(t, row->other ? "other shape" : "not in B");
        for (int i = 0; i < 3; i++)
            table_cell(t, "-");
        return;
    }
    table_take(t, text_format("%lld of %lld", (long long)row->differing, (long long)row->count));
    table_cell(t, "%.3g", row->difference);
    table_cell(t, "%.3g", relative(row));
    table_take(t, decibels(row));
}

void parted_print(const struct parted_list *list, double tolerance, int most) {
    static const char *const heads[] = {"tensor", "node", "operator", "elements", "difference", "relative", "SQNR dB"};
    struct table *t = table_new("lllrrrr");
    const bool all = most == list->count;
    int shown = 0, left = 0;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        table_cell(t, "%s", heads[i]);
    for (int i = 0; i < list->count; i++) {
        if (!all && !parted_differs(&list->row[i], tolerance))
            continue;
        if (shown < most) {
            print_row(t, &list->row[i]);
            shown++;
        } else {
            left++;
        }
    }
    putchar('\n');
    table_print(t, stdout, 0, 0);
    table_free(t);
    if (left)
        printf("and %d more; --all shows every tensor\n", left);
}

int parted_write_csv(const struct parted_list *list, const char *path) {
    struct output out = {0};
    int status = output_open_path(&out, path);
    if (status != STATUS_OK)
        return status;
    fputs("tensor,node,operator,elements,differing,largest,difference,relative,sqnr_db\n", out.file);
    for (int i = 0; i < list->count; i++) {
        const struct parted *const row = &list->row[i];
        if (!row->other || row->shapes_differ)
            continue;
        text_print_csv(out.file, row->value);
        fputc(',', out.file);
        text_print_csv(out.file, row->node);
        fputc(',', out.file);
        text_print_csv(out.file, row->op);
        fprintf(out.file, ",%lld,%lld,%.9g,%.9g,%.9g,", (long long)row->count, (long long)row->differing, row->largest,
                row->difference, relative(row));
        if (row->noise > 0)
            fprintf(out.file, "%.3f", 10 * log10(row->signal / row->noise));
        fputc('\n', out.file);
    }
    status = output_commit(&out);
    output_discard(&out);
    return status;
}
