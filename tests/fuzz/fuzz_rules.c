/* fuzz_rules.c - `flexlab transpile`: rules of formats for the nodes of a program.
 *
 * Input: a byte of choices (bits 0 and 1: --to is not given, fp16, flex16+5 or int8; bit 2: the next line is --format;
 * bit 3: the next line is --exclude; bit 4: the next line is --keep-op; bit 5: there is no --policy), then these lines,
 * then the text of the file that --policy names. Rules that are refused cause a message, and the formats of all nodes
 * stay as they were. */
#define _GNU_SOURCE
#include "flexlab/nn.h"
#include "flexlab/program.h"
#include "flexlab/tensor.h"
#include "base/text.h"
#include "messages.h"
#include "options/options.h"
#include "scratch.h"
#include "transpile/transpile.h"

enum { SIDE = 4, CLASSES = 3, NODES = 32 };

static nn_graph *graph;

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    scratch_make();
    text_set_command("fuzz");
    tensor_set_threads(1);
    graph = nn_graph_new(&(nn_config){.policy = "variant fp32;", .batch = 1, .seed = 1});
    MUST(graph, "%s", tensor_error());
    nn_node x = nn_input(graph, SIDE, SIDE, 1);
    x = nn_conv2d(graph, "conv1", x, 2, 3, &(nn_conv2d_options){.padding = 1});
    x = nn_batchnorm(graph, "bn1", x, &(nn_batchnorm_options){.relu = true});
    x = nn_linear(graph, "fc", x, CLASSES, false);
    MUST(!nn_compile(graph, x), "%s", tensor_error());
    return 0;
}

static char *add_word(struct word_list *list, struct input *in, bool given) {
    char *const word = given ? take_text(in, '\n') : NULL;
    list->count = given;
    list->word[0] = word;
    return word;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const formats[] = {NULL, "fp16", "flex16+5", "int8"};
    struct input in = input_of(data, size);
    program *p;
    const unsigned choices = take_byte(&in);
    struct settings s = {.to = formats[choices & 3]};
    char path[SCRATCH_PATH];
    tensor_format before[NODES];
    program_node node;
    bool integers = false;
    char *const rule = add_word(&s.rules, &in, choices & 4);
    char *const exclude = add_word(&s.excludes, &in, choices & 8);
    char *const keep = add_word(&s.keep_ops, &in, choices & 16);
    scratch_write("policy", in.at, input_left(&in));
    snprintf(path, sizeof path, "%s", scratch_path("policy"));
    s.policy = choices & 32 ? NULL : path;
    MUST(!program_from_graph(&p, graph), "%s", tensor_error());
    MUST(program_node_count(p) <= NODES, "%d nodes", program_node_count(p));
    for (int i = 0; i < program_node_count(p); i++) {
        MUST(!program_node_at(&node, p, i), "%s", tensor_error());
        before[i] = node.format;
    }
    messages_begin();
    const int status = transpile_rules(p, &s, &integers);
    messages_end();
    must_say("transpile_rules", status != STATUS_OK);
    for (int i = 0; i < program_node_count(p) && status != STATUS_OK; i++) {
        MUST(!program_node_at(&node, p, i), "%s", tensor_error());
        MUST(node.format == before[i], "node %s is %s after rules that are refused", node.name,
             tensor_format_name(node.format));
    }
    program_free(p);
    free(rule);
    free(exclude);
    free(keep);
    return 0;
}
