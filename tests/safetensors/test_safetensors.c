/* The reader and the writer of safetensors files: correct headers, and one for each possible error, with its message.
 * With arguments the program serves test_safetensors.py, which makes and reads files by itself:
 *
 *     dump FILE   prints tensors and notes;   copy FROM TO   copies through the reader and the writer. */
#define _GNU_SOURCE
#include "check.h"
#include "core/base/memory.h"
#include "safetensors/safetensors.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[200];

static const char *path_of(const char *name) {
    static char path[300];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* --- the serving half ----------------------------------------------------------------------------------------------
 */

static void print_hex(const char *text, size_t size) {
    for (size_t i = 0; i < size; i++)
        printf("%02x", (unsigned char)text[i]);
}

static int failed(void) {
    printf("%s: %s\n", tensor_status_name(tensor_error_status()), tensor_error());
    return 1;
}

static int dump(const char *path) {
    struct fl_safetensors s;
    if (fl_safetensors_open(&s, path) || fl_safetensors_verify(&s))
        return failed();
    for (int i = 0; i < s.note_count; i++) {
        printf("note ");
        print_hex(s.notes[i].key, strlen(s.notes[i].key));
        printf(" ");
        print_hex(s.notes[i].value, strlen(s.notes[i].value));
        printf("\n");
    }
    for (int i = 0; i < s.count; i++) {
        const struct fl_stored_tensor *t = &s.tensors[i];
        const size_t size = (size_t)(t->end - t->begin);
        char *bytes = malloc(size + 1);
        if (!bytes || fl_safetensors_read(&s, t, bytes))
            return failed();
        printf("tensor ");
        print_hex(t->name, strlen(t->name));
        printf(" %s", fl_stored_type_name(t->type));
        for (int d = 0; d < t->ndim; d++)
            printf(" %lld", (long long)t->dim[d]);
        printf(" : ");
        print_hex(bytes, size);
        printf("\n");
        free(bytes);
    }
    fl_safetensors_close(&s);
    return 0;
}

static int copy(const char *from, const char *to) {
    struct fl_safetensors s;
    struct fl_safetensors_out o = {0};
    tensor_status status = fl_safetensors_open(&s, from);
    if (status)
        return failed();
    char *bytes = malloc((size_t)s.data_bytes + 1);
    for (int i = 0; i < s.note_count && !status; i++)
        status = fl_safetensors_add_note(&o, s.notes[i].key, s.notes[i].value);
    for (int i = s.count - 1; i >= 0 && !status; i--) {
        const struct fl_stored_tensor *t = &s.tensors[i];
        status = fl_safetensors_read(&s, t, bytes + t->begin);
        if (!status)
            status = fl_safetensors_add(&o, t->name, t->type, t->ndim, t->dim, bytes + t->begin);
    }
    if (!status)
        status = fl_safetensors_write(&o, to);
    fl_safetensors_end(&o);
    fl_safetensors_close(&s);
    free(bytes);
    return status ? failed() : 0;
}

/* --- headers -------------------------------------------------------------------------------------------------------
 */

/* Writes a file with that header and this number of bytes after it. */
static void write_file(const char *path, uint64_t length, const char *header, size_t size, int data) {
    FILE *file = fopen(path, "wb");
    if (!file)
        exit(1);
    for (int i = 0; i < 8; i++)
        fputc((int)(length >> 8 * i & 255), file);
    fwrite(header, 1, size, file);
    for (int i = 0; i < data; i++)
        fputc(i & 255, file);
    fclose(file);
}

#define ONE(fields) "{\"a\":{" fields "}}"

static void headers(void) {
    static const struct {
        const char *header;
        int data;
        const char *message; /* NULL: it is correct */
    } cases[] = {
        {"{}", 0, NULL},
        {"{ }   ", 0, NULL},
        {"{\"__metadata__\":{}}", 0, NULL},
        {"{\"__metadata__\" : { \"k\" : \"v\" , \"l\":\"\" } }\n\t ", 0, NULL},
        {ONE("\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]"), 8, NULL},
        {ONE("\"data_offsets\":[0,8],\"dtype\":\"F32\",\"shape\":[2]"), 8, NULL},
        {ONE("\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]"), 8, NULL},
        {ONE("\"dtype\":\"U8\",\"shape\":[0,9223372036854775807,9223372036854775807],\"data_offsets\":[0,0]"), 0, NULL},
        {"{\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]},"
         "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
         3, NULL},
        {"{\"\\u00e9\\ud83d\\ude00\\\"\\\\\\/"
         "\\b\\f\\n\\r\\t\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
         0, NULL},
        {"", 0, "the header ends, expected '{'"},
        {" {}", 0, "0x20, expected '{'"},
        {"[]", 0, "'[', expected '{'"},
        {"{", 0, "byte 1 of the header: the header ends, expected a string"},
        {"{}x", 0, "'x', expected nothing but spaces"},
        {"{}{}", 0, "'{', expected nothing but spaces"},
        {"{a:1}", 0, "byte 1 of the header: 'a', expected a string"},
        {"{\"a\":1}", 0, "'1', expected '{'"},
        {"{\"a\":{},}", 0, "no field 'dtype'"},
        {"{\"a\":null}", 0, "'n', expected '{'"},
        {ONE("\"dtype\":\"F32\",\"shape\":[2]"), 8, "tensor 'a' has no field 'data_offsets'"},
        {ONE("\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]"), 8, "the field 'dtype' twice"},
        {ONE("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"more\":{\"deep\":[[[[[]]]]]}"), 8,
         "the unknown field 'more'"},
        {ONE("\"dtype\":\"F31\",\"shape\":[2],\"data_offsets\":[0,8]"), 8, "tensor 'a' has the unknown type 'F31'"},
        {ONE("\"dtype\":7,\"shape\":[2],\"data_offsets\":[0,8]"), 8, "'7', expected a string"},
        {ONE("\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]"), 8,
         "occupies 8 bytes, its type and shape need 12"},
        {ONE("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]"), 8,
         "is at bytes 8 to 0, expected within 0 to 8"},
        {ONE("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]"), 7,
         "is at bytes 0 to 8, expected within 0 to 7"},
        {ONE("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]"), 9,
         "tensors have 8 bytes, the file 9 after its header"},
        {ONE("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[1,9]"), 9, "begins at byte 1 of the data, expected 0"},
        {ONE("\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]"), 8, "'-', expected a whole number from 0"},
        {ONE("\"dtype\":\"F32\",\"shape\":[+2],\"data_offsets\":[0,8]"), 8, "'+', expected a whole number from 0"},
        {ONE("\"dtype\":\"F32\",\"shape\":[02],\"data_offsets\":[0,8]"), 8, "a number that begins with 0"},
        {ONE("\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]"), 8, "a fraction or an exponent"},
        {ONE("\"dtype\":\"F32\",\"shape\":[2e0],\"data_offsets\":[0,8]"), 8, "a fraction or an exponent"},
        {ONE("\"dtype\":\"F32\",\"shape\":[9223372036854775808],\"data_offsets\":[0,8]"), 8, "a number above 2^63 - 1"},
        {ONE("\"dtype\":\"F32\",\"shape\":[99999999999999999999999],\"data_offsets\":[0,8]"), 8,
         "a number above 2^63 - 1"},
        {ONE("\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,8]"), 8, "has 2^63 bytes or more"},
        {ONE("\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,2],\"data_offsets\":[0,8]"), 8,
         "has 2^63 bytes or more"},
        {ONE("\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]"), 1, "more than 8 dimensions"},
        {ONE("\"dtype\":\"U8\",\"shape\":[1,],\"data_offsets\":[0,1]"), 1, "']', expected a whole number"},
        {ONE("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,1]"), 1, "',', expected ']'"},
        {ONE("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]"), 1, "']', expected ','"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
         3, "tensor 'b' begins at byte 1 of the data, expected 2"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]}}",
         3, "tensor 'b' begins at byte 2 of the data, expected 1"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
         "\"\\u0061\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
         2, "two tensors have the name 'a'"},
        {"{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0, "the metadata have the key 'k' twice"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "'__metadata__' occurs twice"},
        {"{\"__metadata__\":{\"k\":1}}", 0, "'1', expected a string"},
        {"{\"__metadata__\":{\"k\":{}}}", 0, "'{', expected a string"},
        {"{\"__metadata__\":null}", 0, "'n', expected '{'"},
        {"{\"__metadata__\":{\"k\":\"\\ud800\"}}", 0, "half of a surrogate pair"},
        {"{\"__metadata__\":{\"k\":\"\\ud800\\u0041\"}}", 0, "half of a surrogate pair"},
        {"{\"__metadata__\":{\"k\":\"\\udc00\\ud800\"}}", 0, "half of a surrogate pair"},
        {"{\"__metadata__\":{\"k\":\"\\u0000\"}}", 0, "U+0000"},
        {"{\"__metadata__\":{\"k\":\"\\u12g4\"}}", 0, "'g', expected four hexadecimal digits"},
        {"{\"__metadata__\":{\"k\":\"\\x41\"}}", 0, "'x', expected an escape of JSON"},
        {"{\"__metadata__\":{\"k\":\"a\nb\"}}", 0, "the control character 0x0a"},
        {"{\"__metadata__\":{\"k\":\"\xc0\x80\"}}", 0, "0xc0 does not begin a UTF-8 character"},
        {"{\"__metadata__\":{\"k\":\"\xed\xa0\x80\"}}", 0, "0xed does not begin a UTF-8 character"},
        {"{\"__metadata__\":{\"k\":\"\xf4\x90\x80\x80\"}}", 0, "0xf4 does not begin a UTF-8 character"},
        {"{\"__metadata__\":{\"k\":\"\xe2\x82\"}}", 0, "0xe2 does not begin a UTF-8 character"},
        {"{\"__metadata__\":{\"k\":\"abc", 0, "the header ends, expected the end of a string"},
        {"{\"__metadata__\":{\"k\":\"abc\\", 0, "the header ends, expected an escape"},
        {"{\"flexlab\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},"
         "\"__metadata__\":{\"flexlab.crc32\":\"12345678\"}}",
         0, "its contents is 00000000, expected 12345678"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fl_safetensors s;
        const char *path = path_of("header");
        write_file(path, strlen(cases[i].header), cases[i].header, strlen(cases[i].header), cases[i].data);
        tensor_status status = fl_safetensors_open(&s, path);
        const bool opened = !status;
        if (opened)
            status = fl_safetensors_verify(&s);
        if (cases[i].message) {
            CHECK(status == TENSOR_E_DATA, "%s: status %d", cases[i].header, (int)status);
            CHECK(strstr(tensor_error(), cases[i].message) && strstr(tensor_error(), path),
                  "%s says \"%s\", expected \"%s\"", cases[i].header, tensor_error(), cases[i].message);
        } else {
            CHECK(!status, "%s: %s", cases[i].header, tensor_error());
        }
        if (opened)
            fl_safetensors_close(&s);
    }
    struct fl_safetensors s;
    write_file(path_of("header"), strlen(cases[9].header), cases[9].header, strlen(cases[9].header), 0);
    CHECK(!fl_safetensors_open(&s, path_of("header")) &&
              fl_safetensors_find(&s, "\xc3\xa9\xf0\x9f\x98\x80\"\\/\b\f\n\r\t") && !fl_safetensors_find(&s, "b"),
          "escapes: %s", tensor_error());
    fl_safetensors_close(&s);
}

