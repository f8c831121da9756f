/* options_table.c - the options of the commands: one table for parsing, limits and help, and the names that it knows.
 */
#include "options/options_table.h"
#include "flexlab/autoflex.h"
#include "flexlab/nn.h"
#include <limits.h>
#include <string.h>

enum { BOTH = COMMAND_COMPARE | COMMAND_TRAIN, ALL = BOTH | COMMAND_REPORT };

const char *options_model_name(int i) {
    int images = 0;
    while (nn_model_at(images))
        images++;
    return i < images ? nn_model_at(i) : nn_text_model_at(i - images);
}

const char *options_variant_name(int i) {
    const nn_variant *variant = nn_variant_at(i);
    return variant ? variant->name : NULL;
}

const char *options_predictor_name(int i) {
    return autoflex_name(autoflex_at(i));
}

const char *options_data_kind(int i) {
    static const char *const kinds[] = {"synthetic", "cifar10", "cifar100", "idx", "npy", "npz", "images", "text"};
    return i < (int)(sizeof kinds / sizeof *kinds) ? kinds[i] : NULL;
}

static const char *schedule_name(int i) {
    static const char *const names[] = {"linear", "cosine", "step", "constant", "linear:END", "cosine:END"};
    return i < (int)(sizeof names / sizeof *names) ? names[i] : NULL;
}

static const char *split_name(int i) {
    static const char *const names[] = {"test", "train"};
    return i < (int)(sizeof names / sizeof *names) ? names[i] : NULL;
}

static const char *sort_name(int i) {
    static const char *const names[] = {"error", "name", "role"};
    return i < (int)(sizeof names / sizeof *names) ? names[i] : NULL;
}

static const char *layout_name(int i) {
    static const char *const names[] = {"nchw", "nhwc"};
    return i < (int)(sizeof names / sizeof *names) ? names[i] : NULL;
}

static const char *weight_layout_name(int i) {
    static const char *const names[] = {"oihw", "ohwi"};
    return i < (int)(sizeof names / sizeof *names) ? names[i] : NULL;
}

static const char *master_name(int i) {
    static const char *const names[] = {"default", "none"};
    return i < (int)(sizeof names / sizeof *names) ? names[i] : NULL;
}

static const char *batchnorm_name(int i) {
    static const char *const names[] = {"shard", "global"};
    return i < (int)(sizeof names / sizeof *names) ? names[i] : NULL;
}

static const char *group_name(int i) {
    static const char *const names[] = {"mpi", "nccl"};
    return i < (int)(sizeof names / sizeof *names) ? names[i] : NULL;
}

static const char *decay_name(int i) {
    static const char *const names[] = {"all", "weights"};
    return i < (int)(sizeof names / sizeof *names) ? names[i] : NULL;
}

#define WHAT_IF_FORMATS "flex16+5,flex12+5,flex8+5,dfp8,fp16,bf16,\ne4m3fn,mx:int8,mx:e4m3fn,nvfp4"
#define ROUNDING_HELP                                                                                                  \
    "of results of 8-bit integers: exact, onnx, tflite, tflite-ruy,\ntflite-xnnpack (that of the file's own runtime)"

#define METHOD_HELP "the range that int8 covers: minmax, percentile:P, mse or\nentropy (int8: minmax; int8:tensor: mse)"
#define SCALES_HELP                                                                                                    \
    "exponents and scales in place of calibration, as 'flexlab calibrate --out'\nwrites them; the file may be edited"

