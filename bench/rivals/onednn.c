/* onednn.c - oneDNN: sgemm by its function and by its matmul primitive, bf16 matmul into binary32, int8 matmul into
 * int32, convolution in all three directions. Convolutions choose their own layouts (format any); no time is counted
 * for bringing data into them. */
#include "gemm.h"
#include <dnnl.h>

static struct gemm g;
static void (*chosen)(void);

static void run_sgemm(void) {
    dnnl_sgemm('N', 'N', g.m, g.n, g.k, 1, g.a, g.k, g.b, g.n, 0, g.c, g.n);
}

#if DNNL_VERSION_MAJOR < 3
static const char *prepare_primitives(int argc, char **argv) {
    (void)argc;
    return worker_skip("%s: primitives need oneDNN 3, this is %d.%d", argv[0], DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR);
}
static void finish(void) {}
#else

enum { MOST_STAGES = 3 };

static dnnl_engine_t engine;
static dnnl_stream_t stream;
static struct stage {
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t arguments[3];
} stages[MOST_STAGES];
static int stage_count;

static int engine_ready(void) {
    return engine || (dnnl_engine_create(&engine, dnnl_cpu, 0) == dnnl_success &&
                      dnnl_stream_create(&stream, engine, dnnl_stream_default_flags) == dnnl_success);
}

/* Memory in the layout that the primitive wants, filled with random numbers. */
static int random_memory(dnnl_memory_t *memory, const_dnnl_memory_desc_t description, dnnl_data_type_t type,
                         uint64_t seed) {
    void *data;
    const int64_t bytes = (int64_t)dnnl_memory_desc_get_size(description);
    if (dnnl_memory_create(memory, description, engine, DNNL_MEMORY_ALLOCATE) != dnnl_success ||
        dnnl_memory_map_data(*memory, &data) != dnnl_success)
        return 0;
    if (type == dnnl_bf16)
        worker_normal_bf16(data, bytes / 2, seed);
    else if (type == dnnl_s8)
        for (int64_t i = 0; i < bytes; i++)
            ((uint8_t *)data)[i] = (uint8_t)((uint64_t)i * 0x9E3779B97F4A7C15u + seed >> 56);
    else
        worker_normal(data, bytes / 4, seed);
    return dnnl_memory_unmap_data(*memory, data) == dnnl_success;
}

/* Adds a stage that runs `description` with random memories for its three arguments. */
static int add_stage(dnnl_primitive_desc_t description, const int argument[3], const dnnl_data_type_t type[3]) {
    struct stage *s = &stages[stage_count++];
    for (int i = 0; i < 3; i++) {
        s->arguments[i].arg = argument[i];
        if (!random_memory(&s->arguments[i].memory,
                           dnnl_primitive_desc_query_md(description, dnnl_query_exec_arg_md, argument[i]), type[i],
                           (uint64_t)i + 1))
            return 0;
    }
    return dnnl_primitive_create(&s->primitive, description) == dnnl_success;
}

static void run_stages(void) {
    for (int i = 0; i < stage_count; i++)
        dnnl_primitive_execute(stages[i].primitive, stream, 3, stages[i].arguments);
}

static void finish(void) {
    if (stream)
        dnnl_stream_wait(stream);
}

