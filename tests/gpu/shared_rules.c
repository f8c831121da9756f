/* shared_rules.c - the rules that a processor and a device share, compiled as C or as C++: prints what they give.
 * test_shared_rules.py compares compilers. usage: shared_rules THOUSANDS */
#include "shared_rules.h"

int main(int argc, char **argv) {
    return shared_print(shared_on_host, argc > 1 ? atoi(argv[1]) : 1);
}