static const struct option_row rows[] = {
#define FIELD(name) offsetof(struct settings, name)
    {"model", "NAME", BOTH, KIND_TEXT, FIELD(model), .section = "What is trained",
     .help =
         "mlp2, cnn6, resnet20 or resnetD with D = 6n + 2, vgg11, mobilenet, ...; of texts\ngpt, gptLxW with L layers "
         "of width W ('flexlab info models'; cnn6)"},
    {"data", "SPEC", BOTH | GOING_ON | KEPT, KIND_TEXT, FIELD(data),
     .help =
         "synthetic[:train=N][,test=N][,seed=S] (generated images, nothing to\nfetch; the default), cifar10:DIR, "
         "cifar100:DIR[,labels=fine|coarse],\nidx:DIR, npy:IMAGES,LABELS,TEST_IMAGES,TEST_LABELS, "
         "npz:FILE[,TEST_FILE],\nor images:DIR[,resize=HxW][,channels=N] with PNG and JPEG files\nDIR/train/CLASS/... "
         "and DIR/test/CLASS/...; text:FILE[,TEST_FILE]\n[,unit=bytes|characters][,test=PERCENT]; see 'flexlab info "
         "data'"},
    {"context", "N", BOTH, KIND_WHOLE, FIELD(context), 1, 65536, .help = "tokens of a sequence, for texts only (128)"},
    {"formats", "LIST", COMMAND_COMPARE, KIND_TEXT, FIELD(formats),
     .help =
         "comma-separated policies (fp32,fp16,bf16,flex16+5,dfp16): a name (fp16,\nflex16+5-sr, O1, O2:bf16, ...: "
         "'flexlab info policies'), a file, or last\na text of rules with ';' (docs/policies.md). Behind a variant "
         "':nomaster'\nleaves out the wide copy of the weights, ':ngraph', ... chooses the\nexponent predictor, behind "
         "any name ':noscale' leaves out the loss scaling\nand '@DEVICE' chooses where it trains: "
         "fp32,fp16:noscale,O2,flex16+5@cuda.\npolicy:NAME is a preset where a variant has its name (policy:dfp16)"},
    {"format", "POLICY", COMMAND_TRAIN, KIND_TEXT, FIELD(formats),
     .help = "a name, a file or a text of rules, with suffixes as for compare\n(flex16+5); beside --policy the variant "
             "that its rules begin from"},
    {"policy", "LIST", COMMAND_COMPARE, KIND_TEXT, FIELD(policy),
     .help = "more policies, behind those of --formats: another spelling of\n'policy:' before each"},
    {"policy", "NAME|FILE", COMMAND_TRAIN, KIND_TEXT, FIELD(policy),
     .help = "another spelling of --format 'policy:NAME'; beside --format, rules that\nbegin from its variant"},
    {"layer-format", "RULES", BOTH, KIND_TEXT, FIELD(layer_format),
     .help = "lines behind those of each policy, as comma-separated PATTERN=VARIANT:\n'fc*=bf16,@norm=fp32' for "
             "'fc* format=bf16; @norm format=fp32;'"},
    {"weights", "FILE", BOTH, KIND_TEXT, FIELD(weights),
     .help =
         "initial weights of all formats and seeds: a network that 'flexlab train'\nhas written, of the same model in "
         "any format, or weights of another\nprogram by their names (docs/checkpoints.md)"},
    {"train-limit", "N", BOTH, KIND_WHOLE, FIELD(train_limit), 1, INT_MAX,
     .help = "use only the first N training images, or tokens"},
    {"test-limit", "N", BOTH, KIND_WHOLE, FIELD(test_limit), 1, INT_MAX,
     .help = "use only the first N test images, or tokens"},

    {"epochs", "N", BOTH, KIND_WHOLE, FIELD(epochs), 1, MOST_EPOCHS, .section = "How it is trained",
     .help = "passes over the training set (10)"},
    {"batch", "B", BOTH, KIND_WHOLE, FIELD(batch), 1, 65536, .help = "images a step (128), or sequences (32)"},
    {"shards", "S", BOTH | GOING_ON | KEPT, KIND_WHOLE, FIELD(shards), 1, 1024,
     .help = "compute the batch in S parts, one after the other in the memory of\none, and add their gradients "
             "(1); S divides B"},
    {"batchnorm", "OF", BOTH | GOING_ON | KEPT, KIND_NAME, FIELD(batchnorm), .names = batchnorm_name,
     .help = "moments of batch normalisation: shard, of each shard (default), or\nglobal, of the whole batch, with "
             "the activations of all shards in memory"},
    {"seeds", "S", BOTH, KIND_WHOLE, FIELD(seeds), 1, MOST_SEEDS,
     .help = "runs of each format, with seeds 1 ... S (1); runs with one seed\nshare initial weights, batches and "
             "augmentation"},
    {"seed-base", "K", BOTH, KIND_WHOLE, FIELD(seed_base), 0, 1e15, .help = "the first seed (1)"},
    {"lr", "RATE", BOTH, KIND_REAL, FIELD(rate), 1e-30, 1000,
     .help = "peak learning rate (sgd 0.1, on mlp2, mlpLxW, lenet, alexnet 0.01;\nadagrad, lamb 0.01; others 0.001)"},
    {"schedule", "NAME", BOTH, KIND_NAME, FIELD(schedule), 0, 1, .names = schedule_name,
     .help = "linear (to zero; default), cosine, step (x 0.1 at 1/2 and 3/4),\nconstant; linear:END, cosine:END end at "
             "that share of the peak"},
    {"warmup", "EPOCHS", BOTH, KIND_REAL, FIELD(warmup), 0, MOST_EPOCHS,
     .help = "linear warm-up from zero, may be a fraction (0)"},
    {"optimizer", "NAME", BOTH, KIND_NAME, FIELD(optimiser), .names = nn_optimiser_at,
     .help = "sgd (default; on texts adamw), adam, adamw, rmsprop, adagrad, lamb"},
    {"momentum", "M", BOTH, KIND_REAL, FIELD(momentum), 0, 0.999999, .help = "momentum of sgd (0.9) and rmsprop (0)"},
    {"nesterov", NULL, BOTH, KIND_SWITCH, FIELD(nesterov), .value = 1, .help = "sgd with Nesterov's momentum"},
    {"beta1", "B", BOTH, KIND_REAL, FIELD(beta1), 1e-9, 0.9999999,
     .help = "decay of the mean gradient: adam, adamw, lamb (0.9)"},
    {"beta2", "B", BOTH, KIND_REAL, FIELD(beta2), 1e-9, 0.9999999,
     .help = "decay of the mean square: adam, adamw, lamb (0.999), rmsprop (0.99)"},
    {"epsilon", "E", BOTH, KIND_REAL, FIELD(epsilon), 1e-30, 1,
     .help = "added to the root of the mean square (1e-8; lamb 1e-6, adagrad 1e-10)"},
    {"weight-decay", "W", BOTH, KIND_REAL, FIELD(weight_decay), 0, 1,
     .help = "of sgd an L2 penalty (1e-4), of adamw and lamb apart from the\ngradient (0.01), of the others an L2 "
             "penalty (0)"},
    {"decay", "WHAT", BOTH, KIND_NAME, FIELD(decay), .names = decay_name,
     .help = "what decays: all, or weights without biases and normalisations\n(adamw, lamb: weights; others: all)"},
    {"clip-value", "C", BOTH, KIND_REAL, FIELD(clip_value), 1e-30, 1e30,
     .help = "each element of a gradient counts as at most C (as it is)"},
    {"clip-norm", "C", BOTH, KIND_REAL, FIELD(clip_norm), 1e-30, 1e30,
     .help = "all gradients together are scaled down to the norm C (as they are)"},
    {"accumulate", "GPU", BOTH, KIND_TEXT, FIELD(accumulate),
     .help = "products of floats as the tensor cores of that GPU sum them: v100, a100,\na2, ada, l40s, h100, h200, "
             "b200, with :promote=N for a binary32 sum of each\nN products; a line of every policy (exact products)"},
    {"operands", "BLOCKS", BOTH, KIND_TEXT, FIELD(operands),
     .help =
         "all products with operands in blocks of mx:int8, mx:e4m3fn:rceil, nvfp4,\nhbfp:int8/64, ... ('flexlab info "
         "formats'); a line of every policy (none)"},
    {"loss-scale", "SCALE", BOTH, KIND_TEXT, FIELD(loss_scale),
     .help =
         "none; dynamic, which halves and skips the step where gradients overflow\nand doubles after a window of "
         "good steps; a power of two such as 1024;\ndynamic:init=65536,window=2000,factor=2,min=0.03125,max=16777216 "
         "with\nany of these (fp16: dynamic, other formats: none; a policy: what it says,\nelse as the variant that it "
         "begins from)"},
    {"narrow-state", NULL, BOTH, KIND_SWITCH, FIELD(narrow_state), .value = 1,
     .help = "16-bit optimiser state by stochastic rounding; shared exponents"},
    {"label-smoothing", "S", BOTH, KIND_REAL, FIELD(label_smoothing), 0, 1,
     .help = "this share of a label counts for all classes equally (0)"},
    {"augment", NULL, BOTH, KIND_SWITCH, FIELD(augment), .value = 1,
     .help = "random crops and flips, of texts where the sequences of an epoch\nbegin; the same for every format "
             "(default for cifar10, cifar100, text)"},
    {"no-augment", NULL, BOTH, KIND_SWITCH, FIELD(augment), .value = 0,
     .help = "images as they are (default for all other data)"},
    {"master", "KIND", BOTH, KIND_NAME, FIELD(master), .names = master_name,
     .help = "default: as the variant says; none: no format keeps a wide copy\nof its weights (':nomaster' on each)"},
    {"predictor", "NAME", BOTH, KIND_NAME, FIELD(predictor), .names = options_predictor_name,
     .help = "exponent predictor of all shared-exponent formats (their own)"},
    {"max-steps", "N", BOTH, KIND_WHOLE, FIELD(max_steps), 1, INT_MAX,
     .help = "stop each run after N steps; the schedule still spans all epochs"},
    {"device", "NAME", BOTH | GOING_ON | KEPT, KIND_TEXT, FIELD(device),
     .help = "where all formats train that name no device: cpu, cuda, cuda:1, ...\n(cpu); results do not depend on it"},
    {"group", "ENGINE", BOTH | GOING_ON, KIND_NAME, FIELD(group), .names = group_name,
     .help = "what moves bytes between ranks that mpirun has started: mpi, or nccl\nbetween GPUs, a GPU for each rank "
             "(mpi); results do not depend on it"},
    {"threads", "T", BOTH | GOING_ON, KIND_WHOLE, FIELD(threads), 1, 256,
     .help = "threads (all); results do not depend on it"},

    {"one-by-one", NULL, COMMAND_COMPARE, KIND_SWITCH, FIELD(one_by_one), .value = 1,
     .help = "train one format after the other, instead of all formats of a seed in\nturns of half a second: less "
             "memory, and times of steps that compare less"},

    {"checkpoint-every", "N", BOTH | GOING_ON | KEPT, KIND_WHOLE, FIELD(checkpoint_every), 1, INT_MAX,
     .section = "Checkpoints",
     .help =
         "steps between the checkpoints of a run, from which a run that was\nstopped or killed resumes (one after each "
         "epoch)"},
    {"no-checkpoint", NULL, COMMAND_TRAIN | GOING_ON, KIND_SWITCH, FIELD(no_checkpoint), .value = 1,
     .help = "store no checkpoints, and no networks with the results"},
    {"no-checkpoint", NULL, COMMAND_COMPARE | GOING_ON, KIND_SWITCH, FIELD(no_checkpoint), .value = 1,
     .help = "store no checkpoints"},
    {"resume", "DIR", COMMAND_COMPARE | GOING_ON, KIND_TEXT, FIELD(resume),
     .help = "resume the comparison whose results go to the folder DIR, with the\n"
             "options that it began with; --device, --group, --threads, --quiet,\n"
             "--checkpoint-every, --allow-divergence and --stop-on-nonfinite may be\n"
             "given anew"},
    {"resume", "PATH", COMMAND_TRAIN | GOING_ON, KIND_TEXT, FIELD(resume),
     .help = "resume the training whose results go to the folder PATH, or from\n"
             "the file PATH (resume.safetensors), with the options that it began\n"
             "with; --out (PATH), --device, --group, --threads, --force, --quiet,\n"
             "--checkpoint-every, --allow-divergence and --stop-on-nonfinite may be\n"
             "given anew, and --data, where the same images or text lie elsewhere by\n"
             "now: it is needed where the file is not in the folder of results of a\n"
             "training of yours"},

    {"out", "DIR", BOTH | GOING_ON, KIND_TEXT, FIELD(out), .section = "What is written",
     .help = "folder of the results, made if missing (flexlab-results)"},
    {"out", "DIR", COMMAND_REPORT, KIND_TEXT, FIELD(out), .section = "What is written",
     .help = "folder of the report, made if missing (in place)"},
    {"force", NULL, ALL | GOING_ON, KIND_SWITCH, FIELD(force), .value = 1,
     .help = "replace results that are already there"},
    {"figures", NULL, BOTH, KIND_SWITCH, FIELD(figures), .value = 1,
     .help = "also draw loss, accuracy and exponents for print, by gnuplot, as\nfigure-*.svg and .png; 'flexlab report "
             "DIR --figures' does so later"},
    {"figures", NULL, COMMAND_REPORT, KIND_SWITCH, FIELD(figures), .value = 1,
     .help =
         "also draw loss, accuracy and exponents for print, by gnuplot, as\nfigure-*.svg and .png; those that DIR has "
         "are always drawn anew"},
    {"average-last", "N", BOTH, KIND_WHOLE, FIELD(average_last), 1, INT_MAX,
     .help = "steps averaged for the last loss (100)"},
    {"trace-every", "K", BOTH, KIND_WHOLE, FIELD(trace_every), 1, INT_MAX,
     .help = "steps between rows of the exponent traces\n(so that a run has about 500)"},
    {"trace-tensors", "GLOBS", ALL, KIND_TEXT, FIELD(trace_tensors),
     .help = "tensors that figures of exponents begin with, comma-separated patterns such\nas 'conv1*,*.weight' (one "
             "of each role)"},
    {"telemetry", "EVERY[:GLOBS]", BOTH, KIND_TEXT, FIELD(telemetry),
     .help = "every EVERY steps all about the elements of every tensor, or of those\nwhose names match, such as "
             "'10:conv1*,*.weight' (docs/output.md)"},
    {"shadow", "LIST", BOTH, KIND_TEXT, FIELD(shadow),
     .help = "beside it what other formats would have done to the same values,\nsuch as fp16,flex16+5:ngraph; every "
             "10 steps without --telemetry"},
    {"step-loss", NULL, BOTH, KIND_SWITCH, FIELD(step_loss), .value = 1,
     .help = "also write the loss of every step to metrics.jsonl"},
    {"no-trace", NULL, BOTH, KIND_SWITCH, FIELD(no_trace), .value = 1, .help = "write no exponent traces"},
    {"no-trace", NULL, COMMAND_REPORT, KIND_SWITCH, FIELD(no_trace), .value = 1,
     .help = "read no exponent traces and leave out their figure"},
    {"allow-divergence", NULL, BOTH | GOING_ON | KEPT, KIND_SWITCH, FIELD(allow_divergence), .value = 1,
     .help = "a run that diverges is not a failure (it is named nevertheless)"},
    {"stop-on-nonfinite", NULL, BOTH | GOING_ON | KEPT, KIND_SWITCH, FIELD(stop_on_nonfinite), .value = 1,
     .help = "a run stops after the step with its first NaN or Inf, as after Ctrl-C;\nthe others go on, and the exit "
             "status is 1"},
    {"memory", "GIB", BOTH | GOING_ON, KIND_WHOLE, FIELD(memory), 1, 1 << 20,
     .help =
         "with --resume: what a step may take beside the weights; of results that\nare not yours the batch may be any "
         "(4; of your own no limit)"},
    {"quiet", NULL, BOTH | GOING_ON, KIND_SWITCH, FIELD(quiet), .value = 1,
     .help = "no progress, only the table at the end"},
    {"quiet", NULL, COMMAND_REPORT, KIND_SWITCH, FIELD(quiet), .value = 1, .help = "no table"},

    {"checkpoint", "FILE", COMMAND_EVAL, KIND_TEXT, FIELD(checkpoint), .section = "What is evaluated",
     .help = "in the place of FILE: a network that 'flexlab train' has written: best.safetensors,\nlast.safetensors, "
             "resume.safetensors"},
    {"formats", "LIST", COMMAND_EVAL, KIND_TEXT, FIELD(formats),
     .help = "with FILE: comma-separated formats (fp32,fp16,bf16,flex16+5,dfp16), int8\nand int8:tensor among them; "
             "fp32, to which the others are compared,\nalways runs"},
    {"data", "SPEC", COMMAND_EVAL, KIND_TEXT, FIELD(data),
     .help = "data of any kind that 'flexlab train' takes, see 'flexlab info data'\n(synthetic)"},
    {"split", "NAME", COMMAND_EVAL, KIND_NAME, FIELD(split), .names = split_name,
     .help = "test or train: which part of it (test)"},
    {"test-limit", "N", COMMAND_EVAL, KIND_WHOLE, FIELD(test_limit), 1, INT_MAX,
     .help = "use only the first N of them"},
    {"mean", "LIST", COMMAND_EVAL, KIND_TEXT, FIELD(mean),
     .help = "with FILE: what is subtracted from pixels / 255, a number for each\nchannel or one for all: "
             "0.485,0.456,0.406"},
    {"std", "LIST", COMMAND_EVAL, KIND_TEXT, FIELD(deviation),
     .help = "with FILE: what divides them then; --mean 0 --std 0.00392156862745098\ngives a network pixels of 0 to "
             "255"},
    {"layout", "NAME", COMMAND_EVAL, KIND_NAME, FIELD(layout), .names = layout_name,
     .help = "with FILE: nchw or nhwc (as the shape of the input says)"},
    {"rounding", "NAME", COMMAND_EVAL, KIND_TEXT, FIELD(rounding), .help = ROUNDING_HELP},
    {"batch", "B", COMMAND_EVAL, KIND_WHOLE, FIELD(batch), 1, 65536,
     .help = "with FILE: images at a time (64, or as many as the network states);\nresults do not depend on it"},
    {"calibrate", "SPEC", COMMAND_EVAL, KIND_TEXT, FIELD(calibration),
     .help = "with FILE: data whose training part fixes shared exponents (the\nevaluated images)"},
    {"calibrate-batches", "N", COMMAND_EVAL, KIND_WHOLE, FIELD(calibration_batches), 1, INT_MAX,
     .help = "with FILE: how many batches of them (10)"},
    {"method", "NAME", COMMAND_EVAL, KIND_TEXT, FIELD(method), .help = "with FILE: " METHOD_HELP},
    {"scales", "FILE", COMMAND_EVAL, KIND_TEXT, FIELD(scales), .help = SCALES_HELP},
    {"memory", "GIB", COMMAND_EVAL, KIND_WHOLE, FIELD(memory), 1, 1 << 20,
     .help = "what the batch that the file names may take: a file may name any (4)"},
    {"device", "NAME", COMMAND_EVAL, KIND_TEXT, FIELD(device), .help = "where: cpu, cuda, cuda:1, ... (cpu)"},
    {"threads", "T", COMMAND_EVAL, KIND_WHOLE, FIELD(threads), 1, 256, .help = "threads (all)"},
    {"model", "NAME", COMMAND_EVAL | COMMAND_RUN | COMMAND_BENCH | COMMAND_TRANSPILE | COMMAND_DIFF | COMMAND_CALIBRATE,
     KIND_TEXT, FIELD(network_model), .section = "Weights of a model, as FILE",
     .help =
         "FILE is a state dict of PyTorch, or other weights, of this model\n('flexlab info models'), as safetensors"},
    {"weight-layout", "NAME",
     COMMAND_EVAL | COMMAND_RUN | COMMAND_BENCH | COMMAND_TRANSPILE | COMMAND_DIFF | COMMAND_CALIBRATE, KIND_NAME,
     FIELD(weight_layout), .names = weight_layout_name,
     .help =
         "oihw: filters are [out, in, height, width], matrices [out, in], as in\nPyTorch; ohwi: [out, height, width, "
         "in], [in, out] (what names and metadata\nof FILE say)"},
    {"image", "HxW", COMMAND_EVAL | COMMAND_RUN | COMMAND_BENCH | COMMAND_TRANSPILE | COMMAND_DIFF | COMMAND_CALIBRATE,
     KIND_TEXT, FIELD(image_size), .help = "the images of the model (32x32); of a text its length, as a number (128)"},
    {"input", "[NAME=]FILE", COMMAND_RUN, KIND_LIST, FIELD(inputs), .section = "What runs",
     .help = "numbers of the input NAME, or of the next one without a name, from a file\n.npy; an archive .npz gives "
             "all inputs, by the names of its members.\nMay be given several times"},
    {"format", "NAME", COMMAND_RUN, KIND_TEXT, FIELD(formats),
     .help = "in which the network computes: fp32, fp16, bf16, flex16+5, dfp16 (as the\nfile says: fp32 but for "
             "programs of "
             "flexlab); shared exponents are fixed by\nthese inputs"},
    {"rounding", "NAME", COMMAND_RUN, KIND_TEXT, FIELD(rounding), .help = ROUNDING_HELP},
    {"threads", "T", COMMAND_RUN, KIND_WHOLE, FIELD(threads), 1, 256,
     .help = "threads (all); results do not depend on it"},
    {"output", "[NAME=]FILE", COMMAND_RUN, KIND_LIST, FIELD(outputs), .section = "What is written",
     .help = "the output NAME, or the next one, as a file .npy. May be given several\ntimes"},
    {"force", NULL, COMMAND_RUN, KIND_SWITCH, FIELD(force), .value = 1, .help = "replace files that are already there"},
    {"input", "[NAME=]FILE", COMMAND_DIFF, KIND_LIST, FIELD(inputs), .section = "What is compared",
     .help = "numbers of an input, as for 'flexlab run' (the inputs that are recorded in\nB, or random numbers, the "
             "same each time)"},
    {"shape", "NAME=SIZES", COMMAND_DIFF, KIND_LIST, FIELD(shapes),
     .help = "of random numbers: the sizes of an input that the network leaves open,\nsuch as Nx3x48x320"},
    {"batch", "B", COMMAND_DIFF, KIND_WHOLE, FIELD(batch), 1, 65536, .help = "of random numbers: N (2)"},
    {"formats", "A,B", COMMAND_DIFF, KIND_TEXT, FIELD(formats),
     .help = "the formats of both programs, or one for both: fp32, fp16, bf16,\nflex16+5, dfp16, int8, int8:tensor (as "
             "the files say); the inputs fix shared\nexponents and scales"},
    {"method", "NAME", COMMAND_DIFF, KIND_TEXT, FIELD(method), .help = METHOD_HELP},
    {"rounding", "A,B", COMMAND_DIFF, KIND_TEXT, FIELD(rounding),
     .help = "how both round 8-bit integers, or one name for both: exact, onnx, tflite,\ntflite-ruy, tflite-xnnpack "
             "(that of the files)"},
    {"tolerance", "T", COMMAND_DIFF, KIND_REAL, FIELD(tolerance), 0, 1,
     .help = "tensors part where a number differs by more than T times the largest\nmagnitude in A (0: where a bit "
             "differs)"},
    {"threads", "T", COMMAND_DIFF, KIND_WHOLE, FIELD(threads), 1, 256,
     .help = "threads (all); results do not depend on it"},
    {"all", NULL, COMMAND_DIFF, KIND_SWITCH, FIELD(all), .value = 1, .section = "What is shown",
     .help = "every tensor, not only the first ones that differ"},
    {"csv", "FILE", COMMAND_DIFF, KIND_TEXT, FIELD(csv), .help = "all tensors as a table"},
    {"force", NULL, COMMAND_DIFF, KIND_SWITCH, FIELD(force), .value = 1,
     .help = "replace a file that is already there"},
    {"formats", "LIST", COMMAND_BENCH, KIND_TEXT, FIELD(formats), .section = "What is measured",
     .help = "comma-separated formats (fp32,fp16,bf16,flex16+5,dfp16; for a file\nthat has formats of its own or 8-bit "
             "integers: as saved)"},
    {"rounding", "NAME", COMMAND_BENCH, KIND_TEXT, FIELD(rounding), .help = ROUNDING_HELP},
    {"batch", "LIST", COMMAND_BENCH, KIND_TEXT, FIELD(batches), .help = "comma-separated batches (1,64)"},
    {"threads", "LIST", COMMAND_BENCH, KIND_TEXT, FIELD(thread_list),
     .help = "comma-separated numbers of threads (all)"},
    {"shape", "NAME=SIZES", COMMAND_BENCH, KIND_LIST, FIELD(shapes),
     .help = "the sizes of an input such as Nx3x48x320, where N stands for the batch,\nif the network leaves more than "
             "the first one open. May be given several\ntimes"},
    {"seconds", "S", COMMAND_BENCH, KIND_REAL, FIELD(seconds), 0.01, 600,
     .help = "how long each line of the table is measured (1)"},
    {"to", "FORMAT", COMMAND_TRANSPILE, KIND_TEXT, FIELD(to), .section = "In which format nodes compute",
     .help = "all of them, but for exceptions: fp16, bf16, flex16+5, dfp16, int8,\nfp32"},
    {"method", "NAME", COMMAND_TRANSPILE, KIND_TEXT, FIELD(method),
     .help = "the range that int8 covers: minmax, percentile:P, mse or entropy (minmax;\nwith --per-tensor mse)"},
    {"per-tensor", NULL, COMMAND_TRANSPILE, KIND_SWITCH, FIELD(per_tensor), .value = 1,
     .help = "int8: one scale for all filters of a layer, not one for each"},
    {"format", "PATTERN=FORMAT", COMMAND_TRANSPILE, KIND_LIST, FIELD(rules),
     .help = "those whose names match, or with @ whose operators do: '@Conv=fp16'; the\nlast rule that matches wins. "
             "May be given several times"},
    {"policy", "FILE", COMMAND_TRANSPILE, KIND_TEXT, FIELD(policy),
     .help = "a file of such rules before them, PATTERN format=FORMAT a line, as for\ntraining (docs/policies.md)"},
    {"exclude", "REGEX", COMMAND_TRANSPILE, KIND_LIST, FIELD(excludes),
     .help = "nodes whose names an extended regular expression finds remain in fp32.\nMay be given several times"},
    {"nodes-to-exclude", "REGEX", COMMAND_TRANSPILE, KIND_LIST, FIELD(excludes), .help = "another name of it"},
    {"keep-op", "OP", COMMAND_TRANSPILE, KIND_LIST, FIELD(keep_ops),
     .help = "nodes of an operator remain in fp32. May be given several times"},
    {"keep-io", NULL, COMMAND_TRANSPILE, KIND_SWITCH, FIELD(keep_io), .value = 1,
     .help = "inputs and outputs remain float32: they always do, with casts behind and\nbefore them"},
    {"keep-io-types", NULL, COMMAND_TRANSPILE, KIND_SWITCH, FIELD(keep_io), .value = 1, .help = "another name of it"},
    {"calibrate", "SPEC|FILE", COMMAND_TRANSPILE, KIND_TEXT, FIELD(calibration), .section = "What it is measured on",
     .help = "images of any kind that 'flexlab train' takes, with --mean and --std, or\narrays .npy or .npz of the "
             "inputs: they fix shared exponents, and results\nof nodes are compared on them"},
    {"calibrate-batches", "N", COMMAND_TRANSPILE, KIND_WHOLE, FIELD(calibration_batches), 1, INT_MAX,
     .help = "how many batches of images (10)"},
    {"scales", "FILE", COMMAND_TRANSPILE, KIND_TEXT, FIELD(scales), .help = SCALES_HELP},
    {"batch", "B", COMMAND_TRANSPILE, KIND_WHOLE, FIELD(batch), 1, 65536,
     .help = "samples at a time (64, or as many as the network states)"},
    {"data", "SPEC", COMMAND_CALIBRATE, KIND_TEXT, FIELD(data), .section = "What is measured",
     .help = "images of any kind that 'flexlab train' takes, see 'flexlab info data':\nits training part calibrates, "
             "its test part is evaluated (synthetic)"},
    {"calibrate", "SPEC", COMMAND_CALIBRATE, KIND_TEXT, FIELD(calibration),
     .help = "other data whose training part calibrates"},
    {"test-limit", "N", COMMAND_CALIBRATE, KIND_WHOLE, FIELD(test_limit), 1, INT_MAX,
     .help = "use only the first N images of the test part"},
    {"batches", "LIST", COMMAND_CALIBRATE, KIND_TEXT, FIELD(batches),
     .help = "how many batches calibrate, comma-separated and increasing (5,10,50)"},
    {"batch", "B", COMMAND_CALIBRATE, KIND_WHOLE, FIELD(batch), 1, 65536,
     .help = "images at a time (64, or as many as the network states): scales depend on\nthe images alone, not on how "
             "they are divided into batches"},
    {"methods", "LIST", COMMAND_CALIBRATE, KIND_TEXT, FIELD(methods),
     .help = "minmax, percentile:P (99.999), mse, entropy, comma-separated (all)"},
    {"formats", "LIST", COMMAND_CALIBRATE, KIND_TEXT, FIELD(formats),
     .help = "int8: weights have a scale for each filter; int8:tensor: one for all\n(both)"},
    {"mean", "LIST", COMMAND_TRANSPILE | COMMAND_CALIBRATE, KIND_TEXT, FIELD(mean),
     .help = "what is subtracted from pixels / 255, a number for each channel or one\nfor all: 0.485,0.456,0.406"},
    {"std", "LIST", COMMAND_TRANSPILE | COMMAND_CALIBRATE, KIND_TEXT, FIELD(deviation),
     .help = "what divides them then"},
    {"layout", "NAME", COMMAND_TRANSPILE | COMMAND_CALIBRATE, KIND_NAME, FIELD(layout), .names = layout_name,
     .help = "nchw or nhwc (as the shape of the input says)"},
    {"threads", "T", COMMAND_TRANSPILE | COMMAND_CALIBRATE, KIND_WHOLE, FIELD(threads), 1, 256,
     .help = "threads (all); results do not depend on it"},
    {"out", "FILE", COMMAND_TRANSPILE, KIND_TEXT, FIELD(out), .section = "What is written",
     .help = "the network: NAME.onnx for other runtimes, any other name as a program of\nflexlab (safetensors)"},
    {"report", "FILE", COMMAND_TRANSPILE, KIND_TEXT, FIELD(report),
     .help = "a page with all tensors, their histograms and checksums (NAME.html)"},
    {"csv", "FILE", COMMAND_TRANSPILE, KIND_TEXT, FIELD(csv), .help = "all tensors as a table"},
    {"all", NULL, COMMAND_TRANSPILE, KIND_SWITCH, FIELD(all), .value = 1,
     .help = "print all tensors, not the ten worst"},
    {"out", "FILE", COMMAND_CALIBRATE, KIND_TEXT, FIELD(out), .section = "What is written",
     .help = "the scales of one method and number of batches, for --scales of 'eval' and\n'transpile'"},
    {"csv", "FILE", COMMAND_CALIBRATE, KIND_TEXT, FIELD(csv), .help = "the table"},
    {"force", NULL, COMMAND_TRANSPILE | COMMAND_CALIBRATE, KIND_SWITCH, FIELD(force), .value = 1,
     .help = "replace files that are already there"},
    {"formats", "LIST", COMMAND_WHAT_IF, KIND_TEXT, FIELD(formats), .section = "What is measured",
     .help = "comma-separated number formats, those of blocks included\n(" WHAT_IF_FORMATS ")"},
    {"of", "FORMAT", COMMAND_WHAT_IF, KIND_TEXT, FIELD(of),
     .help = "the run of RUN whose network is taken, by its format (fp32, or else the\nfirst)"},
    {"data", "SPEC", COMMAND_WHAT_IF, KIND_TEXT, FIELD(data),
     .help = "data of any kind that 'flexlab train' takes, of which the training part\nis used (of RUN: those of its "
             "training)"},
    {"batches", "N", COMMAND_WHAT_IF, KIND_WHOLE, FIELD(batch_count), 1, 1000000,
     .help = "how many batches go forward and backward, from the same weights (4)"},
    {"batch", "B", COMMAND_WHAT_IF, KIND_WHOLE, FIELD(batch), 1, 65536,
     .help = "images or sequences of a batch (as the network was trained with)"},
    {"seed", "K", COMMAND_WHAT_IF, KIND_WHOLE, FIELD(seed_base), 0, 1e15,
     .help = "of the order of the data and their augmentation (that of the training:\nthe batches are the first of its "
             "first epoch)"},
    {"tensors", "GLOBS", COMMAND_WHAT_IF, KIND_TEXT, FIELD(trace_tensors),
     .help = "tensors whose names match, comma-separated patterns such as\n'conv1*,*.weight' (all)"},
    {"memory", "GIB", COMMAND_WHAT_IF, KIND_WHOLE, FIELD(memory), 1, 1 << 20,
     .help = "what a step may take beside the weights (4)"},
    {"device", "NAME", COMMAND_WHAT_IF, KIND_TEXT, FIELD(device),
     .help = "where the network computes: cpu, cuda, cuda:1, ... (cpu); results do\nnot depend on it"},
    {"threads", "T", COMMAND_WHAT_IF, KIND_WHOLE, FIELD(threads), 1, 256,
     .help = "threads (all); results do not depend on it"},
    {"sort", "NAME", COMMAND_WHAT_IF, KIND_NAME, FIELD(sort), .names = sort_name, .section = "What is shown",
     .help = "the tensors by their error in the worst format, by name, or by role\n(error)"},
    {"all", NULL, COMMAND_WHAT_IF, KIND_SWITCH, FIELD(all), .value = 1, .help = "print all tensors, not the ten first"},
    {"csv", "FILE", COMMAND_WHAT_IF, KIND_TEXT, FIELD(csv), .help = "every tensor in every format as a table"},
    {"out", "DIR", COMMAND_WHAT_IF, KIND_TEXT, FIELD(out),
     .help = "folder of what-if.html, what-if.csv and what-if.json, made if missing"},
    {"force", NULL, COMMAND_WHAT_IF, KIND_SWITCH, FIELD(force), .value = 1,
     .help = "replace files that are already there"},
    {"data", "SPEC", COMMAND_WGAN, KIND_TEXT, FIELD(data), .section = "What is trained",
     .help =
         "square images whose side is a multiple of 8 up to 256, of any kind\nthat 'flexlab train' takes; their labels "
         "do not count (synthetic)"},
    {"format", "POLICY", COMMAND_WGAN, KIND_TEXT, FIELD(formats),
     .help = "the policy of both networks, as for train (flex16+5). A rule is to match\nin one of them, whose layers "
             "are up1 "
             "... up4, bn1 ... bn3, image and\ndown1 ... down3, leaky1 ... leaky3, score"},
    {"policy", "NAME|FILE", COMMAND_WGAN, KIND_TEXT, FIELD(policy),
     .help = "another spelling of --format 'policy:NAME'; beside --format, rules that\nbegin from its variant"},
    {"layer-format", "RULES", COMMAND_WGAN, KIND_TEXT, FIELD(layer_format),
     .help = "lines behind those of the policy, as comma-separated PATTERN=VARIANT:\n'up*=bf16,score=fp32'"},
    {"latent", "N", COMMAND_WGAN, KIND_WHOLE, FIELD(latent), 1, 4096,
     .help = "numbers that an image is generated from (64)"},
    {"filters", "N", COMMAND_WGAN, KIND_WHOLE, FIELD(filters), 1, 1024,
     .help = "of the first layer of the critic; deeper ones have two and four\ntimes as many (32)"},
    {"steps", "N", COMMAND_WGAN, KIND_WHOLE, FIELD(gan_steps), 1, INT_MAX, .section = "How it is trained",
     .help = "of the generator, from the first on (1000)"},
    {"critic-steps", "N", COMMAND_WGAN, KIND_WHOLE, FIELD(critic_steps), 1, 1000,
     .help = "of the critic for each of the generator (5)"},
    {"batch", "B", COMMAND_WGAN, KIND_WHOLE, FIELD(batch), 1, 65536,
     .help = "real images, and as many generated ones, a step (64)"},
    {"lr", "RATE", COMMAND_WGAN, KIND_REAL, FIELD(rate), 1e-30, 1000, .help = "learning rate of RMSProp (5e-5)"},
    {"clip", "C", COMMAND_WGAN, KIND_REAL, FIELD(clip), 1e-30, 1000,
     .help = "the critic's weights lie within +-C after each step (0.01)"},
    {"loss-scale", "SCALE", COMMAND_WGAN, KIND_TEXT, FIELD(loss_scale),
     .help = "of the critic's loss and of the generator's, with a scaler each:\nnone, a power of two, dynamic, "
             "dynamic:NAME=NUMBER,... as for train\n(fp16: dynamic, other formats: none; a policy: what it says, else "
             "as the\nvariant that it begins from)"},
    {"seed", "K", COMMAND_WGAN, KIND_WHOLE, FIELD(seed_base), 0, 1e15,
     .help = "of weights, latent numbers and order of the images (1)"},
    {"device", "NAME", COMMAND_WGAN, KIND_TEXT, FIELD(device), .help = "where: cpu, cuda, cuda:1, ... (cpu)"},
    {"threads", "T", COMMAND_WGAN, KIND_WHOLE, FIELD(threads), 1, 256,
     .help = "threads (all); results do not depend on it"},
    {"resume", "PREFIX", COMMAND_WGAN, KIND_TEXT, FIELD(checkpoint),
     .help = "go on from PREFIX.critic.safetensors and PREFIX.generator.safetensors,\nwith the same options: to the "
             "same bits as in one go"},
    {"out", "DIR", COMMAND_WGAN, KIND_TEXT, FIELD(out), .section = "What is written",
     .help = "folder of metrics.jsonl, samples and networks (flexlab-results)"},
    {"force", NULL, COMMAND_WGAN, KIND_SWITCH, FIELD(force), .value = 1, .help = "write to a folder that has results"},
    {"samples", "N", COMMAND_WGAN, KIND_WHOLE, FIELD(samples), 1, 65536,
     .help = "images in a picture of samples, at most those of a batch (64)"},
    {"sample-every", "N", COMMAND_WGAN, KIND_WHOLE, FIELD(sample_every), 1, INT_MAX,
     .help = "steps between pictures (one at the end)"},
    {"checkpoint-every", "N", COMMAND_WGAN, KIND_WHOLE, FIELD(checkpoint_every), 1, INT_MAX,
     .help = "steps after which both networks are stored (at the end)"},
    {"quiet", NULL, COMMAND_WGAN, KIND_SWITCH, FIELD(quiet), .value = 1, .help = "no progress"},
    {"help", NULL,
     ALL | COMMAND_EVAL | COMMAND_WGAN | COMMAND_RUN | COMMAND_BENCH | COMMAND_TRANSPILE | COMMAND_DIFF |
         COMMAND_CALIBRATE | COMMAND_WHAT_IF | GOING_ON,
     KIND_SWITCH, FIELD(help), .value = 1, .help = "this text"},
#undef FIELD
};
enum { ROWS = sizeof rows / sizeof rows[0] };

const struct option_row *options_row(int i) {
    return i >= 0 && i < ROWS ? &rows[i] : NULL;
}

const struct option *options_known(enum command command) {
    static struct option known[ROWS + 1];
    int count = 0;
    memset(known, 0, sizeof known);
    for (int r = 0; r < ROWS; r++)
        if (rows[r].commands & (int)command)
            known[count++] = (struct option){rows[r].name, rows[r].placeholder ? required_argument : no_argument, NULL,
                                             OPTION_FOUND + r};
    return known;
}
