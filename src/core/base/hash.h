/* hash.h - FNV-1a of 64 bits, of names, texts and settings: a sum by which two of them are told apart. */
#ifndef FL_HASH_H
#define FL_HASH_H

#include <stddef.h>
#include <stdint.h>

#define FL_HASH 0xcbf29ce484222325u /* of nothing */

/* That of what `hash` is of, followed by these bytes. */
static inline uint64_t fl_hash(uint64_t hash, const void *bytes, size_t n) {
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
    return hash;
}

#endif
