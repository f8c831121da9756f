/* Networks that others trained, where FLEXLAB_DATA/networks has them, against the outputs that their own runtimes gave:
 * in fp32 every number within 1e-4 of the largest magnitude of its output; in 16 bits by signal to quantisation noise,
 * of which this prints the table; and one answer to each sample whatever is around it, in any batch, by any number of
 * threads and by every kernel set.
 *
 *     test_program_networks               all of that, each batch by one number of threads, each batch and kernel set
 *                                         in fp32 or flex16+5, in turn from network to network
 *     test_program_networks long          each batch by every number of threads, every pair of these, more samples by
 *                                         the reference kernels
 *     test_program_networks NETWORK ...   for these alone
 *     test_program_networks cuda [NETWORK ...]   a device gives the processor's answers, bit for bit, in every format
 */
#include "check.h"
#include "flexlab/autoflex.h"
#include "flexlab/program.h"
#include "flexlab/tensor.h"
#include "npz.h"
#include <limits.h>
#include <math.h>
#include <unistd.h>

enum { PORTS = 4 };
static bool every_pair; /* of a batch and a number of threads */

/* What holds of a network other than the rule, and why. The figures are measured ones, rounded away. */
struct network {
    const char *file, *record; /* without its ending; the record of a .tflite has another name */
    double within;             /* of the largest magnitude; 0: 1e-4 */
    double gain;               /* decibels by which flex16+5 is at least better than bf16; 0: 20 */
    const char *because;
};
static const struct network networks[] = {
    {"mtcnn-pnet.onnx", "mtcnn-pnet", 0, 0, NULL},
    {"mtcnn-rnet.onnx", "mtcnn-rnet", 0, 0, NULL},
    {"mtcnn-onet.onnx", "mtcnn-onet", 0, 0, NULL},
    {"ppocr-cls.onnx", "ppocr-cls", 0, 2, "probabilities so near 0 and 1 that bf16 has them, too"},
    {"ppocr-det.onnx", "ppocr-det", 0, 15, "filters of very different sizes under one exponent"},
    {"ppocr-rec.onnx", "ppocr-rec", 0, 15, "filters of very different sizes under one exponent"},
    {"speech-embedding.onnx", "speech-embedding", 0, 0, NULL},
    {"wake-word.onnx", "wake-word", 0, 0, NULL},
    {"tiny-resnet8-fp32.tflite", "tiny-resnet8-fp32-reference", 0, 0, NULL},
    {"tiny-keywords-fp32.tflite", "tiny-keywords-fp32-reference", 0.16, 0,
     "its runtime quantises the activations of 8-bit weights"},
    {"tiny-anomaly-fp32.tflite", "tiny-anomaly-fp32-reference", 0, 0, NULL},
};

/* Recorded inputs and outputs; the first dimension of each counts samples. */
struct record {
    int in_count, out_count;
    int64_t samples;
    program_array in[PORTS], out[PORTS];
};

static int64_t elements(const program_array *a) {
    int64_t n = 1;
    for (int d = 0; d < a->ndim; d++)
        n *= a->shape[d];
    return n;
}

static bool read_array(program_array *a, const struct fl_data_zip *zip, const char *kind, const char *name) {
    char member[300];
    snprintf(member, sizeof member, "%s:%s.npy", kind, name);
    if (!fl_data_zip_has(zip, member))
        snprintf(member, sizeof member, "%s.npy", kind);
    const bool read = npz_read(a, zip, member);
    CHECK(read, "%s of %s: %s", member, zip->path, tensor_error());
    return read && a->ndim;
}

static bool read_record(struct record *r, const program *p, const char *path) {
    struct fl_data_zip zip;
    program_port port;
    *r = (struct record){.in_count = program_input_count(p), .out_count = program_output_count(p)};
    bool good = r->in_count <= PORTS && r->out_count <= PORTS && !fl_data_zip_open(&zip, "npz", path);
    CHECK(good, "%s: %s", path, tensor_error());
    if (!good)
        return false;
    for (int i = 0; i < r->in_count && good; i++)
        good = !program_input_at(&port, p, i) && read_array(&r->in[i], &zip, "input", port.name);
    for (int i = 0; i < r->out_count && good; i++)
        good = !program_output_at(&port, p, i) && read_array(&r->out[i], &zip, "output", port.name);
    fl_data_zip_close(&zip);
    r->samples = good ? r->in[0].shape[0] : 0;
    return good;
}

