/* fuzz_checkpoint.c - loading checkpoints: a good one of a small network in one of the variants, with changes that no
 * checksum reveals.
 *
 * Input: a byte for the variant, then changes: a byte (bit 7: of a note, otherwise of a tensor), a byte that chooses
 * which, and for a tensor two bytes of an offset, a byte n of the length, n % 9 bytes; for a note its new value up to a
 * line feed. A refused file changes nothing; an accepted one is a state that can be trained, and is accepted again when
 * it is saved. A graph with the settings of the file opens no file that they name, and is refused before it has
 * memory. */
#define _GNU_SOURCE
#include "flexlab/nn.h"
#include "safetensors/safetensors.h"
#include "scratch.h"

/* The last is a policy. */
static const char *const variants[] = {"flex16+5", "dfp16", "flex16+5-sr", "flex16+5-paper",
                                       "fp16",     "bf16",  "fp32",        "variant fp16; f format=dfp16;"};
enum { VARIANTS = sizeof variants / sizeof variants[0], BATCH = 2, SIDE = 4, CLASSES = 2, NOTES = 8 };
enum { MOST_OF_STEPS = 16 << 20 }; /* bytes */

static struct subject {
    nn_graph *g;
    struct fl_safetensors good;
    uint8_t *elements; /* of the good file */
    void *state;       /* its initial state */
    size_t bytes;
} subjects[VARIANTS];

static const float images[BATCH * SIDE * SIDE] = {1, -1, 0.5f, 2, 0, 0, -3, 0.25f};
static const int32_t labels[BATCH] = {0, 1};

static void train(nn_graph *g) {
    double loss;
    int32_t predicted[BATCH];
    MUST(!nn_train_step(&loss, NULL, g, &(nn_batch){.images = images, .labels = labels}, 0.1f), "%s", tensor_error());
    if (nn_evaluate(
            &loss, predicted, g,
            &(nn_batch){.images = images, .labels = labels, .count = BATCH})) /* running statistics without values */
        MUST(strstr(tensor_error(), "must lead to finite numbers"), "%s", tensor_error());
}

static tensor_status build(nn_graph *g) {
    nn_node x = nn_input(g, SIDE, SIDE, 1);
    x = nn_conv2d(g, "c", x, 2, 3, &(nn_conv2d_options){.padding = 1});
    x = nn_batchnorm(g, "b", x, &(nn_batchnorm_options){.relu = true});
    return nn_compile(g, nn_linear(g, "f", x, CLASSES, false));
}

static void begin(struct subject *s, const char *variant) {
    const bool policy = strchr(variant, ';');
    s->g = nn_graph_new(&(nn_config){.variant = policy ? NULL : variant,
                                     .policy = policy ? variant : NULL,
                                     .batch = BATCH,
                                     .seed = 1,
                                     .momentum = 0.9f});
    MUST(s->g && !build(s->g), "%s", tensor_error());
    s->bytes = nn_state_bytes(s->g);
    s->state = malloc(s->bytes);
    MUST(s->state && !nn_state_save(s->state, s->bytes, s->g), "%s", tensor_error());
    train(s->g);
    train(s->g);
    MUST(!nn_checkpoint_save(s->g, scratch_path("good"), NULL, 0), "%s", tensor_error());
    MUST(!fl_safetensors_open(&s->good, scratch_path("good")), "%s", tensor_error());
    s->elements = malloc((size_t)s->good.data_bytes);
    for (int i = 0; i < s->good.count; i++)
        MUST(!fl_safetensors_read(&s->good, &s->good.tensors[i], s->elements + s->good.tensors[i].begin), "%s",
             tensor_error());
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    scratch_make();
    tensor_set_threads(1);
    for (int i = 0; i < VARIANTS; i++)
        begin(&subjects[i], variants[i]);
    return 0;
}

static bool is_text(const char *text) {
    const size_t size = strlen(text);
    for (size_t i = 0, length; i < size; i += length)
        if (!(length = fl_utf8_length((const unsigned char *)text + i, size - i)))
            return false;
    return true;
}

