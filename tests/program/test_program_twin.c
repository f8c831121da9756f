/* The networks of 8-bit integers of MLPerf Tiny, where FLEXLAB_DATA/networks has them, give every bit that LiteRT gave:
 * its reference kernels, its optimised ones, and XNNPACK, under the roundings named after them. So they do in every
 * batch, by any number of threads and by every kernel set. */
#include "check.h"
#include "flexlab/program.h"
#include "flexlab/tensor.h"
#include "npz.h"
#include <limits.h>
#include <unistd.h>

static const char *const networks[] = {"tiny-resnet8", "tiny-keywords", "tiny-anomaly"};
static const struct {
    const char *rounding, *record;
} roundings[] = {{"tflite-xnnpack", "xnnpack"}, {"tflite", "reference"}, {"tflite-ruy", "ruy"}};
enum { NETWORKS = 3, ROUNDINGS = 3 };

struct record {
    program_array in, out;
};

static bool read_record(struct record *r, const char *network, const char *kind) {
    char path[PATH_MAX];
    struct fl_data_zip zip;
    snprintf(path, sizeof path, "%s/networks/%s-int8-%s.npz", getenv("FLEXLAB_DATA"), network, kind);
    *r = (struct record){.in = {.ndim = 0}};
    const bool opened = !fl_data_zip_open(&zip, "npz", path);
    const bool good = opened && npz_read(&r->in, &zip, "input.npy") && npz_read(&r->out, &zip, "output.npy") &&
                      r->in.type == TENSOR_TYPE_I8 && r->out.type == TENSOR_TYPE_I8;
    if (opened)
        fl_data_zip_close(&zip);
    CHECK(good, "%s: %s", path, tensor_error());
    return good;
}

/* The first `count` samples in batches against the record. */
static void check_run(program *p, const struct record *r, int64_t count, int64_t batch, const char *what) {
    int64_t in_bytes = 1, out_bytes = 1;
    for (int d = 1; d < r->in.ndim; d++)
        in_bytes *= r->in.shape[d];
    for (int d = 1; d < r->out.ndim; d++)
        out_bytes *= r->out.shape[d];
    for (int64_t first = 0; first < count; first += batch) {
        program_array in = r->in, out;
        in.shape[0] = first + batch < count ? batch : count - first;
        in.data = (char *)in.data + first * in_bytes;
        if (program_run(p, &out, &in)) {
            CHECK(false, "%s, batch %lld: %s", what, (long long)batch, tensor_error());
            return;
        }
        const int8_t *const want = (const int8_t *)r->out.data + first * out_bytes, *const got = out.data;
        CHECK(out.type == TENSOR_TYPE_I8 && out.shape[0] == in.shape[0], "%s: type %d, %lld samples", what, out.type,
              (long long)out.shape[0]);
        int64_t i = 0;
        while (i < in.shape[0] * out_bytes && got[i] == want[i])
            i++;
        CHECK(i == in.shape[0] * out_bytes, "%s, batch %lld: sample %lld, number %lld is %d, expected %d", what,
              (long long)batch, (long long)(first + i / out_bytes), (long long)(i % out_bytes), got[i], want[i]);
    }
}

static void check_rounding(program *p, const char *network, int k) {
    static const char *const kernels[] = {"portable", "avx2", "avx2_vnni", "avx512bw", "avx512", "avx512_amx"};
    static const int64_t batches[] = {1, 2, 7, 64, 256};
    char what[100];
    struct record r;
    if (!read_record(&r, network, roundings[k].record))
        return;
    CHECK(k == 0 || !program_set_rounding(p, roundings[k].rounding), "%s", tensor_error());
    CHECK(!strcmp(program_rounding(p), roundings[k].rounding), "rounding %s", program_rounding(p));
    for (int threads = 1; threads <= 3; threads++)
        for (size_t b = 0; b < sizeof batches / sizeof batches[0]; b++) {
            tensor_set_threads(threads);
            snprintf(what, sizeof what, "%s, %s, %d threads", network, roundings[k].rounding, threads);
            check_run(p, &r, batches[b] < 64 ? 15 : r.in.shape[0], batches[b], what);
        }
    tensor_set_threads(0);
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
        tensor_set_backend(kernels[i]);
        snprintf(what, sizeof what, "%s, %s, kernels %s", network, roundings[k].rounding, kernels[i]);
        check_run(p, &r, 70, 35, what);
        check_run(p, &r, 7, 1, what);
    }
    tensor_set_backend("ref");
    snprintf(what, sizeof what, "%s, %s, kernels ref", network, roundings[k].rounding);
    check_run(p, &r, 3, 3, what);
    tensor_set_backend(NULL);
    fl_free(r.in.data);
    fl_free(r.out.data);
}

static void check_network(const char *network) {
    char path[PATH_MAX];
    program *p;
    snprintf(path, sizeof path, "%s/networks/%s-int8.tflite", getenv("FLEXLAB_DATA"), network);
    if (program_read(&p, path)) {
        CHECK(tensor_error_status() == TENSOR_E_UNSUPPORTED, "%s: %s", path, tensor_error());
        printf("%s: %s\n", network, tensor_error());
        return;
    }
    CHECK(program_is_quantised(p), "%s computes floats", network);
    for (int k = 0; k < ROUNDINGS; k++)
        check_rounding(p, network, k);
    CHECK(program_set_rounding(p, "tensorflow") == TENSOR_E_ARGUMENT && strstr(tensor_error(), "tflite-ruy") &&
              !strcmp(program_rounding(p), "tflite-ruy"),
          "another rounding: %s", tensor_error());
    program_free(p);
}

int main(void) {
    const char *const data = getenv("FLEXLAB_DATA");
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/networks/%s-int8.tflite", data ? data : "", networks[0]);
    if (!data || access(path, R_OK))
        return check_skip("FLEXLAB_DATA/networks is not there");
    for (int i = 0; i < NETWORKS; i++)
        check_network(networks[i]);
    return check_summary();
}
