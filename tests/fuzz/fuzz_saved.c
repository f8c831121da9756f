/* fuzz_saved.c - files of programs: read, run on zeros, saved and read again.
 *
 * Input: a file of safetensors with a network in its metadata. Its checksum, if it has one, is of no use to this
 * target: inputs of the corpus have none. Whatever the file says, there is a program or a message that names the file;
 * a program that was read is saved as bytes that give the same bytes again. */
#define _GNU_SOURCE
#include "flexlab/program.h"
#include "flexlab/tensor.h"
#include "scratch.h"

enum { PORTS = 8, NUMBERS = 1 << 12 };

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    scratch_make();
    tensor_set_threads(1);
    limit_allocation(1ul << 24);
    return 0;
}

static size_t read_back(const char *name, uint8_t *bytes, size_t room) {
    const int file = open(scratch_path(name), O_RDONLY);
    const ssize_t size = file < 0 ? -1 : read(file, bytes, room);
    MUST(size > 0 && !close(file), "cannot read %s", name);
    return (size_t)size;
}

/* A program that runs, or says why not; steps of large tensors are refused for want of memory. */
static void run(program *p) {
    static double zeros[NUMBERS];
    program_array in[PORTS], out[PORTS];
    program_port port;
    if (program_input_count(p) > PORTS || program_output_count(p) > PORTS)
        return;
    for (int i = 0; i < program_input_count(p); i++) {
        int64_t count = 1;
        MUST(!program_input_at(&port, p, i), "%s", tensor_error());
        in[i] = (program_array){.type = port.type, .ndim = port.ndim < 0 ? 2 : port.ndim, .data = zeros};
        for (int d = 0; d < in[i].ndim; d++) {
            in[i].shape[d] = port.ndim < 0 || port.shape[d] < 0 ? 1 : port.shape[d];
            if (in[i].shape[d] && count > NUMBERS / in[i].shape[d])
                return;
            count *= in[i].shape[d];
        }
    }
    watch_failures();
    const tensor_status status = program_run(p, out, in);
    if (status)
        must_tell_status("program_run", status);
}

static void save_twice(const program *p) {
    static uint8_t one[1 << 20], two[1 << 20];
    char path[SCRATCH_PATH];
    program *again;
    snprintf(path, sizeof path, "%s", scratch_path("one"));
    MUST(!program_save(p, path), "%s", tensor_error());
    MUST(!program_load(&again, path), "%s", tensor_error());
    MUST(program_node_count(p) == program_node_count(again), "%d nodes", program_node_count(again));
    snprintf(path, sizeof path, "%s", scratch_path("two"));
    MUST(!program_save(again, path), "%s", tensor_error());
    program_free(again);
    const size_t size = read_back("one", one, sizeof one);
    MUST(size == read_back("two", two, sizeof two) && !memcmp(one, two, size), "other bytes the second time");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    program *p;
    char path[SCRATCH_PATH];
    if (size > 8192)
        return 0;
    scratch_write("file", data, size);
    snprintf(path, sizeof path, "%s", scratch_path("file"));
    watch_failures();
    const tensor_status status = program_load(&p, path);
    must_tell_status("program_load", status);
    MUST(!status == !!p, "%s", tensor_status_name(status));
    MUST(!status || status == TENSOR_E_DATA || status == TENSOR_E_IO || status == TENSOR_E_UNSUPPORTED, "%s: %s",
         tensor_status_name(status), tensor_error());
    if (status)
        return 0;
    save_twice(p);
    run(p);
    program_free(p);
    return 0;
}
