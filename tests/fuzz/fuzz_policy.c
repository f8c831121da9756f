/* fuzz_policy.c - policies: any bytes as a file of rules, or as the rules themselves, on a network that has layers of
 * several kinds.
 *
 * Input: a byte of choices (bit 0: from a file, otherwise the text; bit 1: layer formats beside it, the text up to its
 * first line feed), then the text. A refused policy causes a message of one line. A policy that compiles is written as
 * one line, which gives the same formats and the same line again, and trains a step. */
#define _GNU_SOURCE
#include "flexlab/nn.h"
#include "scratch.h"

enum { BATCH = 2, SIDE = 4, CLASSES = 3, PIXELS = BATCH * SIDE * SIDE };

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    scratch_make();
    limit_allocation(16ul << 20);
    tensor_set_threads(1);
    return 0;
}

/* NULL if it is refused. */
static nn_graph *network(const char *policy, const char *layer_formats) {
    nn_graph *g = nn_graph_new(
        &(nn_config){.policy = policy, .layer_formats = layer_formats, .batch = BATCH, .seed = 1, .momentum = 0.9f});
    nn_node x = g ? nn_input(g, SIDE, SIDE, 1) : -1;
    x = g ? nn_conv2d(g, "conv1", x, 2, 3, &(nn_conv2d_options){.padding = 1}) : -1;
    x = g ? nn_batchnorm(g, "bn1", x, &(nn_batchnorm_options){.relu = true}) : -1;
    x = g ? nn_linear(g, "fc", x, CLASSES, false) : -1;
    if (g && !nn_compile(g, x))
        return g;
    const char *why = tensor_error();
    MUST(why && *why && !strchr(why, '\n'), "refused with '%s'", why ? why : "NULL");
    nn_graph_free(g);
    return NULL;
}

static void check_again(nn_graph *g) {
    const char *said = nn_graph_policy(g);
    if (!said)
        return;
    char *line = strdup(said);
    MUST(line && *line && !strchr(line, '\n'), "the policy '%s'", said);
    nn_graph *again = network(line, NULL);
    MUST(again && nn_graph_policy(again) && !strcmp(nn_graph_policy(again), line), "'%s' gives '%s', %s", line,
         again ? nn_graph_policy(again) : "nothing", tensor_error());
    MUST(nn_role_row_count(g) == nn_role_row_count(again), "'%s': %d rows and %d", line, nn_role_row_count(g),
         nn_role_row_count(again));
    for (int i = 0; i < nn_role_row_count(g); i++) {
        const char *role;
        for (int k = 0; (role = nn_role_name_at(k)); k++) {
            char first[64] = "";
            const char *here = nn_role(g, i, role);
            snprintf(first, sizeof first, "%s", here ? here : "");
            const char *there = nn_role(again, i, role);
            MUST(!strcmp(first, there ? there : ""), "'%s': row %d, %s: '%s' and '%s'", line, i, role, first,
                 there ? there : "");
        }
    }
    nn_graph_free(again);
    free(line);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input in = input_of(data, size);
    const uint8_t choices = take_byte(&in);
    const size_t length = input_left(&in);
    char *text = malloc(length + 2), *policy = text;
    MUST(text, "no memory");
    memcpy(text, in.at, length);
    text[length] = 0;
    char *beside = NULL;
    if (choices & 2) {
        beside = policy;
        policy += strcspn(policy, "\n");
        if (*policy)
            *policy++ = 0;
    }
    if (choices & 1) {
        scratch_write("rules", policy, length - (size_t)(policy - text));
    } else {
        const size_t end = strlen(policy); /* a ';' says that it is the text and no path */
        policy[end] = ';';
        policy[end + 1] = 0;
    }
    nn_graph *g = network(choices & 1 ? scratch_path("rules") : policy, beside && *beside ? beside : NULL);
    if (g) {
        float images[PIXELS];
        const int32_t labels[BATCH] = {0, CLASSES - 1};
        for (int i = 0; i < PIXELS; i++)
            images[i] = (float)(i % 7 - 3) / 4;
        check_again(g);
        MUST(!nn_train_step(NULL, NULL, g, &(nn_batch){.images = images, .labels = labels}, 0.01f), "a step: %s",
             tensor_error());
        nn_graph_free(g);
    }
    free(text);
    return 0;
}
