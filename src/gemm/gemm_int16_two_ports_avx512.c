/* gemm_int16_two_ports_avx512.c - the micro-kernels of gemm_int16_avx512.c for processors that have two ports for
 * instructions of 512 bits, multiplications among them (fl_cpu_has_two_ports). */
#define FL_ISA two_ports_avx512
#define GEMM_TWO_PORTS 1
#include "gemm/gemm_int16_kernels.inc"
