/* block_words_avx512.c - dot products of words of 16 bits. */
#define FL_ISA avx512
#include "blocks/block_words.inc"