/* A zero byte does not end a header. */
static void zero_bytes(void) {
    static const char *const places[] = {"{\"a\0b\":1}", "{\0}", "{}\0", "{\"__metadata__\":{\"k\0\":\"v\"}}"};
    static const size_t sizes[] = {9, 3, 3, 27};
    for (int i = 0; i < 4; i++) {
        struct fl_safetensors s;
        write_file(path_of("zero"), sizes[i], places[i], sizes[i], 0);
        CHECK(fl_safetensors_open(&s, path_of("zero")) == TENSOR_E_DATA && strstr(tensor_error(), "0x00"), "%d: %s", i,
              tensor_error());
    }
}

static void lengths(void) {
    struct fl_safetensors s;
    const struct {
        uint64_t length;
        size_t size;
        const char *message;
    } cases[] = {
        {3, 2, "a header of 3 bytes, the file has 2"},
        {100000000, 2, "a header of 100000000 bytes, the file has 2"},
        {100000001, 2,
         "not a safetensors file: its first eight bytes would be the length of a header, 100000001, expected at most "
         "100000000"},
        {UINT64_MAX, 2, "the length of a header, 18446744073709551615,"},
        {(uint64_t)1 << 63, 2, "the length of a header, 9223372036854775808,"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_file(path_of("length"), cases[i].length, "{}", cases[i].size, 0);
        CHECK(fl_safetensors_open(&s, path_of("length")) == TENSOR_E_DATA && strstr(tensor_error(), cases[i].message),
              "\"%s\", expected \"%s\"", tensor_error(), cases[i].message);
    }
    for (int bytes = 0; bytes < 8; bytes++) {
        write_file(path_of("short"), 2, "{}", 2, 0);
        CHECK(!truncate(path_of("short"), bytes), "truncate");
        CHECK(fl_safetensors_open(&s, path_of("short")) == TENSOR_E_DATA &&
                  strstr(tensor_error(), "expected at least 8"),
              "%d bytes: %s", bytes, tensor_error());
    }
}

/* Files of other programs are recognised by their first bytes; a file that begins like a header is none of them. */
static void other_kinds(void) {
    static const struct {
        const char *bytes;
        size_t count;
        const char *message;
    } kinds[] = {{"PK\3\4\0\0\0\0\0\0archive", 17, "looks like a ZIP archive, as torch.save of PyTorch"},
                 {"\x80\2\x8a\nl\xfc\x9c\x46\xf9 j", 11, "looks like a pickle of Python, as torch.save of older"},
                 {"\x80\4\x95\n\0\0\0\0\0\0\0", 11, "looks like a pickle of Python"},
                 {"\x89HDF\r\n\x1a\n\0\0\0", 11, "looks like an HDF5 file, as .h5 files of Keras"},
                 {"\x93NUMPY\1\0v\0{'descr'", 17, "looks like an array of NumPy"},
                 {"\x1f\x8b\x08\0\0\0\0\0\0\3", 10, "looks like a file compressed by gzip"},
                 {"\xfd"
                  "7zXZ\0\0\4",
                  8, "looks like a file compressed by xz"},
                 {"\x08\7\x12\7pytorch\x1a", 12, "looks like a model in ONNX"},
                 {"GGUF\3\0\0\0\0", 9, "looks like a GGUF file"},
                 {"\0\0\0\0TFL3\0", 9, "looks like a model of TensorFlow Lite"},
                 {"hello", 5, "looks like a text"},
                 {"{\"a\": [1, 2, 3], \"b\": 4}\n", 25, "looks like a text"},
                 {"gr\xc3\xbc\xc3\x9f dich, Welt\n", 18, "looks like a text"},
                 {"gr\xfc\xdf dich, Welt\n\xff", 17, "the length of a header, 7163366774669079143,"},
                 {"\xff\xff\0\0\0\0\0\0{", 9, "a header of 65535 bytes, the file has 1"}}; /* truncated */
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct fl_safetensors s;
        FILE *file = fopen(path_of("kind"), "wb");
        CHECK(file && fwrite(kinds[i].bytes, 1, kinds[i].count, file) == kinds[i].count && !fclose(file), "writing");
        CHECK(fl_safetensors_open(&s, path_of("kind")) == TENSOR_E_DATA && strstr(tensor_error(), kinds[i].message),
              "\"%s\", expected \"%s\"", tensor_error(), kinds[i].message);
        unlink(path_of("kind"));
    }
}

