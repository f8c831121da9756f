/* transpile_measure.c - what formats do to the tensors of a program: each weight against its float32 numbers, each
 * result against that of the program in fp32 on the same inputs. */
#include "base/text.h"
#include "flexlab/tensor.h"
#include "transpile/transpile.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *measured_kind_name(enum measured_kind kind) {
    static const char *const names[] = {"weight", "cast", "result"};
    return names[kind];
}

double measured_sqnr(const struct measured *m) {
    return m->nonfinite || !(m->signal > 0) ? NAN : m->noise > 0 ? 10 * log10(m->signal / m->noise) : INFINITY;
}

static int bin_of(double size) {
    int exponent;
    frexp(size, &exponent); /* size = 0.5 ... 1 times 2^exponent */
    const int bin = exponent - 1 - FIRST_BIN;
    return bin < 0 ? 0 : bin >= BINS ? BINS - 1 : bin;
}

static void add_numbers(struct measured *m, const float *x, const float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        const double size = fabs((double)x[i]), error = fabs((double)y[i] - (double)x[i]);
        m->elements++;
        if (!isfinite(x[i]) || !isfinite(y[i])) {
            m->nonfinite++;
            continue;
        }
        m->largest = size > m->largest ? size : m->largest;
        m->largest_error = error > m->largest_error ? error : m->largest_error;
        m->signal += size * size;
        m->noise += error * error;
        if (size > 0)
            m->sizes[bin_of(size)]++;
        if (error > 0)
            m->errors[bin_of(error)]++;
    }
}

/* The entry of a tensor, which runs show in one order; a new one if there is none. */
static struct measured *entry_of(struct tensor_list *t, enum measured_kind kind, const program_tensor *shown) {
    const tensor_type integers = shown->integers    ? shown->integers
                                 : shown->scale > 0 ? shown->numbers.type
                                                    : (tensor_type)0;
    for (int i = 0; i < t->count; i++) {
        struct measured *const m = &t->list[(t->next + i) % t->count];
        if (m->kind == kind && m->format == shown->format && m->integers == integers &&
            !strcmp(m->value, shown->value)) {
            t->next = (int)(m - t->list) + 1;
            return m;
        }
    }
    if (t->count == t->room) {
        t->room = t->room ? 2 * t->room : 64;
        t->list = text_realloc(t->list, (size_t)t->room, sizeof *t->list);
    }
    struct measured *const m = &t->list[t->count++];
    *m = (struct measured){.kind = kind,
                           .value = text_format("%s", shown->value),
                           .node = text_format("%s", shown->node.name),
                           .op = text_format("%s", shown->node.op),
                           .format = shown->format,
                           .integers = integers,
                           .shared = tensor_format_is_shared(shown->format)};
    t->next = t->count;
    return m;
}

void measure_free(struct tensor_list *t) {
    for (int i = 0; i < t->count; i++) {
        free(t->list[i].value);
        free(t->list[i].node);
        free(t->list[i].op);
    }
    free(t->list);
    *t = (struct tensor_list){0};
}

static void count(struct measured *m, const program_tensor *shown) {
    m->saturated += shown->saturated;
    m->flushed += shown->flushed;
    m->exponent = shown->exponent;
}

/* --- weights ------------------------------------------------------------------------------------------------------ */

static tensor_status see_weight(void *context, const program_tensor *shown) {
    struct measured *const m = entry_of(context, MEASURED_WEIGHT, shown);
    count(m, shown);
    add_numbers(m, shown->original, shown->numbers.data, network_elements(&shown->numbers));
    return TENSOR_OK;
}

int measure_weights(struct tensor_list *t, const struct network *n) {
    return program_weights(n->p, see_weight, t) ? text_failed("%s: %s", n->path, tensor_error()) : STATUS_OK;
}

/* --- results ------------------------------------------------------------------------------------------------------ */

static void add_reference(struct reference_list *r, const char *value, const program_array *numbers) {
    if (r->count == r->room) {
        r->room = r->room ? 2 * r->room : 64;
        r->list = text_realloc(r->list, (size_t)r->room, sizeof *r->list);
    }
    const int64_t count = network_elements(numbers);
    struct reference *const added = &r->list[r->count++];
    *added = (struct reference){text_format("%s", value), text_alloc((size_t)count + 1, sizeof(float)), count};
    memcpy(added->numbers, numbers->data, (size_t)count * sizeof(float));
}

