/* wgan_pair.h - a generator of images and its critic, on the public functions of the library. Failures are those of
 * failure.h. */
#ifndef FLEXLAB_WGAN_PAIR_H
#define FLEXLAB_WGAN_PAIR_H

#include "flexlab/nn.h"

/* Wasserstein GAN with weight clipping (Arjovsky et al. 2017, algorithm 1), on networks after DCGAN (Radford et al.
 * 2016): docs/training.md. Images are square, their side a multiple of 8 up to 256. */
struct wgan_config {
    const char *variant;   /* of both networks: see nn_variant */
    const char *predictor; /* see nn_config */
    const char *device;
    uint64_t seed; /* initial weights, latent numbers, order of the images */
    int batch;     /* real images, and as many generated ones, a step */
    int side, channels;
    int latent;             /* numbers that an image is generated from; 0: 64 */
    int filters;            /* of the critic's first layer; deeper ones have two and four times as many; 0: 32 */
    int critic_steps;       /* for each of the generator; 0: 5 */
    float rate;             /* 0: 5e-5 */
    float clip;             /* the critic's weights lie within +-clip; 0: 0.01 */
    const char *loss_scale; /* of each network's loss, with a scaler each: see nn_config */
    /* See nn_config. For both networks: each rule must match in one of them. If a policy has more than a variant,
     * variant may be NULL. */
    const char *policy, *layer_formats;
    bool no_master; /* weights without wide copies, as nn_config has it */
};

struct wgan;
/* Returns NULL on failure: failure_message(). */
struct wgan *wgan_new(const struct wgan_config *config);
/* NULL is allowed. */
void wgan_free(struct wgan *w);
/* The two networks, for traces and statistics; they belong to w. nn_steps gives their numbers of steps. */
nn_graph *wgan_generator(const struct wgan *w);
nn_graph *wgan_critic(const struct wgan *w);
/* Makes one step of the critic on `batch` real images [batch, side, side, channels] in -1 ... 1. estimate (NULL: not
 * wanted): of the distance before the step, the mean score of the real images less that of the generated ones. */
tensor_status wgan_train_critic(double *estimate, struct wgan *w, const float *images);
/* Makes one step of the generator. loss (NULL: not wanted): the negative mean score of the images that it generated. */
tensor_status wgan_train_generator(double *loss, struct wgan *w);

struct wgan_report {
    int64_t step;          /* of the generator, from 1 */
    double estimate, loss; /* the mean over the critic's steps before it; the generator's */
};
/* Alternates critic_steps of the critic and one of the generator, from the state of w on, until the generator has made
 * `steps` in all. report may be NULL; a non-zero return stops. The same config and data give the same bits, also with
 * saves between. */
tensor_status wgan_train(struct wgan *w, const data_set *set, int64_t steps,
                         int (*report)(void *context, const struct wgan_report *report), void *context);
struct wgan_nonfinite {
    nn_nonfinite of;
    const char *network; /* "critic" or "generator" */
};
/* The first NaN or Inf of either network, also of the steps before wgan_load; NULL: none. In a step of the generator,
 * the tensors of the critic count with the generator's step; in a step of the critic, the forward pass of the generator
 * counts with the step that the generator makes next. Gradients of steps that a dynamic loss scale left out do not
 * count, unless NN_STARVED of these were consecutive. It lives as long as w. */
const struct wgan_nonfinite *wgan_nonfinite(const struct wgan *w);
/* Generates count <= batch images [count, side, side, channels] in -1 ... 1, from the latent numbers of that seed. The
 * state of the pair remains as it was, so that the same weights give the same images, and training is not affected. */
tensor_status wgan_generate(float *images, struct wgan *w, uint64_t seed, int count);
/* Save both networks in PREFIX.critic.safetensors and PREFIX.generator.safetensors (nn_checkpoint_save), and load them;
 * the files must be of the same step and trained with the same critic_steps, rate and clip. Training then continues
 * with the same bits, and wgan_train refuses other images than those that it was given before (TENSOR_E_DATA). Both
 * files are complete, as NAME.part, before the first takes its name: unless the program ends between two names, both
 * are of one save. */
tensor_status wgan_save(const struct wgan *w, const char *prefix);
tensor_status wgan_load(struct wgan *w, const char *prefix);

#endif