static void free_record(struct record *r) {
    for (int i = 0; i < PORTS; i++) {
        fl_free(r->in[i].data);
        fl_free(r->out[i].data);
    }
}

/* --- runs --------------------------------------------------------------------------------------------------------- */

/* Part of the samples, as inputs. */
static void samples_of(program_array *in, const struct record *r, int64_t first, int64_t count) {
    for (int i = 0; i < r->in_count; i++) {
        in[i] = r->in[i];
        in[i].data = (float *)in[i].data + first * (elements(&r->in[i]) / r->in[i].shape[0]);
        in[i].shape[0] = count;
    }
}

/* The outputs to some samples, in batches; result[i] has room for output i to all samples. False: refused. */
static bool run(program *p, const struct record *r, int64_t samples, int64_t batch, float *const *result) {
    program_array in[PORTS], out[PORTS];
    for (int64_t first = 0; first < samples; first += batch) {
        const int64_t count = first + batch < samples ? batch : samples - first;
        samples_of(in, r, first, count);
        if (program_run(p, out, in))
            return false;
        for (int i = 0; i < r->out_count; i++) {
            const int64_t one = elements(&r->out[i]) / r->samples;
            CHECK(out[i].type == TENSOR_TYPE_F32 && elements(&out[i]) == one * count,
                  "output %d has %lld numbers, expected %lld", i, (long long)elements(&out[i]),
                  (long long)(one * count));
            if (elements(&out[i]) == one * count)
                memcpy(result[i] + first * one, out[i].data, (size_t)(one * count) * sizeof(float));
        }
    }
    return true;
}

static void free_results(float **result) {
    for (int i = 0; i < PORTS; i++)
        free(result[i]);
}

static void new_results(float **result, const struct record *r) {
    for (int i = 0; i < PORTS; i++)
        result[i] = i < r->out_count ? calloc((size_t)elements(&r->out[i]), sizeof(float)) : NULL;
}

/* The largest batch: all samples, or one where the network states that. */
static int64_t largest_batch(program *p, const struct record *r) {
    program_array in[PORTS], out[PORTS];
    samples_of(in, r, 0, r->samples);
    return program_run(p, out, in) == TENSOR_E_SHAPE ? 1 : r->samples;
}

static program *open_program(const struct network *n) {
    char path[PATH_MAX];
    program *p;
    snprintf(path, sizeof path, "%s/networks/%s", getenv("FLEXLAB_DATA"), n->file);
    if (program_read(&p, path)) {
        CHECK(tensor_error_status() == TENSOR_E_UNSUPPORTED && *tensor_error(), "%s: %s", n->file, tensor_error());
        printf("%-26s %s\n", n->file, tensor_error());
    }
    return p;
}

/* --- fp32, and formats -------------------------------------------------------------------------------------------- */

/* The largest difference, relative to the largest magnitude of its output. */
static double worst_error(const struct record *r, float *const *result) {
    double worst = 0;
    for (int i = 0; i < r->out_count; i++) {
        double difference = 0, most = 0;
        for (int64_t k = 0; k < elements(&r->out[i]); k++) {
            const double want = ((const float *)r->out[i].data)[k];
            difference = fmax(difference, isnan(result[i][k]) ? INFINITY : fabs(want - result[i][k]));
            most = fmax(most, fabs(want));
        }
        worst = fmax(worst, difference / most);
    }
    return worst;
}

/* Decibels, of the worst output. */
static double signal_to_noise(const struct record *r, float *const *wanted, float *const *result) {
    double worst = INFINITY;
    for (int i = 0; i < r->out_count; i++) {
        double signal = 0, noise = 0;
        for (int64_t k = 0; k < elements(&r->out[i]); k++) {
            const double difference = (double)wanted[i][k] - result[i][k];
            signal += (double)wanted[i][k] * wanted[i][k];
            noise += difference * difference;
        }
        worst = fmin(worst, 10 * log10(signal / fmax(noise, 1e-300)));
    }
    return worst;
}