static const struct reference *find_reference(struct reference_list *r, const char *value) {
    for (int i = 0; i < r->count; i++) {
        const int at = (r->next + i) % r->count;
        if (!strcmp(r->list[at].value, value)) {
            r->next = at + 1;
            return &r->list[at];
        }
    }
    return NULL;
}

static void free_references(struct reference_list *r) {
    for (int i = 0; i < r->count; i++) {
        free(r->list[i].value);
        free(r->list[i].numbers);
    }
    free(r->list);
}

static tensor_status see_source(void *context, const program_tensor *shown) {
    if (!shown->cast && shown->numbers.type == TENSOR_TYPE_F32)
        add_reference(context, shown->value, &shown->numbers);
    return TENSOR_OK;
}

struct comparison {
    struct tensor_list *tensors;
    struct reference_list source;
};

/* The real numbers of a tensor of integers, and how many of them are at an end of the range. */
static float *real_numbers(const program_tensor *shown, int64_t count, int64_t *saturated) {
    float *const real = text_alloc((size_t)count + 1, sizeof *real);
    const double least = shown->numbers.type == TENSOR_TYPE_I8 ? -128 : 0;
    for (int64_t i = 0; i < count; i++) {
        const double q = network_number(&shown->numbers, i);
        real[i] = (float)((q - shown->zero) * (double)shown->scale);
        *saturated += (q == least && q != shown->zero) || q == least + 255;
    }
    return real;
}

/* A result in 8-bit integers, as the real numbers that they stand for. */
static void see_integers(struct comparison *c, const program_tensor *shown) {
    char *const name = text_format("%.*s", (int)network_name_length(shown->value), shown->value);
    int64_t saturated = 0;
    const struct reference *const source = find_reference(&c->source, name);
    free(name);
    if (!source || source->count != network_elements(&shown->numbers))
        return;
    float *const real = real_numbers(shown, source->count, &saturated);
    struct measured *const m = entry_of(c->tensors, MEASURED_RESULT, shown);
    m->saturated += saturated;
    add_numbers(m, source->numbers, real, source->count);
    free(real);
}

/* A cast to fp32 loses nothing that the result of its node has not lost. */
static tensor_status see_result(void *context, const program_tensor *shown) {
    struct comparison *const c = context;
    if (shown->scale > 0 && network_type_bytes(shown->numbers.type) == 1) {
        see_integers(c, shown);
        return TENSOR_OK;
    }
    const bool wide = shown->cast && shown->format == FMT_FP32;
    const struct reference *const source =
        shown->numbers.type == TENSOR_TYPE_F32 && !wide ? find_reference(&c->source, shown->value) : NULL;
    if (source && source->count == network_elements(&shown->numbers)) {
        struct measured *const m = entry_of(c->tensors, shown->cast ? MEASURED_CAST : MEASURED_RESULT, shown);
        count(m, shown);
        add_numbers(m, source->numbers, shown->numbers.data, source->count);
    }
    return TENSOR_OK;
}

static int watched_run(const struct network *n, program_watcher *watcher, void *context, program_array *outputs,
                       const program_array *inputs) {
    program_watch(n->p, watcher, context);
    const int status = network_run(n, outputs, inputs);
    program_watch(n->p, NULL, NULL);
    return status;
}

int measure_run(struct tensor_list *t, const struct network *source, const struct network *n,
                const program_array *inputs) {
    struct comparison c = {.tensors = t};
    program_array *const outputs = text_alloc((size_t)n->output_count + 1, sizeof *outputs);
    for (int i = 0; i < n->input_count; i++)
        if (inputs[i].type == TENSOR_TYPE_F32)
            add_reference(&c.source, n->inputs[i].name, &inputs[i]);
    int status = watched_run(source, see_source, &c.source, outputs, inputs);
    if (status == STATUS_OK)
        status = watched_run(n, see_result, &c, outputs, inputs);
    t->batches += status == STATUS_OK;
    free_references(&c.source);
    free(outputs);
    return status;
}

/* A tensor without a ratio (NaN or infinite numbers) is the worst. */
static int by_noise(const void *a, const void *b) {
    const struct measured *const x = a, *const y = b;
    const double one = x->nonfinite ? -INFINITY : x->signal > 0 ? measured_sqnr(x) : INFINITY;
    const double two = y->nonfinite ? -INFINITY : y->signal > 0 ? measured_sqnr(y) : INFINITY;
    const int names = strcmp(x->value, y->value);
    return one != two ? (one > two ? 1 : -1) : names ? names : (int)x->kind - (int)y->kind;
}

