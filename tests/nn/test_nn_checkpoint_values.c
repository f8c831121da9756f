/* Single tensors of a safetensors file that this library has not written: shapes and elements beside those that went
 * in, and each error by its status and the name it says. */
#define _GNU_SOURCE
#include "check.h"
#include "flexlab/nn.h"
#include "flexlab/tensor.h"
#include "safetensors/safetensors.h"
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { CODES = 2048 }; /* of a format, at most */
static char path[100];
static const float floats[6] = {0, -0.1f, 0x1p-149f, 3.4e38f, 1, -2};
static const double doubles[2] = {0.1, -0x1p-1074};

static void write_file(void) {
    static const char head[] =
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
        "\"d\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[24,40]},"
        "\"one\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[40,44]},"
        "\"i\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[44,48]},"
        "\"h\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[48,56]},"
        "\"b\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[56,62]},"
        "\"m\":{\"dtype\":\"I16\",\"shape\":[3],\"data_offsets\":[62,68]},"
        "\"w32\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[68,76]},"
        "\"bad\":{\"dtype\":\"I16\",\"shape\":[1],\"data_offsets\":[76,78]},"
        "\"u\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[78,80]},"
        "\"e6m9\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[80,81]},"
        "\"e0m0\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[81,82]},"
        "\"scaled\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[82,83]},"
        "\"__metadata__\":{\"e6m9.format\":\"e6m9\",\"e0m0.format\":\"e0m0\","
        "\"scaled.format\":\"tensor:e4m3fn\",\"m.exponent\":\"13\",\"w32.exponent\":\"-3\",\"bad.exponent\":\"x\","
        "\"u.exponent\":\"1\"}}";
    static const int32_t integer = 7, wide[] = {-2147483647 - 1, 1};
    static const uint16_t halves[] = {0x3c00, 0x8001, 0x7bff, 0xfc00}, brains[] = {0x3f80, 0x0001, 0xff7f};
    static const int16_t mantissas[] = {-32767, 0, 1}, one = 1;
    static const uint8_t bytes[] = {1, 2, 3, 4, 5};
    const uint64_t length = sizeof head - 1;
    FILE *f = fopen(path, "wb");
    CHECK(f, "%s", path);
    fwrite(&length, 8, 1, f);
    fwrite(head, 1, sizeof head - 1, f);
    fwrite(floats, 1, sizeof floats, f);
    fwrite(doubles, 1, sizeof doubles, f);
    fwrite(&floats[1], 1, sizeof floats[1], f);
    fwrite(&integer, 1, sizeof integer, f);
    fwrite(halves, 1, sizeof halves, f);
    fwrite(brains, 1, sizeof brains, f);
    fwrite(mantissas, 1, sizeof mantissas, f);
    fwrite(wide, 1, sizeof wide, f);
    fwrite(&one, 1, sizeof one, f);
    fwrite(bytes, 1, sizeof bytes, f);
    CHECK(!fclose(f), "%s", path);
}

static void refused(tensor_status status, tensor_status expected, const char *word) {
    CHECK(status == expected && strstr(tensor_error(), word), "%d, expected %d with '%s': %s", (int)status,
          (int)expected, word, tensor_error());
}

/* Codes of every float that is made from its parameters, under the exponent 3 where it has one, beside the values of a
 * tensor of them. */
static int every_float(void) {
    static uint16_t words[CODES];
    static double got[CODES], want[CODES];
    static const char *const suffixes[] = {"", "fn", "sat"};
    int found = 0;
    for (int i = 0; i < 2 * 8 * 15 * 3; i++) {
        char name[40];
        tensor_format format;
        snprintf(name, sizeof name, "%se%dm%d%s", i % 2 ? "tensor:" : "", i / 2 % 8 + 1, i / 16 % 15,
                 suffixes[i / 240]);
        if (tensor_format_find(&format, name) || strcmp(tensor_format_name(format), name) != 0)
            continue; /* no format, or another name of one */
        const int bits = i / 2 % 8 + 1 + i / 16 % 15 + 1, most = (1 << bits) - 1;
        const int64_t count = most < CODES ? most + 1 : CODES;
        tensor *const t = tensor_new(format, 1, &count);
        CHECK(t && (!tensor_format_is_shared(format) || !tensor_declare_exponent(t, 3)), "%s", tensor_error());
        const size_t bytes = tensor_format_bytes(format);
        for (int64_t k = 0; k < count; k++) {
            words[k] = (uint16_t)(k * most / (count - 1));
            memcpy((char *)tensor_data(t) + (size_t)k * bytes, &words[k], bytes); /* little-endian, as files are */
        }
        CHECK(!tensor_store_f64(t, want, count), "%s", tensor_error());
        struct fl_safetensors_out o = {0};
        CHECK(!fl_safetensors_add(&o, "w", bytes == 1 ? FL_STORED_U8 : FL_STORED_U16, 1, &count, tensor_data(t)) &&
                  !fl_safetensors_add_note(&o, "w.format", name) &&
                  (!tensor_format_is_shared(format) || !fl_safetensors_add_note(&o, "w.exponent", "3")) &&
                  !fl_safetensors_write(&o, path) && !nn_checkpoint_values(got, count, path, "w"),
              "%s: %s", name, tensor_error());
        fl_safetensors_end(&o);
        int64_t equal = 0;
        for (int64_t k = 0; k < count; k++)
            equal += isnan(want[k]) ? isnan(got[k]) : got[k] == want[k] && signbit(got[k]) == signbit(want[k]);
        CHECK(equal == count, "%s: %lld of %lld values", name, (long long)equal, (long long)count);
        tensor_free(t);
        found++;
    }
    return found;
}