static void other_files(void) {
    struct fl_safetensors s;
    CHECK(fl_safetensors_open(&s, path_of("nothing")) == TENSOR_E_IO && strstr(tensor_error(), "No such file"), "%s",
          tensor_error());
    CHECK(fl_safetensors_open(&s, folder) == TENSOR_E_IO && strstr(tensor_error(), "is a folder"), "%s",
          tensor_error());
    CHECK(!mkfifo(path_of("fifo"), 0600) && fl_safetensors_open(&s, path_of("fifo")) == TENSOR_E_IO &&
              strstr(tensor_error(), "is a FIFO, expected a regular file"),
          "%s", tensor_error());
    unlink(path_of("fifo"));
}

/* The file is truncated between the header and the elements. */
static void shortened(void) {
    struct fl_safetensors s;
    char bytes[8];
    static const char header[] = ONE("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]");
    write_file(path_of("shortened"), sizeof header - 1, header, sizeof header - 1, 8);
    CHECK(!fl_safetensors_open(&s, path_of("shortened")) && !truncate(path_of("shortened"), sizeof header + 10), "%s",
          tensor_error());
    CHECK(fl_safetensors_read(&s, &s.tensors[0], bytes) == TENSOR_E_DATA && strstr(tensor_error(), "expected 5 more"),
          "%s", tensor_error());
    fl_safetensors_close(&s);
}

