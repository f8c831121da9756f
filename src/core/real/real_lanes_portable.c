/* real_lanes_portable.c - real functions and slopes with bounds of their errors, in plain C. */
#define REAL_ISA portable
#include "core/real/real_lanes.inc"
