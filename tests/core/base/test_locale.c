/* A program whose locale writes 0,5: the trace keeps its columns and its bytes, messages their decimal points, options
 * of data sets their meaning. The locale is compiled by the test where the machine has none with a decimal comma. */
#include "check.h"
#include "flexlab/nn.h"
#include <locale.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/flexlab-locale-XXXXXX";

static const char *in_folder(const char *name) {
    static char path[2][128];
    static int which;
    which = !which;
    snprintf(path[which], sizeof path[which], "%s/%s", folder, name);
    return path[which];
}

/* setlocale reads LOCPATH when it first looks for a locale that is not "C": so this comes before any other. */
static bool set_comma_locale(void) {
    static const char *const names[] = {"comma", "de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE"};
    char command[400];
    snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/comma >/dev/null 2>&1", folder);
    const bool made = system(command) >= 0 && !access(in_folder("comma/LC_NUMERIC"), R_OK);
    if (made)
        setenv("LOCPATH", folder, 1);
    for (int i = !made; i < 5; i++)
        if (setlocale(LC_ALL, names[i]) && !strcmp(localeconv()->decimal_point, ","))
            return true;
    return false;
}

static char *slurp(const char *path) {
    static char text[2][1 << 20];
    static int which;
    FILE *file = fopen(path, "rb");
    which = !which;
    text[which][0] = 0;
    CHECK(file, "%s was not written", path);
    if (file) {
        text[which][fread(text[which], 1, sizeof text[which] - 1, file)] = 0;
        fclose(file);
    }
    return text[which];
}

static void write_trace(const char *path) {
    data_set *train = data_open("synthetic:train=40,test=10,seed=3", DATA_TRAIN);
    CHECK(train, "%s", tensor_error());
    nn_train_config config = {.network = {.variant = "flex16+5", .batch = 10, .seed = 3, .momentum = 0.9f},
                              .model = "mlp2",
                              .epochs = 1,
                              .rate = 0.01,
                              .schedule = "linear",
                              .trace_path = path,
                              .trace_every = 1};
    nn_train_result result;
    CHECK(!nn_train(&result, &config, train, NULL, NULL), "%s", tensor_error());
    nn_train_result_clear(&result);
    data_free(train);
}

static void check_messages(void) {
    tensor *t = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(2));
    nn_graph *g = nn_graph_new(&(nn_config){.variant = "fp32", .batch = 1, .momentum = 1.25f});
    CHECK(!g && strstr(tensor_error(), "1.25"), "%s", tensor_error());
    nn_train_result result;
    data_set *train = data_open("synthetic:train=40", DATA_TRAIN);
    nn_train_config config = {.network = {.variant = "fp32", .batch = 10}, .model = "mlp2", .epochs = 1, .rate = -0.5};
    CHECK(nn_train(&result, &config, train, NULL, NULL) && strstr(tensor_error(), "-0.5"), "%s", tensor_error());
    CHECK(!strcmp(localeconv()->decimal_point, ","), "the program's locale is another now");
    char text[16];
    snprintf(text, sizeof text, "%g", 0.5);
    CHECK(!strcmp(text, "0,5"), "the locale of the thread is another now: %s", text);
    data_free(train);
    tensor_free(t);
}

int main(void) {
    if (!mkdtemp(folder))
        return check_skip("no temporary folder");
    write_trace(in_folder("plain.csv"));
    const bool comma = set_comma_locale();
    if (comma) {
        write_trace(in_folder("comma.csv"));
        CHECK(!strcmp(slurp(in_folder("plain.csv")), slurp(in_folder("comma.csv"))), "the traces differ");
        check_messages();
    }
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK(!system(command), "%s stays", folder);
    return comma ? check_summary() : check_skip("no locale with a decimal comma, and no localedef to make one");
}