/* --- writing -------------------------------------------------------------------------------------------------------
 */

static void refusals(void) {
    struct fl_safetensors_out o = {0};
    const int64_t two[] = {2}, many[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1}, huge[] = {INT64_MAX, 2}, negative[] = {-1};
    CHECK(fl_safetensors_add(&o, "\xff", FL_STORED_U8, 1, two, "ab") == TENSOR_E_ARGUMENT, "a name that is no text");
    CHECK(fl_safetensors_add(&o, "__metadata__", FL_STORED_U8, 1, two, "ab") == TENSOR_E_ARGUMENT, "its own name");
    CHECK(fl_safetensors_add(&o, "a", FL_STORED_U8, 9, many, "a") == TENSOR_E_ARGUMENT, "nine dimensions");
    CHECK(fl_safetensors_add(&o, "a", FL_STORED_U8, 2, huge, "a") == TENSOR_E_ARGUMENT, "2^64 bytes");
    CHECK(fl_safetensors_add(&o, "a", FL_STORED_U8, 1, negative, "a") == TENSOR_E_ARGUMENT, "a negative size");
    CHECK(fl_safetensors_add_note(&o, "k", "\xe0\x80\x80") == TENSOR_E_ARGUMENT, "a note that is no text");
    CHECK(!fl_safetensors_add(&o, "a", FL_STORED_U8, 1, two, "ab") &&
              !fl_safetensors_add(&o, "a", FL_STORED_I8, 1, two, "cd"),
          "%s", tensor_error());
    CHECK(fl_safetensors_write(&o, path_of("twice")) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "the name 'a'"),
          "%s", tensor_error());
    fl_safetensors_end(&o);
    CHECK(!fl_safetensors_add_note(&o, "k", "1") && !fl_safetensors_add_note(&o, "k", "1"), "%s", tensor_error());
    CHECK(fl_safetensors_write(&o, path_of("twice")) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "the key 'k'"),
          "%s", tensor_error());
    fl_safetensors_end(&o);
    CHECK(!fl_safetensors_add_note(&o, FL_CHECKSUM, "1") &&
              fl_safetensors_write(&o, path_of("twice")) == TENSOR_E_ARGUMENT,
          "a checksum of the caller's");
    fl_safetensors_end(&o);
    CHECK(access(path_of("twice"), F_OK) && access(path_of("twice.part"), F_OK), "a refused file was written");
}

