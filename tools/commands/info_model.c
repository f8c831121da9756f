/* info_model.c - the tensors of a model, and how many parameters it has. */
#include "commands/info.h"
#include "flexlab/flexlab.h"
#include "base/failure.h"
#include "base/table.h"
#include "base/text.h"
#include <stdlib.h>
#include <string.h>

/* Builds a model for 32x32 colour images and 10 classes, or for 128 bytes of text; NULL on failure. */
static nn_graph *build(const char *model) {
    nn_graph *g = nn_graph_new(&(nn_config){.variant = "fp32", .batch = 1, .seed = 1});
    nn_node logits = !g                           ? -1
                     : nn_model_reads_text(model) ? nn_model_text(g, model, 128, 256)
                                                  : nn_model(g, model, 32, 32, 3, 10);
    if (logits >= 0)
        return g;
    nn_graph_free(g);
    return NULL;
}

char *info_parameters(const char *model) {
    nn_graph *g = build(model);
    char *text = g ? text_count(nn_parameter_count(g)) : text_format("-");
    nn_graph_free(g);
    return text;
}

static int refuse(const char *name) {
    char *why = text_format("%s", tensor_error()), *tables = text_names(info_table_name);
    const int status = text_usage("'%s' is no table, expected one of %s, or a model; %s%s", name, tables, why,
                                  text_did_you_mean(name, info_name));
    free(why);
    free(tables);
    return status;
}

int info_model(const char *model) {
    failure_watch();
    nn_graph *g = build(model);
    if (!g)
        return failure_is_usage() ? refuse(model) : text_failed("'%s': %s", model, tensor_error());
    struct table *t = table_new("llrlll");
    const char *const heads[] = {"name", "shape", "elements", "layout", "in PyTorch", "shape there"};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        table_cell(t, "%s", heads[i]);
    nn_weight_info w;
    int count = 0;
    for (; (w = nn_weight_at(g, count)).name; count++) {
        int64_t elements = 1;
        for (int d = 0; d < w.ndim; d++)
            elements *= w.dim[d];
        table_cell(t, "%s", w.name);
        table_take(t, text_shape(w.ndim, w.dim));
        table_take(t, text_count(elements));
        table_cell(t, "%s", w.layout);
        table_cell(t, "%s", w.torch_name);
        char *const there = text_shape(w.ndim, w.torch_dim);
        table_take(t, strcmp(w.layout, w.torch_layout) ? text_format("%s (%s)", there, w.torch_layout)
                                                       : text_format("%s", there));
        free(there);
    }
    char *parameters = text_count(nn_parameter_count(g));
    printf("%s for %s: %s parameters, %d tensors in a file of weights\n\n", model,
           nn_model_reads_text(model) ? "128 tokens of a vocabulary of 256" : "32x32x3 images and 10 classes",
           parameters, count);
    free(parameters);
    table_print(t, stdout, 2, 0);
    table_free(t);
    puts(
        "\nElements are row-major. Other images, classes or texts change shapes, not layouts. Files with the names of\n"
        "either column are read, by 'run', 'eval' and 'bench' with --model, and by 'train' with --weights:\n"
        "docs/programs.md, docs/checkpoints.md.");
    nn_graph_free(g);
    return STATUS_OK;
}
