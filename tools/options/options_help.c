/* options_help.c - the help text of a command: its purpose, its options from the table, and the files that it
 * writes. */
#include "options/options_table.h"

static const char *const report_help[] = {
    "Usage: flexlab report [OPTION]... DIR...\n\n"
    "Draws table, report.html and the figures for print again from what 'flexlab compare' or\n"
    "'flexlab train' has stored in DIR, without training. Several folders become one report: they must hold\n"
    "the same training, with any formats and seeds.\n",
    "\nWithout --out, report.html and the figures in DIR are replaced; with nothing else chosen they\n"
    "are the same, byte for byte. With --out, summary.csv is written beside them.\n"
    "\nExit status: 0 success, 1 failure, 2 wrong usage.\n"
    "\nExamples\n"
    "  flexlab report quick --trace-tensors 'conv1*,*.weight'\n"
    "  flexlab report monday tuesday --out both\n"};

static const char *const eval_help[] = {
    "Usage: flexlab eval --checkpoint FILE [OPTION]...\n"
    "       flexlab eval FILE --data SPEC --mean LIST --std LIST [OPTION]...\n\n"
    "With --checkpoint: mean loss and accuracy of a network of 'flexlab train' on images,\n"
    "normalised as those that it was trained on, or on a text; then also bits of a token and\n"
    "perplexity. With FILE, a trained network in ONNX or TensorFlow Lite: how accurate it is in\n"
    "each format, and what the format changes (docs/programs.md).\n",
    "\nPrints what was evaluated, then loss and accuracy, a line each; of FILE a table with a line for\n"
    "each format: accuracy, how often the largest logit is that of fp32, largest and mean difference of\n"
    "logits from fp32, their SQNR, images a second. Exit status: 0 success, 1 failure or results that are\n"
    "NaN or infinite, 2 wrong usage.\n"
    "\nExamples\n"
    "  flexlab eval --checkpoint quick/best.safetensors --data synthetic:train=2000,test=500\n"
    "  flexlab eval resnet20.onnx --data cifar10:cifar-10-batches-bin \\\n"
    "      --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225\n"};

static const char *const run_help[] = {
    "Usage: flexlab run FILE [OPTION]...\n\n"
    "Runs a trained network in ONNX or TensorFlow Lite on arrays of NumPy, and prints the shape of\n"
    "each output, and its least, largest and mean number. Without --input it prints the inputs\n"
    "that the network expects and its outputs (docs/programs.md).\n",
    "\nExit status: 0 success, 1 failure, 2 wrong usage.\n"
    "\nExamples\n"
    "  flexlab run network.onnx\n"
    "  flexlab run network.onnx --input image.npy --output logits.npy --format flex16+5\n"
    "  flexlab run two.onnx --input left=a.npy --input right=b.npy --output sum=c.npy\n"};

static const char *const bench_help[] = {
    "Usage: flexlab bench FILE [OPTION]...\n\n"
    "Measures how long a trained network in ONNX or TensorFlow Lite takes for a batch, on random\n"
    "numbers, the same each time (docs/programs.md).\n",
    "\nA line for each format, batch and number of threads: the median and the least time of a run in\n"
    "milliseconds, and the items (images) a second at the median.\n"
    "Exit status: 0 success, 1 failure, 2 wrong usage.\n"
    "\nExamples\n"
    "  flexlab bench network.onnx --formats fp32,flex16+5 --threads 1,2\n"
    "  flexlab bench text.onnx --shape x=Nx3x48x320 --batch 1,8\n"};

static const char *const calibrate_help[] = {
    "Usage: flexlab calibrate FILE --data SPEC --mean LIST --std LIST [OPTION]...\n\n"
    "Calibrates a trained network for 8-bit integers with several numbers of batches, and shows for\n"
    "each, and each method, how accurate the integers are, with one scale for all filters of a layer\n"
    "and with one for each (docs/programs.md).\n",
    "\nAfter fp32 a line for each number of batches, method and format, in the columns of 'flexlab eval'.\n"
    "Exit status: 0 success, 1 failure, 2 wrong usage.\n"
    "\nExamples\n"
    "  flexlab calibrate resnet20.onnx --data cifar10:cifar-10-batches-bin \\\n"
    "      --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225\n"
    "  flexlab calibrate resnet20.onnx --data cifar10:cifar-10-batches-bin --mean 0.485,0.456,0.406 \\\n"
    "      --std 0.229,0.224,0.225 --methods mse --batches 50 --out scales.csv\n"};

