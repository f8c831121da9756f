/* isa.h - names with the suffix FL_ISA, the instruction set that a file is compiled for: fl_flex_avx2. */
#ifndef FL_ISA_H
#define FL_ISA_H

#define FL_JOIN_(a, b) a##_##b
#define FL_JOIN(a, b) FL_JOIN_(a, b)
#define FL_FOR_ISA(name) FL_JOIN(name, FL_ISA)

#endif
