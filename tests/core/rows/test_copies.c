/* Embedding, permutation, slice and concatenation, with their gradients: against loops over indices, in every format.
 * Values move exactly if the exponent can represent them; the gradient of a table is an exact sum in integer formats,
 * and follows the defined chains in float formats. */
#include "row_witness.h"
#include "flexlab/tensor_blocks.h"

__extension__ typedef __int128 int128;

static struct held in[3], out;

static void free_all(void) {
    for (int i = 0; i < 3; i++) {
        tensor_free(in[i].t);
        in[i].t = NULL;
    }
    tensor_free(out.t);
    out.t = NULL;
}

static void check_is(const char *what, int64_t i, double want) {
    CHECK(near_to(&out, i, want, 0) && (tensor_format_is_shared(tensor_format_of(out.t)) || out.v[i] == want),
          "%s i=%lld got %a want %a", what, (long long)i, out.v[i], want);
}

/* --- embedding ---------------------------------------------------------------------------------------------------- */

static tensor *indices_of(int64_t m, int64_t rows, int32_t *index) {
    for (int64_t i = 0; i < m; i++)
        index[i] = (int32_t)between(0, (int)rows - 1);
    tensor *t = tensor_new(FMT_I32, 1, &m);
    CHECK(t && !tensor_load_i32(t, index, m), "%s", tensor_error());
    return t;
}

static void check_embedding(tensor_format f, int64_t rows, int64_t m, int64_t n, int style) {
    static int32_t index[MOST];
    make(&in[0], f, 2, (int64_t[]){rows, n}, style);
    out.t = tensor_new(f, 2, (int64_t[]){m, n});
    tensor *indices = indices_of(m, rows, index);
    CHECK(!tensor_embedding(out.t, in[0].t, indices), "%s", tensor_error());
    hold(&out);
    for (int64_t i = 0; i < m * n; i++)
        check_is("embedding", i, in[0].v[index[i / n] * n + i % n]);
    free_all();

    make(&in[0], f, 2, (int64_t[]){m, n}, style);
    out.t = tensor_new(f, 2, (int64_t[]){rows, n});
    CHECK(!tensor_embedding_grad(out.t, in[0].t, indices), "%s", tensor_error());
    hold(&out);
    const bool shared = tensor_format_is_shared(f);
    const int shift = shared ? tensor_exponent(in[0].t) - tensor_exponent(out.t) : 0;
    for (int64_t i = 0; i < rows * n; i++) {
        int128 exact = 0;
        double total = 0;
        float chain = 0;
        int64_t count = 0;
        for (int64_t j = 0; j < m; j++) {
            if (index[j] != i / n)
                continue;
            if (shared) {
                exact += ((const int16_t *)tensor_const_data(in[0].t))[j * n + i % n];
            } else {
                if (count > 0 && count % 512 == 0)
                    total += chain, chain = 0;
                chain += (float)in[0].v[j * n + i % n];
            }
            count++;
        }
        if (!shared) {
            const float sum = (float)(total + chain);
            CHECK(f == FMT_FP32 ? out.v[i] == sum : near_to(&out, i, sum, 0), "%s gradient i=%lld got %a want %a",
                  tensor_format_name(f), (long long)i, out.v[i], (double)sum);
            continue;
        }
        const int16_t got = ((const int16_t *)tensor_const_data(out.t))[i];
        int128 want = exact * (shift < 0 ? (int128)1 << -shift : 1);
        if (shift > 0) {
            const int128 low = want >> shift, rest = want - low * ((int128)1 << shift), half = (int128)1 << (shift - 1);
            want = low + (rest > half || (rest == half && (low & 1)));
        }
        want = want > 32767 ? 32767 : want < -32767 ? -32767 : want;
        CHECK(got == (int16_t)want, "%s gradient i=%lld got %d want %d", tensor_format_name(f), (long long)i, got,
              (int)want);
        CHECK(count || got == 0, "an untouched row");
    }
    tensor_free(indices);
    free_all();
}

/* Gradients of all tables by finite differences, as for a sum: <dy, E(T + d)> - <dy, E(T)> = <dT, d>, exact on small
 * integers. */
