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

/* A script for the network that the weights are from. docs/programs.md has it, too. */
static void print_recipe(const char *model) {
    const bool text = nn_model_reads_text(model);
    printf("# Checksums of a trained %s in PyTorch, and its weights as a file that carries that of the output.\n"
           "import numpy, torch, safetensors.torch\n\n"
           "def c(n):\n"
           "    return (numpy.arange(1, n + 1, dtype=numpy.uint64) * 2654435761 %% 2**32) * 2.0**-31 - 1\n\n"
           "def checksum(y):\n"
           "    y = (y.movedim(1, -1) if y.ndim == 4 else y).double().reshape(-1).numpy()\n"
           "    return (3 / len(y))**0.5 * (c(len(y)) @ y), (y @ y / len(y))**0.5\n\n"
           "def show(name, y):\n"
           "    if torch.is_tensor(y):\n"
           "        print(\"%%-30s %%.6g  %%.6g\" %% (name or \"output\", *checksum(y)))\n\n",
           model);
    if (text)
        puts("length = 128                           # as the network takes them\n"
             "x = torch.arange(length).reshape(1, length) % 2");
    else
        puts("h, w, channels = 32, 32, 3             # as the network takes them\n"
             "x = torch.tensor(c(h * w * channels).reshape(1, h, w, channels), "
             "dtype=torch.float32).movedim(-1, 1)");
    printf("for name, module in model.named_modules():\n"
           "    module.register_forward_hook(lambda m, x, y, name=name: show(name, y))\n"
           "with torch.no_grad():\n"
           "    y = model.eval()(x)\n"
           "safetensors.torch.save_file(model.state_dict(), \"network.safetensors\",\n"
           "                            {\"flexlab.probe\": %s + \" %%.9g %%.9g\" %% checksum(y)})\n",
           text ? "f\"{length}\"" : "f\"{h}x{w}x{channels}\"");
}

int info_model(const char *model, bool probe) {
    failure_watch();
    nn_graph *g = build(model);
    if (!g)
        return failure_is_usage() ? refuse(model) : text_failed("'%s': %s", model, tensor_error());
    if (probe) {
        nn_graph_free(g);
        print_recipe(model);
        return STATUS_OK;
    }
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