void measure_sort(struct tensor_list *t) {
    if (t->count)
        qsort(t->list, (size_t)t->count, sizeof *t->list, by_noise);
    t->next = 0;
}

/* --- checksums ---------------------------------------------------------------------------------------------------- */

/* Inputs of program_probe. Sizes that the network leaves open are 1 if they are the first; others are those of the
 * calibration data, without which they cannot be guessed. */
static bool make_probe(struct checksum_list *c, program_array *inputs, const struct network *n,
                       const program_array *like) {
    for (int i = 0; i < n->input_count; i++) {
        const program_port *const port = &n->inputs[i];
        int64_t count = 1;
        inputs[i] = (program_array){.type = port->type, .ndim = port->ndim < 0 && like ? like[i].ndim : port->ndim};
        for (int d = 0; d < inputs[i].ndim; d++) {
            const bool open = port->ndim < 0 || port->shape[d] < 0;
            const int64_t size = !open ? port->shape[d] : !d ? 1 : like ? like[i].shape[d] : 0;
            inputs[i].shape[d] = size;
            count = count > 0 && size > 0 && size < 1 << 28 ? count * size : 0;
        }
        if (inputs[i].ndim < 0 || count < 1 || count > 1 << 28) {
            char *const shape = network_port_shape(port);
            c->why = text_format("the input '%s' has %s", port->name, shape);
            free(shape);
            return false;
        }
        inputs[i].data = text_alloc((size_t)count, network_type_bytes(port->type));
        if (program_probe(&inputs[i])) {
            c->why = text_format("%s", tensor_error());
            return false;
        }
    }
    return true;
}

/* Integers count as floats. */
static program_sum sum_of(const program_array *a) {
    const int64_t count = network_elements(a);
    if (a->type == TENSOR_TYPE_F32)
        return program_checksum(a->data, count);
    float *const numbers = text_alloc((size_t)count + 1, sizeof *numbers);
    for (int64_t i = 0; i < count; i++)
        numbers[i] = (float)network_number(a, i);
    const program_sum sum = program_checksum(numbers, count);
    free(numbers);
    return sum;
}

static void add_sum(struct checksum_list *c, int which, const char *value, const char *node,
                    const program_array *numbers) {
    const program_sum sum = sum_of(numbers);
    if (!which) {
        c->list = text_realloc(c->list, (size_t)c->count + 1, sizeof *c->list);
        c->list[c->count++] = (struct checksum){text_format("%s", value), text_format("%s", node), sum, {NAN, NAN}};
    }
    for (int i = 0; i < c->count && which; i++)
        if (!strcmp(c->list[i].value, value) && !strcmp(c->list[i].node, node))
            c->list[i].here = sum;
}

struct summing {
    struct checksum_list *sums;
    int which; /* 0: the source */
};

static tensor_status see_sum(void *context, const program_tensor *shown) {
    struct summing *const s = context;
    s->sums->casts += s->which && shown->cast;
    if (!shown->cast)
        add_sum(s->sums, s->which, shown->value, shown->node.name, &shown->numbers);
    return TENSOR_OK;
}

/* Outputs first, then what nodes compute; of the source, and then of the other program. False: it does not run so. */
static bool sum_program(struct checksum_list *c, int which, const struct network *n, const program_array *inputs) {
    struct summing s = {c, which};
    program_array *const outputs = text_alloc((size_t)n->output_count + 1, sizeof *outputs);
    bool good = !program_run(n->p, outputs, inputs);
    for (int i = 0; i < n->output_count && good; i++)
        add_sum(c, which, n->outputs[i].name, "", &outputs[i]);
    if (!which)
        c->outputs = c->count;
    program_watch(n->p, see_sum, &s);
    good = good && !program_run(n->p, outputs, inputs);
    program_watch(n->p, NULL, NULL);
    if (!good)
        c->why = text_format("%s", tensor_error());
    free(outputs);
    return good;
}

void measure_checksums(struct checksum_list *c, const struct network *source, const struct network *n,
                       const program_array *like) {
    program_array *const inputs = text_alloc((size_t)n->input_count + 1, sizeof *inputs);
    if (make_probe(c, inputs, n, like) && sum_program(c, 0, source, inputs))
        sum_program(c, 1, n, inputs);
    for (int i = 0; i < n->input_count; i++)
        free(inputs[i].data);
    free(inputs);
}

void checksum_free(struct checksum_list *c) {
    for (int i = 0; i < c->count; i++) {
        free(c->list[i].value);
        free(c->list[i].node);
    }
    free(c->list);
    free(c->why);
    *c = (struct checksum_list){0};
}
