/* exponentials_portable.c - exp of many numbers, in plain C. */
#define FL_ISA portable
#include "core/arithmetic/exponentials.inc"
