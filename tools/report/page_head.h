/* page_head.h - how every page of flexlab begins. */
#ifndef FLEXLAB_PAGE_HEAD_H
#define FLEXLAB_PAGE_HEAD_H

#include <stdio.h>

/* Up to "<body><main><h1>". The content policy: the page loads nothing, and runs no script but the one with this
 * SHA-256, in hexadecimal digits; NULL: none. */
void page_begin(FILE *out, const char *title, const char *script);

#endif