/* A file that cannot be written completely leaves the earlier one, and no unfinished file. */
static void failed_writes(void) {
    struct fl_safetensors_out o = {0};
    struct fl_safetensors s;
    const int64_t size[] = {100000};
    char *bytes = calloc(1, 100000), *path = strdup(path_of("kept")), *part = strdup(path_of("kept.part"));
    CHECK(!fl_safetensors_add_note(&o, "which", "first") && !fl_safetensors_write(&o, path), "%s", tensor_error());
    fl_safetensors_end(&o);
    CHECK(!fl_safetensors_add_note(&o, "which", "second") && !fl_safetensors_add(&o, "a", FL_STORED_U8, 1, size, bytes),
          "%s", tensor_error());
    struct rlimit before, low;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    for (rlim_t limit = 0; limit < 100000; limit = limit ? limit * 4 : 1) {
        low = (struct rlimit){limit, before.rlim_max};
        setrlimit(RLIMIT_FSIZE, &low);
        const tensor_status status = fl_safetensors_write(&o, path);
        setrlimit(RLIMIT_FSIZE, &before);
        CHECK(status == TENSOR_E_IO && strstr(tensor_error(), part), "limit %ld: %s", (long)limit, tensor_error());
        CHECK(access(part, F_OK), "limit %ld: the part stays", (long)limit);
        CHECK(!fl_safetensors_open(&s, path) && !strcmp(fl_safetensors_note(&s, "which"), "first"), "limit %ld",
              (long)limit);
        fl_safetensors_close(&s);
        fl_safetensors_end(&o);
        CHECK(!fl_safetensors_add_note(&o, "which", "second") &&
                  !fl_safetensors_add(&o, "a", FL_STORED_U8, 1, size, bytes),
              "%s", tensor_error());
    }
    CHECK(!mkdir(part, 0700) && fl_safetensors_write(&o, path) == TENSOR_E_IO, "a folder in the way");
    rmdir(part);
    fl_safetensors_end(&o);
    CHECK(!fl_safetensors_add_note(&o, "which", "second") && !fl_safetensors_write(&o, path), "%s", tensor_error());
    fl_safetensors_end(&o);
    CHECK(!fl_safetensors_open(&s, path) && !strcmp(fl_safetensors_note(&s, "which"), "second"), "the next one");
    fl_safetensors_close(&s);
    free(bytes);
    free(path);
    free(part);
}

