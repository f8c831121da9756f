/* text.c - printf and strtod without a locale. A program may call setlocale on any thread and at any time; uselocale
 * applies to the calling thread and takes precedence. */
#define _GNU_SOURCE /* uselocale */
#include "core/base/text.h"
#include <locale.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static locale_t plain; /* made once, never freed: threads may be using it when the process ends */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_plain(void) {
    plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

/* Returns the locale to restore. If there is no memory for "C", the thread's own remains. */
static locale_t enter(void) {
    pthread_once(&once, make_plain);
    return plain ? uselocale(plain) : (locale_t)0;
}

static void leave(locale_t before) {
    if (before)
        uselocale(before);
}

int fl_format(char *text, size_t size, const char *format, va_list arguments) {
    const locale_t before = enter();
    const int n = vsnprintf(text, size, format, arguments);
    leave(before);
    return n;
}

double fl_to_real(const char *text, char **end) {
    const locale_t before = enter();
    const double value = strtod(text, end);
    leave(before);
    return value;
}

struct fl_names fl_list_names(const char *(*name)(int i)) {
    enum { MORE = 24 }; /* " and 2147483647 more" */
    struct fl_names all = {""};
    size_t used = 0;
    int i = 0, left = 0;
    for (; name(i); i++) {
        const size_t length = strlen(name(i)) + (i ? 2 : 0);
        if (used + length + MORE > sizeof all.text)
            break;
        used += (size_t)snprintf(all.text + used, sizeof all.text - used, "%s%s", i ? ", " : "", name(i));
    }
    while (name(i + left))
        left++;
    if (left)
        snprintf(all.text + used, sizeof all.text - used, " and %d more", left);
    return all;
}

int fl_print(FILE *file, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const locale_t before = enter();
    const int n = vfprintf(file, format, arguments);
    leave(before);
    va_end(arguments);
    return n;
}

struct fl_quoted fl_quote(const char *given) {
    struct fl_quoted quoted = {"NULL"};
    if (given)
        snprintf(quoted.text, sizeof quoted.text, "'%.597s'", given);
    return quoted;
}

int fl_read_number(const char **at) {
    int number = 0;
    for (int digits = 0; digits < 2 && **at >= (digits ? '0' : '1') && **at <= '9'; digits++)
        number = 10 * number + (*(*at)++ - '0');
    return number;
}
