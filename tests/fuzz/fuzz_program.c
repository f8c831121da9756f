/* fuzz_program.c - programs from ONNX files: planned and run on zeros.
 *
 * Input: a byte of choices (bits 0 and 1: the size of dimensions that the network leaves open, 0 to 3; bits 2 to 4: a
 * format, with calibration where its exponents are shared), then the bytes of the model. Whatever the file says, there
 * is a result or a message; blocks of memory above a limit are refused. */
#define _GNU_SOURCE
#include "flexlab/program.h"
#include "flexlab/tensor.h"
#include "scratch.h"

enum { PORTS = 8, NUMBERS = 1 << 16 };

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    scratch_make();
    tensor_set_threads(1);
    limit_allocation(1ul << 24);
    fuzz_bar = 1ul << 30; /* sizes in a file make the tensors that it describes */
    return 0;
}

/* False: more numbers than this target gives to a port. */
static bool zeros_for(program_array *a, const program_port *port, int64_t size) {
    static double zeros[NUMBERS];
    int64_t count = 1;
    *a = (program_array){.type = port->type, .ndim = port->ndim < 0 ? 2 : port->ndim, .data = zeros};
    MUST(port->ndim <= PROGRAM_MAX_DIMS, "%d dimensions", port->ndim);
    for (int d = 0; d < a->ndim; d++) {
        a->shape[d] = port->ndim < 0 || port->shape[d] < 0 ? size : port->shape[d];
        if (a->shape[d] && count > NUMBERS / a->shape[d])
            return false;
        count *= a->shape[d];
    }
    return true;
}

static void check_outputs(const program *p, const program_array *outputs) {
    for (int i = 0; i < program_output_count(p); i++) {
        program_port port;
        int64_t count = 1;
        MUST(!program_output_at(&port, p, i), "%s", tensor_error());
        for (int d = 0; d < outputs[i].ndim; d++)
            count *= outputs[i].shape[d];
        MUST(outputs[i].ndim >= 0 && outputs[i].ndim <= PROGRAM_MAX_DIMS && count >= 0, "output %s", port.name);
        MUST(!count || outputs[i].data, "output %s has %lld numbers without data", port.name, (long long)count);
    }
}

/* A run that succeeds may have failed inside: its first plan does where shapes follow from integer inputs. */
static void run_once(program *p, program_array *out, const program_array *in) {
    watch_failures();
    const tensor_status status = program_run(p, out, in);
    if (status)
        must_tell_status("program_run", status);
    else
        check_outputs(p, out);
}

static void run(program *p, unsigned choices) {
    program_array in[PORTS], out[PORTS];
    program_port port;
    const tensor_format format = tensor_format_at((int)(choices >> 2 & 7));
    if (program_input_count(p) > PORTS || program_output_count(p) > PORTS)
        return;
    for (int i = 0; i < program_input_count(p); i++) {
        MUST(!program_input_at(&port, p, i), "%s", tensor_error());
        if (!zeros_for(&in[i], &port, choices & 3))
            return;
    }
    run_once(p, out, in);
    run_once(p, out, in); /* by the plan of the first, if there is one */
    if (!tensor_format_name(format))
        return;
    if (choices & 32 && !program_calibrate(p, in))
        MUST(!program_freeze(p, 1), "%s", tensor_error());
    MUST(!program_set_format(p, format, NULL, NULL), "%s", tensor_error());
    run_once(p, out, in);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size > 4096)
        return 0;
    struct input in = input_of(data, size);
    program *p;
    const unsigned choices = take_byte(&in);
    scratch_write("file", in.at, input_left(&in));
    watch_failures();
    const tensor_status status = program_read(&p, scratch_path("file"));
    must_tell_status("program_read", status);
    MUST(!status == !!p, "%s", tensor_status_name(status));
    if (p)
        run(p, choices);
    program_free(p);
    return 0;
}