/* Whatever is at the name of the unfinished file is removed: a link's target remains unchanged, and a FIFO causes no
 * wait. */
static void links(void) {
    struct fl_safetensors_out o = {0};
    struct fl_safetensors s;
    struct stat about;
    char *path = strdup(path_of("kept")), *part = strdup(path_of("kept.part")), *other = strdup(path_of("other"));
    char found[9] = "";
    int file = open(other, O_WRONLY | O_CREAT, 0600);
    CHECK(file >= 0 && write(file, "precious", 8) == 8 && !close(file), "%s", strerror(errno));
    for (int kind = 0; kind < 4; kind++) {
        const int failed = kind == 0   ? symlink(other, part)
                           : kind == 1 ? link(other, part)
                           : kind == 2 ? mkfifo(part, 0600)
                                       : symlink("nowhere", part);
        CHECK(!failed, "%d: %s", kind, strerror(errno));
        alarm(60); /* a FIFO without a reader */
        CHECK(!fl_safetensors_add_note(&o, "which", "new") && !fl_safetensors_write(&o, path), "%d: %s", kind,
              tensor_error());
        alarm(0);
        fl_safetensors_end(&o);
        file = open(other, O_RDONLY);
        CHECK(file >= 0 && read(file, found, sizeof found) == 8 && !memcmp(found, "precious", 8), "%d: '%.8s'", kind,
              found);
        close(file);
        CHECK(!lstat(path, &about) && S_ISREG(about.st_mode) && about.st_nlink == 1, "%d: no file of its own", kind);
        CHECK(access(path_of("nowhere"), F_OK), "%d: made through a link", kind);
        CHECK(!fl_safetensors_open(&s, path), "%d: %s", kind, tensor_error());
        fl_safetensors_close(&s);
        unlink(part);
    }
    unlink(other);
    free(path);
    free(part);
    free(other);
}

