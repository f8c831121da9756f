/* real_lanes_portable.c - real functions and slopes with bounds of their errors, in plain C. */
#define FL_ISA portable
#include "core/real/real_lanes.inc"