/* Exponents that the samples need, whatever their division into batches. */
static bool freeze(program *p, const struct record *r, int64_t batch) {
    program_array in[PORTS];
    for (int64_t first = 0; first < r->samples; first += batch) {
        samples_of(in, r, first, first + batch < r->samples ? batch : r->samples - first);
        if (program_calibrate(p, in))
            return false;
    }
    return !program_freeze(p, 1);
}

static bool set_format(program *p, const struct record *r, int64_t batch, const char *name) {
    tensor_format f;
    int matched;
    bool good = !tensor_format_find(&f, name);
    if (good && tensor_format_is_shared(f))
        good = freeze(p, r, batch);
    good = good && !program_set_format(p, f, NULL, &matched) && matched > 0;
    CHECK(good, "%s: %s", name, tensor_error());
    return good;
}

static void check_formats(const struct network *n, const struct record *r, int64_t batch, float *const *fp32) {
    static const char *const names[] = {"fp16", "bf16", "flex16+5", "dfp16"};
    double ratio[4] = {0};
    float *result[PORTS];
    new_results(result, r);
    for (int f = 0; f < 4; f++) {
        program *const p = open_program(n);
        const bool good = set_format(p, r, batch, names[f]) && run(p, r, r->samples, batch, result);
        CHECK(good, "%s in %s: %s", n->file, names[f], tensor_error());
        ratio[f] = good ? signal_to_noise(r, fp32, result) : NAN;
        program_free(p);
    }
    printf(" %8.1f %8.1f %8.1f %8.1f  %s\n", ratio[0], ratio[1], ratio[2], ratio[3], n->because ? n->because : "");
    CHECK(ratio[2] >= ratio[1] + (n->gain ? n->gain : 20), "%s: flex16+5 has %.1f dB, bf16 %.1f dB", n->file, ratio[2],
          ratio[1]);
    free_results(result);
}

/* --- one answer --------------------------------------------------------------------------------------------------- */

static void check_same(const char *what, const struct record *r, int64_t samples, float *const *want,
                       float *const *got) {
    for (int i = 0; i < r->out_count; i++) {
        const int64_t count = samples * (elements(&r->out[i]) / r->samples);
        int64_t k = 0;
        while (k < count && !memcmp(&want[i][k], &got[i][k], sizeof(float)))
            k++;
        CHECK(k == count, "%s: number %lld of output %d is %a, expected %a", what, (long long)k, i, (double)got[i][k],
              (double)want[i][k]);
    }
}

static void run_again(program *p, const struct record *r, int64_t samples, int64_t batch, float *const *want,
                      const char *what) {
    float *got[PORTS];
    new_results(got, r);
    const bool good = run(p, r, samples, batch, got);
    CHECK(good, "%s: %s", what, tensor_error());
    if (good)
        check_same(what, r, samples, want, got);
    free_results(got);
}

/* Answers to the first samples, against those in the largest batch. turn: of every second batch and kernel set, which.
 */
static void check_one_answer(program *p, const char *name, const struct record *r, int64_t most, float *const *want,
                             int turn) {
    static const char *const kernels[] = {"ref", "portable", "avx2", "avx2_vnni", "avx512bw", "avx512", "avx512_amx"};
    const int64_t batches[] = {1, 2, 3, 7, most};
    const int64_t some = r->samples < 8 ? r->samples : 8;
    char what[200];
    for (int threads = 1; threads <= 3; threads++)
        for (size_t b = 0; b < sizeof batches / sizeof batches[0]; b++) {
            if (batches[b] > most || (!every_pair && ((int)b % 3 != threads - 1 || ((int)b + turn) % 2)))
                continue;
            tensor_set_threads(threads);
            snprintf(what, sizeof what, "%s, batch %lld, %d threads", name, (long long)batches[b], threads);
            run_again(p, r, batches[b] == most ? r->samples : some, batches[b], want, what);
        }
    tensor_set_threads(0);
    for (size_t k = 0; k < sizeof kernels / sizeof kernels[0]; k++) {
        if (!every_pair && ((int)k + turn) % 2)
            continue;
        const int64_t few = k > 1 || every_pair ? 3 : 1; /* plain C is slow */
        tensor_set_backend(kernels[k]);
        snprintf(what, sizeof what, "%s, kernels %s", name, kernels[k]);
        run_again(p, r, r->samples < few ? r->samples : few, most < few ? most : few, want, what);
    }
    tensor_set_backend(NULL);
}

