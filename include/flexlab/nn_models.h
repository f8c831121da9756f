/* nn_models.h - whole networks by name. Part of nn.h, whose conventions hold. */
#ifndef FLEXLAB_NN_MODELS_H
#define FLEXLAB_NN_MODELS_H

#include "flexlab/api.h"
#include "flexlab/nn_network.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Builds a whole network for images and returns its logits; -1 for an unknown name, with the known ones in
 * tensor_error(), and for images too small for the model. The models are "mlp2" (two-layer perceptron of Koster et al.,
 * Fig. 3), "cnn6" (six-layer VGG-like), "resnet20", and "resnetD" for D = 6n + 2 (8, 14, 20, 32, 44, 56, 110, ...; He
 * et al. 2015, option A); "resnetD-b" with option B, "resnetD-bottleneck" for D = 9n + 2, "wrnD-K" for D = 6n + 4 (wide
 * residual networks, Zagoruyko and Komodakis 2016), "mlpLxW" (L linear layers, hidden ones of W units with relu,
 * weights uniform within 1/sqrt(inputs)), "lenet", "alexnet", "vgg11", "vgg16", "mobilenet". docs/models.md has their
 * sources, sizes and the differences from them. */
FLEXLAB_API nn_node nn_model(nn_graph *g, const char *model, int height, int width, int channels, int classes);
/* The number of names that nn_model lists, and the i-th; NULL past the last. */
FLEXLAB_API int nn_model_count(void);
FLEXLAB_API const char *nn_model_at(int i);
/* Builds a whole network for text: from tokens [batch, length] of a vocabulary to the logits of the token that follows
 * each. "gptLxW": a transformer after GPT-2, with L blocks (1 to 48) of width W (a multiple of 32 up to 2048) and heads
 * 32 wide; "gpt" is gpt6x192, 2.8 million parameters with a vocabulary of 256 and a length of 128. "lstm-char",
 * "gru-char": an embedding of width 64, one recurrent layer of 256 units, a linear layer; 0.35 and 0.27 million
 * parameters with a vocabulary of 65. */
FLEXLAB_API nn_node nn_model_text(nn_graph *g, const char *model, int length, int vocabulary);
/* The number of models for text, and the name of the i-th; NULL past the last. */
FLEXLAB_API int nn_text_model_count(void);
FLEXLAB_API const char *nn_text_model_at(int i);
/* Whether the name is that of a model for text (nn_model_text), not for images (nn_model); false for NULL. */
FLEXLAB_API bool nn_model_reads_text(const char *model);

#ifdef __cplusplus
}
#endif
#endif
