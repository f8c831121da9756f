/* fuzz_safetensors.c - the reader of safetensors files, and what the writer makes of what was read.
 *
 * Input: a byte of choices (bit 0: the bytes that follow are the file as it is; else a header, to which the length is
 * put, and elements are added behind it, as many as the next two bytes say), then the bytes. What is accepted fills the
 * file without holes, takes no more memory than the file justifies, and is the same after it was written and read
 * again. */
#define _GNU_SOURCE
#include "flexlab/tensor.h"
#include "safetensors/safetensors.h"
#include "scratch.h"

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    scratch_make();
    return 0;
}

static void write_input(struct input *in) {
    static uint8_t file[8 + 65536 + 8192];
    size_t size = 0;
    if (take_byte(in) & 1) {
        size = input_left(in);
        memcpy(file, in->at, size);
    } else {
        const size_t data = (size_t)take_bytes(in, 2), header = input_left(in);
        for (; size < 8; size++)
            file[size] = (uint8_t)(header >> 8 * size);
        memcpy(file + size, in->at, header);
        for (size += header; size < 8 + header + data; size++)
            file[size] = (uint8_t)(size * 37);
    }
    scratch_write("file", file, size);
    limit_allocation(65536 + 8 * size);
}

/* Sizes agree, names rise, and one tensor follows the other to the end of the file. */
static void check_consistent(const struct fl_safetensors *s) {
    int64_t bytes = 0;
    for (int i = 0; i < s->count; i++) {
        const struct fl_stored_tensor *t = &s->tensors[i];
        int64_t size = fl_stored_type_bytes(t->type);
        for (int d = 0; d < t->ndim; d++)
            size = t->dim[d] ? size : 0;
        for (int d = 0; d < t->ndim && size; d++) /* a product with a zero may have factors beyond 2^63 */
            size *= t->dim[d];
        MUST(t->begin >= 0 && t->end <= s->data_bytes && t->end - t->begin == size,
             "'%s' lies at %lld to %lld, has %lld", t->name, (long long)t->begin, (long long)t->end, (long long)size);
        MUST(i == 0 || strcmp(s->tensors[i - 1].name, t->name) < 0, "'%s' stands in no order", t->name);
        MUST(fl_safetensors_find(s, t->name) == t, "'%s' is not found", t->name);
        for (int k = 0; k < i; k++)
            MUST(t->begin >= s->tensors[k].end || t->end <= s->tensors[k].begin, "'%s' and '%s' overlap", t->name,
                 s->tensors[k].name);
        bytes += size;
    }
    MUST(bytes == s->data_bytes, "%lld bytes of %lld", (long long)bytes, (long long)s->data_bytes);
    for (int i = 0; i < s->note_count; i++)
        MUST(fl_safetensors_note(s, s->notes[i].key) == s->notes[i].value, "note '%s'", s->notes[i].key);
}

static void check_again(const struct fl_safetensors *s, const uint8_t *elements) {
    struct fl_safetensors_out o = {0};
    struct fl_safetensors again;
    for (int i = 0; i < s->note_count; i++)
        if (strcmp(s->notes[i].key, FL_CHECKSUM) != 0)
            MUST(!fl_safetensors_add_note(&o, s->notes[i].key, s->notes[i].value), "%s", tensor_error());
    for (int i = 0; i < s->count; i++)
        MUST(!fl_safetensors_add(&o, s->tensors[i].name, s->tensors[i].type, s->tensors[i].ndim, s->tensors[i].dim,
                                 elements + s->tensors[i].begin),
             "%s", tensor_error());
    char path[SCRATCH_PATH];
    snprintf(path, sizeof path, "%s", scratch_path("again"));
    MUST(!fl_safetensors_write(&o, path), "%s", tensor_error());
    fl_safetensors_end(&o);
    MUST(!fl_safetensors_open(&again, path) && !fl_safetensors_verify(&again), "%s", tensor_error());
    MUST(again.count == s->count, "%d tensors of %d", again.count, s->count);
    for (int i = 0; i < s->count; i++) {
        const struct fl_stored_tensor *a = &s->tensors[i], *b = &again.tensors[i];
        uint8_t bytes[sizeof(int64_t) * 9000];
        MUST(!strcmp(a->name, b->name) && a->type == b->type && a->ndim == b->ndim &&
                 !memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof *a->dim) && b->end - b->begin == a->end - a->begin,
             "'%s' became '%s'", a->name, b->name);
        MUST(b->end - b->begin <= (int64_t)sizeof bytes && !fl_safetensors_read(&again, b, bytes), "%s",
             tensor_error());
        MUST(!memcmp(bytes, elements + a->begin, (size_t)(b->end - b->begin)), "elements of '%s' differ", a->name);
    }
    fl_safetensors_close(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size > 4096)
        return 0;
    struct input in = input_of(data, size);
    struct fl_safetensors s;
    static uint8_t elements[65536 + 8192];
    write_input(&in);
    char path[SCRATCH_PATH];
    snprintf(path, sizeof path, "%s", scratch_path("file"));
    watch_failures();
    const tensor_status status = fl_safetensors_open(&s, path);
    must_tell_status("fl_safetensors_open", status);
    MUST(!status || status == TENSOR_E_DATA, "%s: %s", tensor_status_name(status), tensor_error());
    MUST(!status || strstr(tensor_error(), path), "no file is named: %s", tensor_error());
    if (status)
        return 0;
    check_consistent(&s);
    (void)fl_safetensors_verify(&s);
    for (int i = 0; i < s.count; i++)
        MUST(!fl_safetensors_read(&s, &s.tensors[i], elements + s.tensors[i].begin), "%s", tensor_error());
    limit_allocation(1 << 20);
    check_again(&s, elements);
    fl_safetensors_close(&s);
    return 0;
}