static const char *const diff_help[] = {
    "Usage: flexlab diff A B [OPTION]...\n"
    "       flexlab diff A --formats X,Y [OPTION]...\n\n"
    "Runs two networks, or one in two formats, on the same inputs, and names the first tensor, in the\n"
    "order in which A computes them, at which they part. B may be an archive of NumPy (.npz) with\n"
    "recorded numbers: members named as tensors, or output:NAME (docs/programs.md).\n",
    "\nTensors are compared by their names, outputs without such a name by their places.\n"
    "Exit status: 0 no difference, 1 a difference, 2 they could not be compared.\n"
    "\nExamples\n"
    "  flexlab diff network.onnx network.safetensors\n"
    "  flexlab diff network.onnx recorded.npz --tolerance 1e-4\n"
    "  flexlab diff network.onnx --formats fp32,flex16+5 --input images.npy --tolerance 0.01 --all\n"};

static const char *const transpile_help[] = {
    "Usage: flexlab transpile FILE --to FORMAT [OPTION]... --out FILE\n\n"
    "Brings a trained network in ONNX or TensorFlow Lite, or a program of flexlab, into another\n"
    "format, writes it, and tells what that does to each of its tensors (docs/programs.md).\n",
    "\nPrints nodes by format, casts and bytes; the tensors with the lowest ratio of signal to noise, with\n"
    "numbers that were clamped or flushed to zero; and a checksum of each output on a fixed input, beside\n"
    "that of the source. Exit status: 0 success, 1 failure, 2 wrong usage.\n"
    "\nExamples\n"
    "  flexlab transpile network.onnx --to fp16 --exclude '^head/' --out half.onnx\n"
    "  flexlab transpile resnet20.onnx --to flex16+5 --calibrate cifar10:cifar-10-batches-bin \\\n"
    "      --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225 --out resnet20.safetensors --report report.html\n"
    "  flexlab transpile text.onnx --to bf16 --format '@Softmax=fp32' --calibrate inputs.npz --out text.safetensors\n"};

static const char *const what_if_help[] = {
    "Usage: flexlab what-if RUN [OPTION]...\n"
    "       flexlab what-if CHECKPOINT --data SPEC [OPTION]...\n\n"
    "Computes forward and backward passes of a trained network in its own formats, and shows what\n"
    "other number formats would do to the values of each weight, activation and gradient: relative\n"
    "error, numbers lost to zero or saturated, and how many bits are enough (docs/what-if.md).\n"
    "RUN is the folder of results of 'flexlab train', or of a comparison that is not over;\n"
    "CHECKPOINT one of its files such as best.safetensors.\n",
    "\nPrints signal-to-noise ratios by role and format, then of the worst tensors, and what would help\n"
    "them. Exit status: 0 success, 1 failure, 2 wrong usage.\n"
    "\nExamples\n"
    "  flexlab what-if quick\n"
    "  flexlab what-if quick --formats flex12+5,flex8+5 --tensors 'conv*.weight,fc*' --all\n"
    "  flexlab what-if r20/last.safetensors --data cifar10:cifar-10-batches-bin --out r20-what-if\n"};

