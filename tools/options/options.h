/* options.h - the options of the commands of flexlab. */
#ifndef FLEXLAB_OPTIONS_H
#define FLEXLAB_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum command {
    COMMAND_COMPARE = 1,
    COMMAND_TRAIN = 2,
    COMMAND_REPORT = 4,
    COMMAND_EVAL = 8,
    COMMAND_WGAN = 16,
    COMMAND_RUN = 32,
    COMMAND_BENCH = 64,
    COMMAND_TRANSPILE = 128,
    COMMAND_DIFF = 256,
    COMMAND_CALIBRATE = 512,
    COMMAND_WHAT_IF = 1024
};
enum { MOST_WORDS = 64 };

/* The values of an option that may be given several times. */
struct word_list {
    int count;
    const char *word[MOST_WORDS];
};

enum { SWITCH_UNSET = -1 };
/* GiB that a step of a stranger's network may take beside its weights, unless the user allows more. */
enum { USUAL_MEMORY = 4 };
enum { MOST_EPOCHS = 100000, MOST_SEEDS = 1000, MOST_RUNS = 50000 }; /* a run is a format with a seed */

/* The options as given; struct experiment has the values that depend on other options. out and device are NULL if they
 * are not given and --resume or the formats may name them. */
struct settings {
    enum command command; /* given to options_parse */
    const char *model, *data, *formats, *schedule, *predictor, *master, *out, *trace_tensors, *device, *resume,
        *checkpoint, *split, *weights, *batchnorm, *group;
    int64_t epochs, batch, shards, seeds, seed_base, train_limit, test_limit, max_steps, average_last, threads,
        trace_every, checkpoint_every, context;  /* context 0: images, or the default for a text */
    double rate, warmup, momentum, weight_decay; /* below zero: by the optimiser */
    const char *optimiser, *decay;
    const char *policy, *layer_format; /* NULL: not given */
    const char *accumulate;            /* the GPU whose accumulators products have; NULL: none */
    const char *operands;              /* block formats of the operands of products; NULL: none */
    char *const *resumed_policies;     /* one for each format as it began, which replaces both; NULL: to be read */
    int resumed_count;
    const char *loss_scale;                                               /* NULL: by the format */
    double beta1, beta2, epsilon, clip_value, clip_norm, label_smoothing; /* 0: the optimiser's, or none */
    int nesterov, narrow_state;
    int64_t gan_steps, latent, filters, critic_steps, samples, sample_every; /* of `wgan` */
    double clip;
    bool data_anew;           /* --data beside --resume */
    int64_t memory;           /* GiB, of `eval`, `what-if` and beside --resume; 0: not given, or no limit */
    char optimiser_text[200]; /* name and options: "adamw beta1=0.95 clip-norm=1" */
    int augment;              /* SWITCH_UNSET: by the data */
    int one_by_one;           /* --one-by-one: formats do not take turns */
    int figures, no_trace, no_checkpoint, step_loss, allow_divergence, stop_on_nonfinite, force, quiet, help;
    const char *telemetry, *shadow; /* as given */
    int64_t telemetry_every;        /* steps between two records; 0: no telemetry */
    const char *telemetry_pattern;
    const char *mean, *deviation, *layout, *calibration; /* of networks as programs: `eval`, `run`, `bench` */
    const char *rounding;                                /* of 8-bit integers */
    int64_t calibration_batches;
    struct word_list inputs, outputs, shapes;
    const char *to, *report, *csv; /* of `transpile` */
    const char *method, *methods;  /* how 8-bit integers are calibrated */
    const char *scales;            /* a file of exponents and scales in place of calibration */
    int per_tensor;                /* they have one scale for all filters of a layer */
    struct word_list rules, excludes, keep_ops;
    int keep_io, all;
    const char *batches, *thread_list;
    const char *network_model, *weight_layout, *image_size; /* of a file of weights as a program */
    double seconds, tolerance;
    const char *of, *sort; /* of `what-if` */
    int64_t batch_count;   /* how many batches it takes */
    char **folders;        /* arguments without dashes: of `report`, `eval`, `run`, `bench`,
                              `transpile`, `what-if` */
    int folder_count;
};

/* Reads argv[1] ... into settings, which then points into argv; returns a STATUS_ code, the message is printed. If
 * settings->help is set, nothing else is checked. */
int options_parse(struct settings *settings, enum command command, int argc, char **argv);
/* The options of `train` or `compare` that a resumed training needs, each once, as words separated by spaces, with %XX
 * for each character that is not plain; to be freed. options_kept_words converts them back to argv, in which argv[0] is
 * the name of the command; argv and its text are one allocation, to be freed with free. It returns NULL if they are no
 * such words. */
char *options_kept(enum command command, int argc, char **argv);
/* Appends a word, which must not be empty, to such words; frees kept. */
char *options_kept_add(char *kept, const char *word);
char **options_kept_words(const char *command, const char *kept, int *argc);
/* Parses stored options of train or compare into settings, which point into *words, to be freed in any case. A STATUS_
 * code after a message, which begins with `of`, their place. */
int options_kept_parse(struct settings *settings, enum command command, const char *kept, const char *of,
                       char ***words);
/* getopt_long accepts an abbreviated name, whose meaning in a script would change with a new option. Returns the word
 * in argv by which the option was found if it was abbreviated, so that it can be refused, or else NULL. */
struct option;
const char *options_shortened(const struct option *found, char *const *argv);
void options_help(enum command command, FILE *out);
/* The peak learning rate if --lr is not given: of a model with its default optimiser, and with the one that was
 * chosen. */
double options_default_rate(const char *model);
double options_rate(const struct settings *settings);
/* Refuses an unknown model before any data is read. */
int options_check_model(const char *model);

const char *options_model_name(int i); /* those that read text come last */
const char *options_variant_name(int i);
const char *options_predictor_name(int i);
/* The kinds with which --data begins. */
const char *options_data_kind(int i);

#endif