/* The first two samples on a device, against the processor. */
static void check_device(const struct network *n, tensor_device *device) {
    static const char *const names[] = {"fp32", "fp16", "bf16", "flex16+5", "dfp16"};
    char path[PATH_MAX], what[200];
    struct record r;
    float *want[PORTS];
    program *p = open_program(n);
    if (!p)
        return;
    snprintf(path, sizeof path, "%s/networks/%s.npz", getenv("FLEXLAB_DATA"), n->record);
    if (read_record(&r, p, path)) {
        const int64_t some = r.samples < 2 ? r.samples : 2, batch = largest_batch(p, &r) > 1 ? some : 1;
        new_results(want, &r);
        for (int f = 0; f < 5; f++) {
            const bool good = set_format(p, &r, batch, names[f]) && run(p, &r, some, batch, want);
            CHECK(good, "%s in %s: %s", n->file, names[f], tensor_error());
            CHECK(!program_set_device(p, device), "%s", tensor_error());
            snprintf(what, sizeof what, "%s in %s on %s", n->file, names[f], tensor_device_name(device));
            run_again(p, &r, some, batch, want, what);
            CHECK(!program_set_device(p, NULL), "%s", tensor_error());
        }
        free_results(want);
    }
    free_record(&r);
    program_free(p);
}

static void check_network(const struct network *n) {
    char path[PATH_MAX], name[100];
    struct record r;
    float *fp32[PORTS], *flex[PORTS];
    program *p = open_program(n);
    if (!p)
        return;
    snprintf(path, sizeof path, "%s/networks/%s.npz", getenv("FLEXLAB_DATA"), n->record);
    if (read_record(&r, p, path)) {
        new_results(fp32, &r);
        new_results(flex, &r);
        const int64_t most = largest_batch(p, &r);
        const bool good = run(p, &r, r.samples, most, fp32);
        CHECK(good, "%s: %s", n->file, tensor_error());
        if (good) {
            const double error = worst_error(&r, fp32), within = n->within ? n->within : 1e-4;
            printf("%-26s %4lld %9.1e", n->file, (long long)r.samples, error);
            CHECK(error <= within, "%s: an error of %.2e, expected at most %.0e", n->file, error, within);
            check_formats(n, &r, most, fp32);
            snprintf(name, sizeof name, "%s in fp32", n->file);
            check_one_answer(p, name, &r, most, fp32, (int)(n - networks) + 1);
            if (set_format(p, &r, most, "flex16+5") && run(p, &r, r.samples, most, flex)) {
                snprintf(name, sizeof name, "%s in flex16+5", n->file);
                check_one_answer(p, name, &r, most, flex, (int)(n - networks));
            }
        }
        free_results(fp32);
        free_results(flex);
    }
    free_record(&r);
    program_free(p);
}

int main(int argc, char **argv) {
    const char *const data = getenv("FLEXLAB_DATA");
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/networks/%s", data ? data : "", networks[0].file);
    if (!data || access(path, R_OK))
        return check_skip("FLEXLAB_DATA/networks is not there");
    tensor_device *device = NULL;
    if (argc > 1 && !strncmp(argv[1], "cuda", 4)) {
        device = tensor_device_find(argv[1]);
        CHECK(device, "%s", tensor_error());
        if (!device)
            return check_summary();
        argc--;
        argv++;
    }
    every_pair = argc == 2 && !strcmp(argv[1], "long");
    printf("%-26s %4s %9s %8s %8s %8s %8s\n", "", "", "fp32", "fp16", "bf16", "flex16+5", "dfp16");
    for (size_t i = 0; i < sizeof networks / sizeof networks[0]; i++) {
        bool wanted = argc == 1 || every_pair;
        for (int k = 1; k < argc; k++)
            wanted |= !strcmp(argv[k], networks[i].file);
        if (wanted && device)
            check_device(&networks[i], device);
        else if (wanted)
            check_network(&networks[i]);
    }
    return check_summary();
}