static const char *const wgan_help[] = {
    "Usage: flexlab wgan [OPTION]...\n\n"
    "Trains a generator of images and its critic in one number format, or under one policy\n"
    "(Wasserstein GAN with weight clipping: docs/training.md).\n",
    "\nIn the folder of results\n"
    "  metrics.jsonl         the settings, then a line a step of the generator: the critic's estimate\n"
    "                        of the distance between real and generated images, the generator's loss,\n"
    "                        loss scales and skipped steps of both networks; under a policy the\n"
    "                        formats of their layers\n"
    "  samples-STEP.ppm      generated images, the same latent numbers each time (.pgm where grey)\n"
    "  wgan-STEP.critic.safetensors, wgan-STEP.generator.safetensors\n"
    "\nAfter Ctrl-C, SIGTERM or SIGHUP the step in progress is finished and samples and networks are\n"
    "stored. Exit status: 0 success, 1 failure, or the last 20 steps or more of a network made no update\n"
    "because its gradients were not finite at every loss scale, 2 wrong usage, 130, 143, 129 after these\n"
    "signals.\n"
    "\nExample\n"
    "  flexlab wgan --data cifar10:cifar-10-batches-bin --format flex16+5 --steps 5000 --out cifar-gan\n"
    "  flexlab wgan --policy O2 --layer-format 'score=fp32' --loss-scale dynamic:init=4096 --out mixed\n"};