static void write_changed(const struct subject *s, struct input *in, const char *path) {
    static uint8_t elements[1 << 20];
    const struct fl_safetensors *good = &s->good;
    struct fl_safetensors_out o = {0};
    char *values[NOTES];
    int which[NOTES], notes = 0;
    MUST((size_t)good->data_bytes <= sizeof elements, "%lld bytes", (long long)good->data_bytes);
    memcpy(elements, s->elements, (size_t)good->data_bytes);
    while (input_left(in)) {
        if (take_byte(in) & 0x80) {
            const int i = take_below(in, good->note_count);
            char *value = take_text(in, '\n');
            if (notes < NOTES && is_text(value)) {
                which[notes] = i;
                values[notes++] = value;
            } else {
                free(value);
            }
            continue;
        }
        const struct fl_stored_tensor *t = &good->tensors[take_below(in, good->count)];
        const size_t size = (size_t)(t->end - t->begin), from = (size_t)take_bytes(in, 2) % size;
        const int count = take_byte(in) % 9;
        for (int i = 0; i < count; i++)
            elements[(size_t)t->begin + (from + (size_t)i) % size] = take_byte(in);
    }
    for (int i = 0; i < good->note_count; i++) {
        const char *value = good->notes[i].value;
        for (int k = 0; k < notes; k++)
            value = which[k] == i ? values[k] : value;
        if (strcmp(good->notes[i].key, FL_CHECKSUM) != 0)
            MUST(!fl_safetensors_add_note(&o, good->notes[i].key, value), "%s", tensor_error());
    }
    for (int i = 0; i < good->count; i++) {
        const struct fl_stored_tensor *t = &good->tensors[i];
        MUST(!fl_safetensors_add(&o, t->name, t->type, t->ndim, t->dim, elements + t->begin), "%s", tensor_error());
    }
    MUST(!fl_safetensors_write(&o, path), "%s", tensor_error());
    fl_safetensors_end(&o);
    for (int k = 0; k < notes; k++)
        free(values[k]);
}

static void must_be(const struct subject *s, const void *state) {
    void *now = malloc(s->bytes);
    MUST(now && !nn_state_save(now, s->bytes, s->g), "%s", tensor_error());
    MUST(!memcmp(now, state, s->bytes), "a refused checkpoint changed the network");
    free(now);
}

/* Builds a network as the file describes it; bar.c limits its memory. */
static void build_as_told(const char *path) {
    watch_failures();
    nn_graph *g = nn_checkpoint_graph(path, NULL);
    must_tell("nn_checkpoint_graph", !g);
    MUST(g || failure_status != TENSOR_E_IO, "a file was looked for: %s", failure_text);
    if (!g)
        return;
    MUST(!nn_graph_limit(g, MOST_OF_STEPS), "%s", tensor_error());
    watch_failures();
    const tensor_status status = build(g);
    must_tell_status("nn_compile", status);
    MUST(!status || status == TENSOR_E_DATA || (status == TENSOR_E_MEMORY && strstr(tensor_error(), "at most")) ||
             status == TENSOR_E_ARGUMENT, /* a policy for other layers */
         "%s: %s", tensor_status_name(status), tensor_error());
    nn_graph_free(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size > 4096)
        return 0;
    struct input in = input_of(data, size);
    const struct subject *s = &subjects[take_below(&in, VARIANTS)];
    char path[SCRATCH_PATH];
    snprintf(path, sizeof path, "%s", scratch_path("file"));
    write_changed(s, &in, path);
    build_as_told(path);
    MUST(!nn_state_restore(s->g, s->state, s->bytes), "%s", tensor_error());
    watch_failures();
    const tensor_status status = nn_checkpoint_load(s->g, path);
    must_tell_status("nn_checkpoint_load", status);
    if (status) {
        MUST(status == TENSOR_E_DATA && strstr(tensor_error(), path), "%s: %s", tensor_status_name(status),
             tensor_error());
        must_be(s, s->state);
        return 0;
    }
    for (int i = 0; i < 2; i++) {
        train(s->g);
        MUST(!nn_checkpoint_save(s->g, path, NULL, 0), "%s", tensor_error());
        if (nn_checkpoint_load(s->g, path)) { /* a counter that was at its limit is now beyond it */
            MUST(strstr(tensor_error(), "expected 0 to 4611686018427387904"), "what was accepted is not: %s",
                 tensor_error());
            return 0;
        }
    }
    return 0;
}
