/* options_kept.c - the options that a resumed training needs: from a command line to the words that are stored with its
 * checkpoints, and back. */
#include "options/options_table.h"
#include "base/text.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char plain_characters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+,.:/@";

char *options_kept_add(char *kept, const char *word) {
    char *longer = text_alloc(strlen(kept) + 3 * strlen(word) + 2, 1), *to = stpcpy(longer, kept);
    if (*kept)
        *to++ = ' ';
    for (const char *p = word; *p; p++)
        if (strchr(plain_characters, *p))
            *to++ = *p;
        else
            to += sprintf(to, "%%%02X", (unsigned char)*p);
    free(kept);
    return longer;
}

/* One option of a command line. */
struct given {
    const struct option_row *row;
    const char *value;
};

/* Adds an option at the end and removes an earlier one of the same name. */
static int add_given(struct given *list, int count, const struct option_row *row, const char *value) {
    int kept = 0;
    for (int i = 0; i < count; i++)
        if (list[i].row != row)
            list[kept++] = list[i];
    list[kept++] = (struct given){row, value};
    return kept;
}

char *options_kept(enum command command, int argc, char **argv) {
    const struct option *known = options_known(command);
    int count = 0, rows = 0;
    while (options_row(rows))
        rows++;
    struct given *list = text_alloc((size_t)rows, sizeof *list);
    char *kept = text_format("%s", "");
    optind = 0;
    for (int found; (found = getopt_long(argc, argv, ":h", known, NULL)) != -1;) {
        const struct option_row *row = options_row(found - OPTION_FOUND);
        if (row && (!(row->commands & GOING_ON) || row->commands & KEPT))
            count = add_given(list, count, row, optarg);
    }
    for (int i = 0; i < count; i++) {
        const struct option_row *row = list[i].row;
        char *word =
            text_format("--%s%s%s", row->name, row->placeholder ? "=" : "", row->placeholder ? list[i].value : "");
        kept = options_kept_add(kept, word);
        free(word);
    }
    free(list);
    return kept;
}

char **options_kept_words(const char *command, const char *kept, int *argc) {
    static const char digits[] = "0123456789ABCDEF";
    const size_t length = strlen(kept), most = length / 2 + 3, first = strlen(command) + 1;
    char **words = text_alloc(1, most * sizeof *words + first + length + 1);
    char *to = (char *)(words + most);
    words[0] = strcpy(to, command);
    to += first;
    *argc = 1;
    for (const char *p = kept; *p; p++) {
        if (p == kept || p[-1] == ' ')
            words[(*argc)++] = to;
        const char *high = *p == '%' && p[1] ? strchr(digits, p[1]) : NULL,
                   *low = high && p[2] ? strchr(digits, p[2]) : NULL;
        if (*p == ' ')
            *to++ = 0;
        else if (low && (high != digits || low != digits)) {
            *to++ = (char)((high - digits) * 16 + (low - digits));
            p += 2;
        } else if (strchr(plain_characters, *p))
            *to++ = *p;
        else {
            free(words);
            return NULL;
        }
    }
    return words;
}

int options_kept_parse(struct settings *settings, enum command command, const char *kept, const char *of,
                       char ***words) {
    const char *const name = command == COMMAND_TRAIN ? "train" : "compare";
    int count;
    *words = options_kept_words(name, kept, &count);
    if (!*words)
        return text_failed(
            "%s contains no options of 'flexlab %s', expected words of letters, digits and -_=+,.:/@, with "
            "%%XX for another character and a space between",
            of, name);
    if (options_parse(settings, command, count, *words))
        return text_failed(
            "%s contains the option that is refused above, expected those with which 'flexlab %s' begins", of, name);
    if (settings->help || settings->resume)
        return text_failed("%s contains --%s, expected options with which 'flexlab %s' begins", of,
                           settings->help ? "help" : "resume", name);
    return STATUS_OK;
}
