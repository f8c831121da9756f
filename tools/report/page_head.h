/* page_head.h - how every page of flexlab begins. */
#ifndef FLEXLAB_PAGE_HEAD_H
#define FLEXLAB_PAGE_HEAD_H

#include <stdbool.h>
#include <stdio.h>

/* Up to "<body><main><h1>". The content policy: the page loads nothing, and runs no script but the one of this program,
 * if it has one. */
void page_begin(FILE *out, const char *title, bool script);

#endif
