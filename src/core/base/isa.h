/* isa.h - names of what a file gives for the instruction set that it is compiled for, FL_ISA: fl_flex_avx2. */
#ifndef FL_ISA_H
#define FL_ISA_H

#define FL_JOIN_(a, b) a##_##b
#define FL_JOIN(a, b) FL_JOIN_(a, b)
#define FL_FOR_ISA(name) FL_JOIN(name, FL_ISA)

#endif