static void check_adjoint(tensor_format f) {
    enum { ROWS = 7, M = 23, C = 5 };
    int32_t index[M];
    double table[ROWS * C], dy[M * C];
    for (int i = 0; i < ROWS * C; i++)
        table[i] = between(-4, 4);
    for (int i = 0; i < M * C; i++)
        dy[i] = between(-4, 4);
    tensor *indices = indices_of(M, ROWS, index);
    in[0].t = tensor_new(f, TENSOR_SHAPE(ROWS, C));
    in[1].t = tensor_new(f, TENSOR_SHAPE(M, C));
    in[2].t = tensor_new(f, TENSOR_SHAPE(ROWS, C));
    out.t = tensor_new(f, TENSOR_SHAPE(M, C));
    CHECK(!tensor_load_f64(in[0].t, table, ROWS * C) && !tensor_load_f64(in[1].t, dy, M * C), "%s", tensor_error());
    CHECK(!tensor_embedding(out.t, in[0].t, indices) && !tensor_embedding_grad(in[2].t, in[1].t, indices), "%s",
          tensor_error());
    hold(&out);
    hold(&in[2]);
    double left = 0, right = 0;
    for (int i = 0; i < M * C; i++)
        left += dy[i] * out.v[i];
    for (int i = 0; i < ROWS * C; i++)
        right += table[i] * in[2].v[i];
    CHECK(left == right, "%s: %g and %g", tensor_format_name(f), left, right);
    tensor_free(indices);
    free_all();
}

/* --- copies ------------------------------------------------------------------------------------------------------- */

static void check_permute(tensor_format f) {
    static const int orders[][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}, {3, 2, 1, 0}, {2, 3, 0, 1}, {1, 3, 0, 2}};
    const int64_t size[4] = {3, 5, 4, 7};
    for (int k = 0; k < 5; k++) {
        const int *order = orders[k];
        int64_t turned[4];
        int back[4];
        for (int d = 0; d < 4; d++) {
            turned[d] = size[order[d]];
            back[order[d]] = d;
        }
        make(&in[0], f, 4, size, 0);
        out.t = tensor_new(f, 4, turned);
        CHECK(!tensor_permute(out.t, in[0].t, order), "%s", tensor_error());
        hold(&out);
        int64_t at[4];
        for (at[0] = 0; at[0] < size[0]; at[0]++)
            for (at[1] = 0; at[1] < size[1]; at[1]++)
                for (at[2] = 0; at[2] < size[2]; at[2]++)
                    for (at[3] = 0; at[3] < size[3]; at[3]++) {
                        int64_t to = 0, from = 0;
                        for (int d = 0; d < 4; d++) {
                            to = to * turned[d] + at[order[d]];
                            from = from * size[d] + at[d];
                        }
                        check_is("permute", to, in[0].v[from]);
                    }
        /* a round trip at one exponent gives the same elements */
        in[1].t = tensor_new(f, 4, size);
        if (tensor_format_is_shared(f))
            CHECK(!tensor_set_predictor(in[1].t, "fixed") && !tensor_set_exponent(in[1].t, tensor_exponent(out.t)),
                  "%s", tensor_error());
        CHECK(!tensor_permute(in[1].t, out.t, back), "%s", tensor_error());
        hold(&in[1]);
        for (int64_t i = 0; i < in[1].n; i++)
            CHECK(near_to(&in[1], i, in[0].v[i], 0), "back i=%lld", (long long)i);
        free_all();
    }
}

/* Tests a slice from `first` on of dimension d of [4, 6, 5]; its gradient; slices concatenated again. */
static void check_parts(tensor_format f, int d) {
    const int64_t whole[3] = {4, 6, 5};
    int64_t part[3][3], first = 0;
    for (int i = 0; i < 3; i++)
        memcpy(part[i], whole, sizeof whole);
    part[0][d] = 1;
    part[1][d] = 2;
    part[2][d] = whole[d] - 3;
    int64_t inner = 1;
    for (int k = d + 1; k < 3; k++)
        inner *= whole[k];
    static struct held x;
    make(&x, f, 3, whole, 0);
    for (int i = 0; i < 3; first += part[i++][d]) {
        out.t = tensor_new(f, 3, part[i]);
        CHECK(!tensor_slice(out.t, x.t, d, first), "%s", tensor_error());
        hold(&out);
        for (int64_t j = 0; j < out.n; j++)
            check_is("slice", j,
                     x.v[j / (inner * part[i][d]) * inner * whole[d] + first * inner + j % (inner * part[i][d])]);
        in[i] = out;
        out.t = tensor_new(f, 3, whole);
        CHECK(!tensor_slice_grad(out.t, in[i].t, d, first), "%s", tensor_error());
        hold(&out);
        for (int64_t j = 0; j < out.n; j++) {
            const int64_t at = j / inner % whole[d] - first;
            const bool inside = at >= 0 && at < part[i][d];
            const int64_t from = (j / inner / whole[d] * part[i][d] + at) * inner + j % inner;
            check_is("slice_grad", j, inside ? in[i].v[from] : 0);
        }
        tensor_free(out.t);
    }
    out.t = tensor_new(f, 3, whole);
    CHECK(!tensor_concat(out.t, in[0].t, in[1].t, in[2].t, d), "%s", tensor_error());
    hold(&out);
    for (int64_t j = 0; j < out.n; j++) { /* each slice may have been rounded at its exponent */
        long double off = 0;
        for (int i = 0; i < 3; i++)
            off = fmaxl(off, tensor_format_is_shared(f) ? ldexpl(0.5L, -tensor_exponent(in[i].t)) : 0);
        CHECK(near_to(&out, j, x.v[j], off), "concat i=%lld got %a want %a", (long long)j, out.v[j], x.v[j]);
    }
    tensor_free(out.t);
    const int64_t two = part[0][d] + part[1][d];
    int64_t both[3];
    memcpy(both, whole, sizeof both);
    both[d] = two;
    out.t = tensor_new(f, 3, both);
    CHECK(!tensor_concat(out.t, in[0].t, in[1].t, NULL, d), "%s", tensor_error());
    hold(&out);
    for (int64_t j = 0; j < out.n; j++) {
        const int64_t at = j / inner % two, outer = j / inner / two, which = at >= part[0][d];
        check_is("concat of two", j,
                 in[which].v[(outer * part[which][d] + at - (which ? part[0][d] : 0)) * inner + j % inner]);
    }
    tensor_free(x.t);
    free_all();
}

