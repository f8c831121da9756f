/* real_lookup_portable.c - results of real functions from tables. */
#include "core/real/real_map.h"

void fl_real_lookup_portable(const int32_t *entries, const uint16_t *x, uint16_t *y, int64_t n, const int32_t limits[2],
                             struct fl_real_found *found) {
    int32_t least = found->least, most = found->most;
    int64_t first = 0, second = 0;
    for (int64_t i = 0; i < n; i++) {
        const int32_t entry = entries[x[i]];
        least = entry < least ? entry : least;
        most = entry > most ? entry : most;
        first += entry > limits[0];
        second += entry > limits[1];
        if (y)
            y[i] = (uint16_t)entry;
    }
    found->least = least;
    found->most = most;
    found->above[0] += first;
    found->above[1] += second;
}
