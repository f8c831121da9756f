/* options.h - what the commands of flexlab can be asked for. */
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
    COMMAND_BENCH = 64
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
enum { MOST_EPOCHS = 100000, MOST_SEEDS = 1000, MOST_RUNS = 50000 }; /* of a run: a format with a seed */

/* As given; the resolved values of what depends on other options are in struct experiment. out and device are NULL
 * where they are not given, and --resume or the formats may say. */
struct settings {
    enum command command; /* of options_parse */
    const char *model, *data, *formats, *schedule, *predictor, *master, *out, *trace_tensors, *device, *resume,
        *checkpoint, *split, *weights;
    int64_t epochs, batch, seeds, seed_base, train_limit, test_limit, max_steps, average_last, threads, trace_every,
        checkpoint_every, context;               /* context 0: of images; of a text it is resolved */
    double rate, warmup, momentum, weight_decay; /* momentum, weight decay below zero: by the optimiser */
    const char *optimiser, *decay;
    const char *policy, *layer_format; /* NULL: not given */
    char *const *resumed_policies; /* of each format, as they were begun with, in the place of both; NULL: to be read */
    int resumed_count;
    const char *loss_scale;                                               /* NULL: by the format */
    double beta1, beta2, epsilon, clip_value, clip_norm, label_smoothing; /* 0: by the optimiser; none */
    int nesterov, narrow_state;
    int64_t gan_steps, latent, filters, critic_steps, samples, sample_every; /* of `wgan` */
    double clip;
    bool data_anew;           /* --data beside --resume */
    int64_t memory;           /* GiB, of `eval` and beside --resume; 0: not given, or no limit */
    char optimiser_text[200]; /* name and options: "adamw beta1=0.95 clip-norm=1" */
    int augment;              /* SWITCH_UNSET: by the data */
    int one_by_one;           /* no turns */
    int no_trace, no_checkpoint, step_loss, allow_divergence, stop_on_nonfinite, force, quiet, help;
    const char *telemetry, *shadow; /* as given */
    int64_t telemetry_every;        /* of telemetry; 0: none */
    const char *telemetry_pattern;
    const char *mean, *deviation, *layout, *calibration; /* of networks as programs: `eval`, `run`, `bench` */
    int64_t calibration_batches;
    struct word_list inputs, outputs, shapes;
    const char *batches, *thread_list;
    double seconds;
    char **folders; /* arguments without dashes: of `report`, `eval`, `run`, `bench` */
    int folder_count;
};

/* Reads argv[1] ... into settings, which then points into argv; a STATUS_ code, the message is printed. With
 * settings->help only that is set. */
int options_parse(struct settings *settings, enum command command, int argc, char **argv);
/* The options of `train` or `compare` that what goes on takes from what was begun, each once, as words separated by
 * spaces, each with %XX for what is no plain character; to be freed. options_kept_words gives them back as argv,
 * argv[0] the name of the command; what it returns is freed with free, and holds argv and its text. NULL where they are
 * no such words. */
char *options_kept(enum command command, int argc, char **argv);
/* One more word, not empty, behind such words; frees kept. */
char *options_kept_add(char *kept, const char *word);
char **options_kept_words(const char *command, const char *kept, int *argc);
/* getopt_long takes the beginning of a name for the name, and what a script says would change with every new option:
 * the word that it took so for the option found, as it stands in argv, to be refused; NULL: the name was whole. */
struct option;
const char *options_shortened(const struct option *found, char *const *argv);
void options_help(enum command command, FILE *out);
/* The peak learning rate of a model by its default optimiser, and by the one that was chosen, when --lr is not given.
 */
double options_default_rate(const char *model);
double options_rate(const struct settings *settings);
/* Refuses an unknown model before any data is read. */
int options_check_model(const char *model);

const char *options_model_name(int i); /* those that read text come last */
const char *options_variant_name(int i);
const char *options_predictor_name(int i);
/* What --data begins with. */
const char *options_data_kind(int i);

#endif
