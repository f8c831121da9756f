/* block_words_avx2.c - dot products of words of 16 bits. */
#define FL_ISA avx2
#include "blocks/block_words.inc"
