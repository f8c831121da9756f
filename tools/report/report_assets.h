/* report_assets.h - the files of tools/page that every page contains; the build makes arrays of them
 * (cmake/embed.cmake). */
#ifndef FLEXLAB_REPORT_ASSETS_H
#define FLEXLAB_REPORT_ASSETS_H

#include <stddef.h>

/* The plotting library, then our own files; and the script of the page of `what-if`. Each ends in a zero beyond its
 * size; the digest, 64 hexadecimal digits, is that of `size` bytes. */
extern const unsigned char report_script[], report_style[], what_if_script[];
extern const size_t report_script_size, report_style_size, what_if_script_size;
extern const char report_script_sha256[], report_style_sha256[], what_if_script_sha256[];

#endif