static void check_errors(void) {
    tensor *a = tensor_new(FMT_FP32, TENSOR_SHAPE(2, 3)), *b = tensor_new(FMT_FP32, TENSOR_SHAPE(3, 2)),
           *c = tensor_new(FMT_FP32, TENSOR_SHAPE(2, 3)), *i = tensor_new(FMT_I32, TENSOR_SHAPE(3)),
           *e = tensor_new(FMT_FP32, TENSOR_SHAPE(3, 3)), *two = tensor_new(FMT_I32, TENSOR_SHAPE(2));
    double before[6], after[6];
    for (int k = 0; k < 6; k++)
        before[k] = k + 1;
    CHECK(!tensor_load_f64(a, before, 6), "%s", tensor_error());
    CHECK(tensor_permute(b, a, (int[]){1, 1}) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "order[1] is 1"), "%s",
          tensor_error());
    CHECK(tensor_permute(c, a, (int[]){1, 0}) == TENSOR_E_SHAPE, "%s", tensor_error());
    CHECK(tensor_permute(b, a, NULL) == TENSOR_E_ARGUMENT && tensor_permute(a, a, (int[]){0, 1}) == TENSOR_E_ARGUMENT,
          "%s", tensor_error());
    CHECK(tensor_slice(c, a, 2, 0) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "dim is 2"), "%s", tensor_error());
    CHECK(tensor_slice(c, a, 1, 1) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "from 1 on"), "%s", tensor_error());
    CHECK(tensor_slice(c, a, 1, -1) == TENSOR_E_ARGUMENT && tensor_slice(c, a, 1, INT64_MAX) == TENSOR_E_ARGUMENT, "%s",
          tensor_error());
    CHECK(tensor_slice(e, a, 0, 0) == TENSOR_E_ARGUMENT && tensor_slice(b, a, 0, 0) == TENSOR_E_SHAPE, "%s",
          tensor_error());
    CHECK(tensor_concat(e, a, b, NULL, 0) == TENSOR_E_SHAPE, "%s", tensor_error());
    CHECK(tensor_concat(a, a, c, NULL, 0) == TENSOR_E_ARGUMENT &&
              tensor_concat(e, c, NULL, NULL, 0) == TENSOR_E_ARGUMENT,
          "%s", tensor_error());
    CHECK(!tensor_load_i32(two, (int32_t[]){0, 3}, 2), "%s", tensor_error());
    CHECK(tensor_embedding(a, e, two) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "index 1 is 3, expected 0 to 2"),
          "%s", tensor_error());
    CHECK(tensor_embedding_grad(a, e, two) == TENSOR_E_SHAPE && tensor_embedding(a, e, i) == TENSOR_E_SHAPE &&
              tensor_embedding(a, e, NULL) == TENSOR_E_ARGUMENT && tensor_embedding(a, b, two) == TENSOR_E_SHAPE,
          "%s", tensor_error());
    CHECK(!tensor_store_f64(a, after, 6) && !memcmp(before, after, sizeof before), "an error wrote something");
    tensor *all[] = {a, b, c, e, i, two};
    for (int k = 0; k < 6; k++)
        tensor_free(all[k]);
}

int main(void) {
    static const int64_t shapes[][3] = {{1, 1, 1}, {5, 9, 3}, {40, 300, 17}, {2, 1500, 4}};
    draws = 20260103;
    printf("seed %llu\n", (unsigned long long)draws);
    for (int f = 0; f < 5; f++) {
        for (int s = 0; s < 4; s++)
            for (int style = 0; style < STYLES; style++)
                check_embedding(all_formats[f], shapes[s][0], shapes[s][1], shapes[s][2], style);
        check_adjoint(all_formats[f]);
        check_permute(all_formats[f]);
        for (int d = 0; d < 3; d++)
            check_parts(all_formats[f], d);
    }
    check_errors();
    return check_summary();
}
