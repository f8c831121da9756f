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
    int filters;            /* of the widest images; deeper ones have two and four times as many; 0: 32 */
    int critic_steps;       /* for each of the generator; 0: 5 */
    float rate;             /* 0: 5e-5 */
    float clip;             /* the critic's weights lie within +-clip; 0: 0.01 */
    const char *loss_scale; /* of each network's loss, with a scaler each: see nn_config */
    /* See nn_config. Of both networks: each rule is to match in one of them. Where a policy says more than a variant,
     * variant may be NULL. */
    const char *policy, *layer_formats;
    bool no_master; /* weights without wide copies, as nn_config has it */
};

struct wgan;
/* NULL on failure: failure_message(). */
struct wgan *wgan_new(const struct wgan_config *config);
/* NULL is allowed. */
void wgan_free(struct wgan *w);
/* The two networks, for traces and statistics; they belong to w. nn_steps tells how far they are. */
nn_graph *wgan_generator(const struct wgan *w);
nn_graph *wgan_critic(const struct wgan *w);
/* One step of the critic on `batch` real images [batch, side, side, channels] in -1 ... 1. estimate (NULL: not wanted):
 * of the distance before the step, the mean score of the real images less that of the generated ones. */
tensor_status wgan_train_critic(double *estimate, struct wgan *w, const float *images);
/* One step of the generator. loss (NULL: not wanted): the negative mean score of what it generated. */
tensor_status wgan_train_generator(double *loss, struct wgan *w);

struct wgan_report {
    int64_t step;          /* of the generator, from 1 */
    double estimate, loss; /* the mean over the critic's steps before it; the generator's */
};
/* critic_steps and one of the generator, again and again, until the generator has made `steps` in all: from where w
 * stands. report may be NULL; a non-zero return stops. Same config and data, same bits, in one go or with saves
 * between. */
tensor_status wgan_train(struct wgan *w, const data_set *set, int64_t steps,
                         int (*report)(void *context, const struct wgan_report *report), void *context);
struct wgan_nonfinite {
    nn_nonfinite of;
    const char *network; /* "critic" or "generator" */
};
/* The first NaN or Inf of either network, also of the steps before wgan_load; NULL: none. A
 * step of the generator goes through the critic, whose tensors count with the generator's step then; for a step of the
 * critic the generator goes forward, which counts with the step that the generator makes next. Gradients of steps
 * that a dynamic loss scale left out do not count, unless NN_STARVED of these came in a row. It stays as long as w. */
const struct wgan_nonfinite *wgan_nonfinite(const struct wgan *w);
/* count <= batch images [count, side, side, channels] in -1 ... 1, from the latent numbers of that seed. Leaves
 * the state of the pair as it was, so that the same weights give the same images, and training goes on as without. */
tensor_status wgan_generate(float *images, struct wgan *w, uint64_t seed, int count);
/* Both networks in PREFIX.critic.safetensors and PREFIX.generator.safetensors (nn_checkpoint_save), and from there, of
 * the same step and trained with the same critic_steps, rate and clip: training goes on with the same bits, and
 * wgan_train refuses other images than those that it was given before (TENSOR_E_DATA). Each file is written whole or
 * not at all, the two of them one after the other: where a pair must never be lost, a prefix of its own for each save.
 */
tensor_status wgan_save(const struct wgan *w, const char *prefix);
tensor_status wgan_load(struct wgan *w, const char *prefix);

#endif
