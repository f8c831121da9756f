/* Patterns of names: what the manual page of the shell says, and random patterns against fnmatch of the C library. */
#include "check.h"
#include "core/base/match.h"
#include <fnmatch.h>
#include <locale.h>
#include <string.h>

static uint64_t seed = 5;

static bool matches(const char *pattern, const char *name) {
    return fl_matches(pattern, strlen(pattern), name);
}

static void known(void) {
    static const struct {
        const char *pattern, *name;
        bool good;
    } cases[] = {{"", "", true},
                 {"", "a", false},
                 {"*", "", true},
                 {"conv1*", "conv1.weight", true},
                 {"conv1*", "conv", false},
                 {"*.weight", "conv1.weight", true},
                 {"*.weight", "conv1.weights", false},
                 {"fc?", "fc1", true},
                 {"fc?", "fc12", false},
                 {"a*b*c", "aXbYbZc", true},
                 {"a*b*c", "aXbYbZ", false},
                 {"conv[1-3]", "conv2", true},
                 {"conv[1-3]", "conv4", false},
                 {"conv[!1-3]", "conv4", true},
                 {"conv[]x]", "conv]", true},
                 {"a[b", "a[b", true},
                 {"a\\*", "a*", true},
                 {"a\\*", "ab", false},
                 {"*a*a*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK(matches(cases[i].pattern, cases[i].name) == cases[i].good, "'%s' and '%s'", cases[i].pattern,
              cases[i].name);
    CHECK(fl_matches("conv*,fc", 5, "conv1") && !fl_matches("conv*,fc", 5, "fc"), "the length of a pattern");
}

static void draw(char *text, const char *letters, int longest) {
    const int length = (int)(check_random(&seed) % (uint64_t)(longest + 1));
    for (int i = 0; i < length; i++)
        text[i] = letters[check_random(&seed) % strlen(letters)];
    text[length] = 0;
}

int main(void) {
    known();
    long good = 0;
    setlocale(LC_ALL, "C");
    for (int i = 0; i < 400000; i++) {
        char pattern[12], name[8];
        draw(pattern, i % 2 ? "abc**?[]-!" : "abc*?\\", 9);
        draw(name, i % 2 ? "abc-]" : "abc\\", 6);
        const bool want = !fnmatch(pattern, name, 0);
        CHECK(matches(pattern, name) == want, "'%s' and '%s': expected %s", pattern, name, want ? "a match" : "none");
        good += want;
    }
    CHECK(good > 10000, "%ld matches", good);
    return check_summary();
}
