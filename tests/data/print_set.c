/* print_set.c - what a specification opens, for the tests in Python: a line of text with its sizes, then labels as
 * int32 and pixels as they lie in memory; of a text its tokens, then the character of each as int32. usage: print_set
 * SPECIFICATION train|test [THREADS] A failure goes to standard error as "status: message", with exit status 1. */
#include "flexlab/data.h"
#include "flexlab/tensor.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    if (argc < 3)
        return fprintf(stderr, "usage: print_set SPECIFICATION train|test [THREADS]\n"), 2;
    if (argc > 3)
        tensor_set_threads(atoi(argv[3]));
    data_set *set = data_open(argv[1], strcmp(argv[2], "test") ? DATA_TRAIN : DATA_TEST);
    if (!set)
        return fprintf(stderr, "%s: %s\n", tensor_status_name(tensor_error_status()), tensor_error()), 1;
    const int64_t n = data_count(set), image = (int64_t)data_height(set) * data_width(set) * data_channels(set);
    printf("%lld %d %d %d %d\n", (long long)n, data_height(set), data_width(set), data_channels(set),
           data_classes(set));
    for (int64_t i = 0; i < n; i++) {
        const int32_t label = data_label(set, i);
        fwrite(&label, sizeof label, 1, stdout);
    }
    if (image)
        fwrite(data_image(set, 0), (size_t)image, (size_t)n, stdout);
    for (int32_t token = 0; data_is_text(set) && token < data_classes(set); token++) {
        const int32_t character = data_character(set, token);
        fwrite(&character, sizeof character, 1, stdout);
    }
    data_free(set);
    return fflush(stdout) || ferror(stdout);
}