int main(void) {
    int ndim = 9;
    int64_t dim[8] = {0};
    double x[6];
    snprintf(path, sizeof path, "/tmp/flexlab-values-%ld.safetensors", (long)getpid());
    write_file();
    CHECK(!nn_checkpoint_shape(&ndim, dim, path, "w") && ndim == 2 && dim[0] == 2 && dim[1] == 3, "w: %d", ndim);
    CHECK(!nn_checkpoint_shape(&ndim, dim, path, "i") && ndim == 1 && dim[0] == 1, "i: %d", ndim);
    CHECK(!nn_checkpoint_shape(&ndim, dim, path, "one") && ndim == 0, "one: %d", ndim);
    CHECK(!nn_checkpoint_shape(&ndim, dim, path, "W") && ndim == -1, "W: %d", ndim);

    CHECK(!nn_checkpoint_values(x, 6, path, "w"), "%s", tensor_error());
    for (int i = 0; i < 6; i++)
        CHECK(x[i] == (double)floats[i], "w[%d]: %a", i, x[i]);
    CHECK(!nn_checkpoint_values(x, 2, path, "d") && x[0] == doubles[0] && x[1] == doubles[1], "%a %a", x[0], x[1]);
    CHECK(!nn_checkpoint_values(x, 1, path, "one") && x[0] == (double)floats[1], "%a", x[0]);

    CHECK(!nn_checkpoint_values(x, 4, path, "h") && x[0] == 1 && x[1] == -0x1p-24 && x[2] == 65504 && x[3] == -INFINITY,
          "%a %a %a %a", x[0], x[1], x[2], x[3]);
    CHECK(!nn_checkpoint_values(x, 3, path, "b") && x[0] == 1 && x[1] == 0x1p-133 && x[2] == -0x1.fep127, "%a %a %a",
          x[0], x[1], x[2]);
    CHECK(!nn_checkpoint_values(x, 3, path, "m") && x[0] == -32767 * 0x1p-13 && x[1] == 0 && x[2] == 0x1p-13,
          "%a %a %a", x[0], x[1], x[2]);
    CHECK(!nn_checkpoint_values(x, 2, path, "w32") && x[0] == -0x1p34 && x[1] == 8, "%a %a", x[0], x[1]);
    refused(nn_checkpoint_values(x, 1, path, "bad"), TENSOR_E_DATA, "'bad.exponent' is 'x'");
    refused(nn_checkpoint_values(x, 2, path, "u"), TENSOR_E_DATA, "type U8, expected F64");
    refused(nn_checkpoint_values(x, 1, path, "e6m9"), TENSOR_E_DATA, "'e6m9.format' that names a format");
    refused(nn_checkpoint_values(x, 1, path, "e0m0"), TENSOR_E_DATA, "'e0m0.format' that names a format");
    refused(nn_checkpoint_values(x, 1, path, "scaled"), TENSOR_E_DATA, "'scaled.exponent'");

    refused(nn_checkpoint_values(x, 6, path, "W"), TENSOR_E_DATA, "'W'");
    refused(nn_checkpoint_values(x, 5, path, "w"), TENSOR_E_DATA, "6 elements, expected 5");
    refused(nn_checkpoint_values(x, 1, path, "i"), TENSOR_E_DATA, "I32");
    refused(nn_checkpoint_shape(&ndim, dim, NULL, "w"), TENSOR_E_ARGUMENT, "path");
    refused(nn_checkpoint_shape(&ndim, dim, path, NULL), TENSOR_E_ARGUMENT, "name");
    refused(nn_checkpoint_shape(NULL, dim, path, "w"), TENSOR_E_ARGUMENT, "result");
    refused(nn_checkpoint_shape(&ndim, NULL, path, "w"), TENSOR_E_ARGUMENT, "result");
    refused(nn_checkpoint_values(x, 6, NULL, "w"), TENSOR_E_ARGUMENT, "path");
    refused(nn_checkpoint_values(x, 6, path, NULL), TENSOR_E_ARGUMENT, "name");
    refused(nn_checkpoint_values(NULL, 6, path, "w"), TENSOR_E_ARGUMENT, "result");
    const int formats = every_float();
    CHECK(formats > 150, "%d formats", formats);
    CHECK(!unlink(path), "%s", path);
    CHECK(nn_checkpoint_shape(&ndim, dim, path, "w") && strstr(tensor_error(), path), "%s", tensor_error());
    CHECK(nn_checkpoint_values(x, 6, path, "w") && strstr(tensor_error(), path), "%s", tensor_error());
    return check_summary();
}