void options_help(enum command command, FILE *out) {
    if (command == COMMAND_COMPARE)
        fputs("Usage: flexlab compare [OPTION]...\n\n"
              "Trains one network in several number formats, side by side, from the same initial\n"
              "weights on the same batches, and reports losses, accuracies, speed and memory.\n",
              out);
    else if (command == COMMAND_REPORT)
        fputs(report_help[0], out);
    else if (command == COMMAND_EVAL)
        fputs(eval_help[0], out);
    else if (command == COMMAND_RUN)
        fputs(run_help[0], out);
    else if (command == COMMAND_BENCH)
        fputs(bench_help[0], out);
    else if (command == COMMAND_TRANSPILE)
        fputs(transpile_help[0], out);
    else if (command == COMMAND_CALIBRATE)
        fputs(calibrate_help[0], out);
    else if (command == COMMAND_DIFF)
        fputs(diff_help[0], out);
    else if (command == COMMAND_WHAT_IF)
        fputs(what_if_help[0], out);
    else if (command == COMMAND_WGAN)
        fputs(wgan_help[0], out);
    else
        fputs("Usage: flexlab train [OPTION]...\n\n"
              "Trains one network in one number format. Writes what 'flexlab compare' writes, and the\n"
              "trained network (--seeds 1).\n",
              out);
    const struct option_row *row;
    for (int r = 0; (row = options_row(r)); r++) {
        if (!(row->commands & (int)command))
            continue;
        if (row->section)
            fprintf(out, "\n%s\n", row->section);
        int used = fprintf(out, "  --%s%s%s", row->name, row->placeholder ? " " : "",
                           row->placeholder ? row->placeholder : "");
        fprintf(out, "%*s", 24 > used ? 24 - used : 1, "");
        for (const char *p = row->help; *p; p++) {
            fputc(*p, out);
            if (*p == '\n')
                fprintf(out, "%*s", 24, "");
        }
        fputc('\n', out);
    }
    const char *const rest = command == COMMAND_REPORT      ? report_help[1]
                             : command == COMMAND_EVAL      ? eval_help[1]
                             : command == COMMAND_RUN       ? run_help[1]
                             : command == COMMAND_BENCH     ? bench_help[1]
                             : command == COMMAND_TRANSPILE ? transpile_help[1]
                             : command == COMMAND_DIFF      ? diff_help[1]
                             : command == COMMAND_CALIBRATE ? calibrate_help[1]
                             : command == COMMAND_WHAT_IF   ? what_if_help[1]
                             : command == COMMAND_WGAN      ? wgan_help[1]
                                                            : NULL;
    if (rest) {
        fputs(rest, out);
        return;
    }
    fputs("\nIn the folder of results\n"
          "  metrics.jsonl         the configuration, then losses, epochs and runs, one JSON object\n"
          "                        a line (docs/output.md); everything but times (fields with\n"
          "                        'seconds', images_per_second) and the first line, which\n"
          "                        names the machine, is the same for the same options\n"
          "  summary.csv           one line a format\n"
          "  trace-FORMAT-seedN.csv  exponent and maximum of every tensor over the steps\n"
          "  telemetry-FORMAT-seedN.jsonl, .csv  with --telemetry: elements of every tensor over\n"
          "                        the steps (docs/output.md)\n"
          "  figure-*.svg, .png    with --figures: loss and accuracy; exponents (drawn by gnuplot)\n"
          "  report.html           all of it on one page, readable without a network\n",
          out);
    if (command == COMMAND_TRAIN)
        fputs("  best.safetensors, last.safetensors  the network after its best evaluation and after its last\n"
              "                        step, for 'flexlab eval' and other programs (docs/checkpoints.md)\n",
              out);
    fputs("Everything is made in the folder flexlab.part inside it and takes its place, complete and on\n"
          "the disk, when the runs are over; with --force earlier results stay until then. One flexlab\n"
          "at a time writes in a folder.\n"
          "\nAfter Ctrl-C, SIGTERM or SIGHUP the step in progress is finished, and the results so far are\n"
          "stored as incomplete: in the table, summary.csv, report.html and the last line of metrics.jsonl.\n"
          "Incomplete results replace no earlier ones (--force): they go to the folder flexlab.incomplete\n"
          "inside DIR. A second signal ends the program at once; checkpoints alone are left then.\n",
          out);
    fprintf(out,
            "\n"
            "Until all is trained checkpoints are in DIR/flexlab.resume. 'flexlab %s --resume DIR'\n"
            "resumes it, after a signal, kill -9 or a power cut: results are those of runs that were never\n"
            "interrupted.\n",
            command == COMMAND_TRAIN ? "train" : "compare");
    fputs("\nA run has diverged when the loss of any step or of the test set is NaN or Inf, or when its\n"
          "last loss is more than 1.5 times the larger of its first loss and log(classes), the loss\n"
          "of guessing, or when its last 20 steps or more made no update because their gradients were not\n"
          "finite at every loss scale. Table, report and metrics.jsonl name it; the exit status is 1.\n"
          "They name the first NaN or Inf too: the step, forward or backward pass or update, the tensor, and\n"
          "the option by which it would be finite where there is one (docs/output.md).\n"
          "\nExit status: 0 success, 1 failure, divergence or --stop-on-nonfinite, 2 wrong usage, 130 after Ctrl-C,\n"
          "143 after SIGTERM, 129 after SIGHUP.\n"
          "\nExamples\n",
          out);
    if (command == COMMAND_COMPARE)
        fputs("  flexlab compare --formats fp32,fp16,fp16:noscale --model cnn6 --out scaled\n"
              "  flexlab compare --model mlp2 --data synthetic:train=2000,test=500 --epochs 3 --out quick\n"
              "  flexlab compare --model resnet20 --data cifar10:cifar-10-batches-bin --epochs 20 --seeds 3 --out r20\n"
              "  flexlab compare --formats fp32,fp16,fp16:nomaster,fp16-sr,flex16+5 --lr 5e-4 --out low-rate\n"
              "  flexlab compare --formats fp32,flex16+5,O1,O2:bf16,policy:dfp16,my.policy --out levels\n"
              "  flexlab compare --resume r20\n",
              out);
    else
        fputs(
            "  flexlab train --model mlp2 --data synthetic:train=2000,test=500 --epochs 3 --out quick\n"
            "  flexlab train --format flex16+5:ngraph --model resnet20 --data cifar10:cifar-10-batches-bin --out r20\n"
            "  flexlab train --device cuda --model resnet20 --data cifar10:cifar-10-batches-bin --out r20-gpu\n"
            "  flexlab train --format bf16 --model cnn6 --data idx:fashion-mnist --epochs 5 --out fashion\n"
            "  flexlab train --model resnet20 --data images:flowers,resize=64x64,channels=3 --out flowers\n"
            "  flexlab train --model gpt --data text:book.txt --epochs 3 --out book\n"
            "  flexlab train --policy O2:bf16 --layer-format 'fc*=fp32' --out o2\n"
            "  flexlab train --resume fashion\n",
            out);
}