/* Row-major operands, as a caller has them. */
static int prepare_matmul(dnnl_data_type_t type, dnnl_data_type_t result) {
    const dnnl_dims_t a = {g.m, g.k}, b = {g.k, g.n}, c = {g.m, g.n};
    dnnl_memory_desc_t da, db, dc;
    dnnl_primitive_desc_t description;
    return dnnl_memory_desc_create_with_tag(&da, 2, a, type, dnnl_ab) == dnnl_success &&
           dnnl_memory_desc_create_with_tag(&db, 2, b, type, dnnl_ab) == dnnl_success &&
           dnnl_memory_desc_create_with_tag(&dc, 2, c, result, dnnl_ab) == dnnl_success &&
           dnnl_matmul_primitive_desc_create(&description, engine, da, db, NULL, dc, NULL) == dnnl_success &&
           add_stage(description, (const int[]){DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
                     (const dnnl_data_type_t[]){type, type, result});
}

/* conv N H W C K R STRIDE PADDING GROUPS PASSES: f forward, d gradient of the input, w gradient of the weights. */
static int prepare_conv(char **argv) {
    int64_t v[9];
    for (int i = 0; i < 9; i++)
        v[i] = atoll(argv[i]);
    if (v[8] < 1)
        return 0;
    const int64_t h = (v[1] + 2 * v[7] - v[5]) / v[6] + 1, w = (v[2] + 2 * v[7] - v[5]) / v[6] + 1;
    const dnnl_dims_t image = {v[0], v[3], v[1], v[2]}, result = {v[0], v[4], h, w}, whole = {v[4], v[3], v[5], v[5]},
                      grouped = {v[8], v[4] / v[8], v[3] / v[8], v[5], v[5]};
    const int grouping = v[8] > 1;
    const dnnl_dims_t stride = {v[6], v[6]}, none = {0, 0}, padding = {v[7], v[7]};
    const dnnl_data_type_t f32[3] = {dnnl_f32, dnnl_f32, dnnl_f32};
    const dnnl_format_tag_t any = dnnl_format_tag_any;
    dnnl_memory_desc_t x, f, y;
    dnnl_primitive_desc_t forward, data, weights;
    if (dnnl_memory_desc_create_with_tag(&x, 4, image, dnnl_f32, any) != dnnl_success ||
        dnnl_memory_desc_create_with_tag(&f, 4 + grouping, grouping ? grouped : whole, dnnl_f32, any) != dnnl_success ||
        dnnl_memory_desc_create_with_tag(&y, 4, result, dnnl_f32, any) != dnnl_success ||
        dnnl_convolution_forward_primitive_desc_create(&forward, engine, dnnl_forward_training, dnnl_convolution_direct,
                                                       x, f, NULL, y, stride, none, padding, padding,
                                                       NULL) != dnnl_success)
        return 0;
    if (strchr(argv[9], 'f') && !add_stage(forward, (const int[]){DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST}, f32))
        return 0;
    if (strchr(argv[9], 'd') &&
        (dnnl_convolution_backward_data_primitive_desc_create(&data, engine, dnnl_convolution_direct, x, f, y, stride,
                                                              none, padding, padding, forward, NULL) != dnnl_success ||
         !add_stage(data, (const int[]){DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC}, f32)))
        return 0;
    return !strchr(argv[9], 'w') ||
           (dnnl_convolution_backward_weights_primitive_desc_create(&weights, engine, dnnl_convolution_direct, x, f,
                                                                    NULL, y, stride, none, padding, padding, forward,
                                                                    NULL) == dnnl_success &&
            add_stage(weights, (const int[]){DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS}, f32));
}

static const char *prepare_primitives(int argc, char **argv) {
    int done;
    chosen = run_stages;
    if (!engine_ready())
        return worker_skip("oneDNN finds no processor to run primitives on");
    if (gemm_parse(&g, argc, argv, "fp32-primitive"))
        done = prepare_matmul(dnnl_f32, dnnl_f32);
    else if (gemm_parse(&g, argc, argv, "bf16"))
        done = prepare_matmul(dnnl_bf16, dnnl_f32);
    else if (gemm_parse(&g, argc, argv, "int8"))
        done = prepare_matmul(dnnl_s8, dnnl_s32);
    else if (argc == 11 && !strcmp(argv[0], "conv"))
        done = prepare_conv(argv + 1);
    else
        return worker_skip("oneDNN has no such work");
    return done ? NULL : worker_skip("oneDNN cannot build the primitive");
}
#endif

static const char *prepare(int argc, char **argv) {
    if (!gemm_parse(&g, argc, argv, "fp32"))
        return prepare_primitives(argc, argv);
    chosen = run_sgemm;
    gemm_fill_f32(&g);
    return NULL;
}

static void run(void) {
    chosen();
}

int main(void) {
    return worker_serve(&(struct worker){prepare, run, finish});
}
