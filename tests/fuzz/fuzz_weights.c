/* fuzz_weights.c - files of weights of models as programs.
 *
 * Input: a byte for model and layout, then the file. A refused file gives no program and a message; an accepted one
 * gives one that has the ports of the model. Memory is bounded by the file's size, whatever its shapes and notes claim.
 */
#define _GNU_SOURCE
#include "flexlab/program.h"
#include "flexlab/tensor.h"
#include "scratch.h"

static const char *const models[] = {"mlp2x1", "mlp3x2", "resnet8", "lenet", "gpt1x32", "lstm-char", "mobilenet", NULL};
static const char *const layouts[] = {NULL, "oihw", "ohwi"};
enum { MODELS = sizeof models / sizeof models[0], LAYOUTS = sizeof layouts / sizeof layouts[0] };

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    scratch_make();
    tensor_set_threads(1);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    program *p = (program *)&size;
    program_port port;
    if (!size)
        return 0;
    const program_weight_file how = {.model = models[data[0] % MODELS], .layout = layouts[data[0] / MODELS % LAYOUTS]};
    scratch_write("file", data + 1, size - 1);
    if (program_read_weights(&p, scratch_path("file"), &how)) {
        MUST(!p && *tensor_error(), "a program after a failure");
        return 0;
    }
    MUST(program_input_count(p) == 1 && program_output_count(p) == 1, "ports");
    MUST(!program_output_at(&port, p, 0) && port.ndim >= 2 && port.shape[port.ndim - 1] >= 2, "classes");
    program_free(p);
    return 0;
}
