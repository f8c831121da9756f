/* fuzz_program.c - programs from files of networks: read, rewritten by the passes, planned, run, brought into formats,
 * saved, exported.
 *
 * Input: a byte of choices (bits 0 and 1: the size of dimensions that the network leaves open, 0 to 3; bits 2 to 4: a
 * format; bit 5: it is calibrated; bit 6: it is 8-bit integers, as bits 2 and 3 say; bit 7: the program is saved and
 * loaded, exported and read), then the bytes of the file, of any kind. Whatever the file says, there is a result or a
 * message; blocks of memory above a limit are refused. A program that was saved gives the same bits when it is loaded.
 * Mutations keep the form of the file (mutate_network.h). */
#define _GNU_SOURCE
#include "flexlab/program.h"
#include "flexlab/tensor.h"
#include "mutate_network.h"
#include "program/network/network.h"
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

/* What a call may refuse for what the network says, or because this target refuses memory. */
static bool succeeds(const char *call, tensor_status status) {
    if (status)
        must_tell_status(call, status);
    tensor_set_error_hook(NULL, NULL);
    return !status;
}

static void must_equal(const program *p, const program_array *one, const program_array *two) {
    for (int i = 0; i < program_output_count(p); i++) {
        const program_array *const a = &one[i], *const b = &two[i];
        int64_t count = 1;
        MUST(a->ndim == b->ndim && a->type == b->type, "output %d: %d dimensions and %d", i, a->ndim, b->ndim);
        for (int d = 0; d < a->ndim; d++) {
            MUST(a->shape[d] == b->shape[d], "output %d: %lld and %lld", i, (long long)a->shape[d],
                 (long long)b->shape[d]);
            count *= a->shape[d];
        }
        if (a->type != TENSOR_TYPE_F32) {
            MUST(!count || !memcmp(a->data, b->data, (size_t)count * fl_type_bytes(a->type)), "output %d: other bits",
                 i);
            continue;
        }
        const float *const x = a->data, *const y = b->data;
        for (int64_t k = 0; k < count; k++)
            MUST(!memcmp(&x[k], &y[k], sizeof *x) || (x[k] != x[k] && y[k] != y[k]), "output %d: %a and %a", i,
                 (double)x[k], (double)y[k]);
    }
}

static bool has_borders(const program *p) {
    program_node node;
    for (int i = 0; i < program_node_count(p); i++)
        if (!program_node_at(&node, p, i) &&
            (node.quantised || !strcmp(node.op, "QuantizeLinear") || !strcmp(node.op, "DequantizeLinear")))
            return true;
    return false;
}

/* A program read from a file that this one was written to gives the same bits, where it gives some. ONNX cannot say all
 * that a file may claim, such as integers that Transpose passes on at another scale: numbers of quantised networks are
 * not compared. */
static void check_file(program *p, const char *name, bool onnx, const program_array *in) {
    program_array one[PORTS], two[PORTS];
    program *again;
    watch_failures();
    if (!succeeds("program_read", program_read(&again, scratch_path(name)))) {
        MUST(failure_status == TENSOR_E_MEMORY, "%s: %s", name, failure_text);
        return;
    }
    MUST(program_input_count(p) == program_input_count(again) && program_output_count(p) == program_output_count(again),
         "%s: %d inputs, %d outputs", name, program_input_count(again), program_output_count(again));
    const bool same = program_node_count(p) == program_node_count(again);
    MUST(same || onnx, "%s: %d nodes of %d", name, program_node_count(again), program_node_count(p));
    if (!same) {
        program_free(again);
        return;
    }
    const bool ran = !program_run(p, one, in);
    const bool ran_again = !program_run(again, two, in);
    MUST(ran == ran_again || onnx, "%s: %s", name, tensor_error());
    if (ran && ran_again && !(onnx && (has_borders(p) || has_borders(again))))
        must_equal(p, one, two);
    program_free(again);
}

static void write_and_read(program *p, const program_array *in) {
    watch_failures();
    if (succeeds("program_save", program_save(p, scratch_path("saved"))))
        check_file(p, "saved", false, in);
    watch_failures();
    if (succeeds("program_export", program_export(p, scratch_path("exported"))))
        check_file(p, "exported", true, in);
}

/* Freezing ends a calibration that failed, too; false: it did. */
static bool calibrate(program *p, const program_array *in) {
    watch_failures();
    const bool calibrated = succeeds("program_calibrate", program_calibrate(p, in));
    watch_failures();
    return succeeds("program_freeze", program_freeze(p, 1)) && calibrated;
}

static bool quantise(program *p, const program_array *in, unsigned choices) {
    const program_quantisation how = {(program_range_method)(choices >> 2 & 3), 99.9, choices & 16, choices & 32};
    MUST(!program_set_quantisation(p, &how), "%s", tensor_error());
    watch_failures();
    program_set_rounding(p, "exact"); /* or what the network says */
    tensor_set_error_hook(NULL, NULL);
    MUST(!program_set_format(p, PROGRAM_INT8, NULL, NULL), "%s", tensor_error());
    return calibrate(p, in);
}

static void run(program *p, unsigned choices) {
    static float numbers[PORTS][NUMBERS * 2];
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
    for (int i = 0; i < program_input_count(p); i++) {
        in[i].data = numbers[i];
        if (program_probe(&in[i]))
            memset(numbers[i], 0, sizeof numbers[i]);
    }
    bool fixed = true; /* exponents and scales, for all results */
    if (choices & 64) {
        fixed = quantise(p, in, choices);
    } else if (tensor_format_name(format)) {
        watch_failures();
        if (choices & 32)
            fixed = calibrate(p, in);
        tensor_set_error_hook(NULL, NULL);
        MUST(!program_set_format(p, format, NULL, NULL), "%s", tensor_error());
    }
    run_once(p, out, in);
    if (choices & 128 && fixed)
        write_and_read(p, in);
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

/* libFuzzer's names: its own mutation, which driver.c lacks, and this target's. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most) __attribute__((weak));
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
    uint64_t state = seed;
    if (LLVMFuzzerMutate && next_random(&state) % 8 == 0)
        return LLVMFuzzerMutate(data, size, most);
    if (!size)
        return 0;
    if (next_random(&state) % 8 == 0) {
        data[0] = (uint8_t)next_random(&state);
        return size;
    }
    const size_t changed = mutate_network(data + 1, size - 1, most - 1, &state);
    return changed ? changed + 1 : 0;
}