/* A folder that may be written but not read cannot be synchronised: refused before the file is replaced. */
static void closed_folder(void) {
    struct fl_safetensors_out o = {0};
    struct fl_safetensors s;
    char closed[300], path[320], part[330];
    snprintf(closed, sizeof closed, "%s-closed", folder);
    snprintf(path, sizeof path, "%s/file", closed);
    snprintf(part, sizeof part, "%s.part", path);
    const uid_t user = geteuid();
    CHECK(!mkdir(closed, 0700), "%s", strerror(errno));
    CHECK(!fl_safetensors_add_note(&o, "which", "first") && !fl_safetensors_write(&o, path), "%s", tensor_error());
    fl_safetensors_end(&o);
    CHECK(!chmod(closed, 0333) && (user || (!chown(closed, 65534, (gid_t)-1) && !seteuid(65534))), "%s",
          strerror(errno)); /* root may read everything */
    CHECK(!fl_safetensors_add_note(&o, "which", "second") && fl_safetensors_write(&o, path) == TENSOR_E_IO &&
              strstr(tensor_error(), "its folder cannot be opened: Permission denied"),
          "%s", tensor_error());
    fl_safetensors_end(&o);
    CHECK(user || !seteuid(user), "%s", strerror(errno));
    CHECK(!chmod(closed, 0700) && access(part, F_OK), "the part stays");
    CHECK(!fl_safetensors_open(&s, path) && !strcmp(fl_safetensors_note(&s, "which"), "first"),
          "replaced all the same");
    fl_safetensors_close(&s);
    CHECK(!unlink(path) && !rmdir(closed), "%s", strerror(errno));
}

/* The checksum covers every byte of elements and notes. */
static void checksum(void) {
    struct fl_safetensors_out o = {0};
    const int64_t size[] = {3};
    char path[300];
    snprintf(path, sizeof path, "%s", path_of("sum"));
    CHECK(!fl_safetensors_add_note(&o, "key", "value") &&
              !fl_safetensors_add(&o, "a", FL_STORED_I16, 1, size, (const int16_t[]){1, -2, 3}) &&
              !fl_safetensors_write(&o, path),
          "%s", tensor_error());
    fl_safetensors_end(&o);
    const int file = open(path, O_RDWR);
    struct stat about;
    CHECK(file >= 0 && !fstat(file, &about), "%s", strerror(errno));
    int refused = 0;
    for (off_t at = 0; at < about.st_size; at++) {
        struct fl_safetensors s;
        unsigned char byte, changed;
        CHECK(pread(file, &byte, 1, at) == 1, "read");
        changed = byte ^ 1;
        CHECK(pwrite(file, &changed, 1, at) == 1, "write");
        tensor_status status = fl_safetensors_open(&s, path);
        if (!status) {
            status = fl_safetensors_verify(&s);
            if (!status) { /* a name, a type or a shape with as many bytes: the reader of the tensors must find it */
                const struct fl_stored_tensor *t = fl_safetensors_find(&s, "a");
                CHECK(!t || t->type != FL_STORED_I16 || !fl_safetensors_note(&s, FL_CHECKSUM), "byte %lld is not seen",
                      (long long)at);
            }
            fl_safetensors_close(&s);
        }
        refused += status == TENSOR_E_DATA;
        CHECK(pwrite(file, &byte, 1, at) == 1, "write");
    }
    close(file);
    CHECK(refused > about.st_size - 24, "%d of %lld changes are refused", refused, (long long)about.st_size);
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "dump"))
        return dump(argv[2]);
    if (argc == 4 && !strcmp(argv[1], "copy"))
        return copy(argv[2], argv[3]);
    snprintf(folder, sizeof folder, "/tmp/flexlab-safetensors-%ld", (long)getpid());
    if (mkdir(folder, 0700))
        return 1;
    headers();
    zero_bytes();
    lengths();
    other_kinds();
    other_files();
    shortened();
    refusals();
    failed_writes();
    links();
    closed_folder();
    checksum();
    static const char *const names[] = {"header", "zero", "length", "short", "shortened", "kept", "sum"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unlink(path_of(names[i]));
    CHECK(!rmdir(folder), "%s is not empty: %s", folder, strerror(errno));
    return check_summary();
}
