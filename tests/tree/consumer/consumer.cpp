// consumer.cpp - what consumer.c does, in C++17: no designated initialisers, no compound literals.
#include "flexlab/flexlab.h"
#include "flexlab/tensor_blocks.h"
#include <cstdio>
#include <cstring>
#include <memory>

static int failed() {
    std::fprintf(stderr, "%s\n", tensor_error());
    return 1;
}

int main() {
    if (std::strcmp(flexlab_version(), FLEXLAB_VERSION_STRING) != 0)
        return std::fprintf(stderr, "library %s, headers %s\n", flexlab_version(), FLEXLAB_VERSION_STRING), 1;

    using handle = std::unique_ptr<tensor, decltype(&tensor_free)>;
    const std::size_t rows = 2, inner = 3; // sizes of any integer type
    handle x(tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(rows, inner)), tensor_free);
    handle w(tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(inner, 2)), tensor_free);
    handle bias(tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(2)), tensor_free);
    handle y(tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(rows, 2)), tensor_free);
    const float xs[] = {1, 2, 3, 4, 5, 6}, ws[] = {0.5f, 0, 0, 0.25f, 1, 1}, bs[] = {1, -8};
    float out[4];
    tensor_load_f32(x.get(), xs, 6);
    tensor_load_f32(w.get(), ws, 6);
    tensor_load_f32(bias.get(), bs, 2);
    tensor_epilogue with{};
    with.bias = bias.get();
    with.relu = true;
    tensor_stats last;
    if (tensor_matmul_fused(y.get(), x.get(), w.get(), &with) || tensor_store_f32(y.get(), out, 4) ||
        tensor_statistics(y.get(), &last, nullptr))
        return failed();
    std::printf("%g %g %g %g, largest %g\n", double(out[0]), double(out[1]), double(out[2]), double(out[3]),
                last.maximum);

    std::unique_ptr<data_set, decltype(&data_free)> train(data_open("synthetic:train=160", DATA_TRAIN), data_free);
    nn_train_config config{};
    config.network.variant = "flex16+5";
    config.network.batch = 16;
    config.network.seed = 1;
    config.network.momentum = 0.9f;
    config.model = "mlp2";
    config.epochs = 8;
    config.rate = 0.005;
    config.schedule = "constant";
    nn_train_result result;
    if (!train || nn_train(&result, &config, train.get(), nullptr, nullptr))
        return failed();
    std::printf("%d steps, loss %a\n", int(result.steps), result.train_loss);
    nn_train_result_clear(&result);
    return 0;
}
