/* block_words_avx512bw.c - dot products of words of 16 bits. */
#define FL_ISA avx512bw
#include "blocks/block_words.inc"
