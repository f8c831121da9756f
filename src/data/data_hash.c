/* data_hash.c - a hash of the contents of a set, to recognise equal sets. */
#include "flexlab/data.h"
#include <string.h>

/* Mixes in a word. Each step is one-to-one in the hash before it and in the word, so a change of one word always
 * changes the hash. */
static uint64_t mix(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 32;
}

/* Mixes in bytes as little-endian words, the last one padded with zeros. */
static uint64_t mix_bytes(uint64_t hash, const uint8_t *bytes, size_t size) {
    uint64_t word;
    for (; size >= sizeof word; bytes += sizeof word, size -= sizeof word) {
        memcpy(&word, bytes, sizeof word);
        hash = mix(hash, word);
    }
    word = 0;
    if (size)
        memcpy(&word, bytes, size);
    return mix(hash, word);
}

uint64_t data_hash(const data_set *set, bool labels) {
    const int64_t count = set ? data_count(set) : 0;
    const bool text = set && data_is_text(set);
    uint64_t hash = 0;
    if (count && !text)
        hash =
            mix_bytes(hash, data_image(set, 0),
                      (size_t)count * (size_t)data_height(set) * (size_t)data_width(set) * (size_t)data_channels(set));
    for (int64_t i = 0; i < count && labels; i++)
        hash = mix(hash, (uint64_t)data_label(set, i));
    return hash;
}
