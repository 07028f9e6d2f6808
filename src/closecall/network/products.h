/* Small products of float32 matrices whose rows are (units, samples): samples run along the vectors.
 *
 * Two shapes suffice. `sums` adds multiples of rows: a layer forward, or derivatives handed back to a layer. `dots`
 * multiplies rows with rows and adds over the samples: gradients of the weights. Widths are multiples of LANES * 2.
 */
#if defined(_MSC_VER) && !defined(__clang__)
#error "vectors of this kind are known to GCC and Clang only; without them the network runs on NumPy"
#endif
#define LANES 8
#pragma GCC diagnostic ignored "-Wpsabi" /* vectors are never passed: every function that takes one is inlined */
typedef float Vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t Ints __attribute__((vector_size(4 * LANES), aligned(4)));
#define UNROLL _Pragma("GCC unroll 8")
/* Compiled once for each kind of processor, not anew wherever it is called: inlined, all this took half a minute. */
#define ONCE static CLONES __attribute__((noinline))
#define TALL 6           /* rows of a tile of `sums`: with two vectors each, twelve of the sixteen registers */
#define NEAR (4 << 10)   /* floats that stay in the first cache while a block is gone through */

enum { PLAIN = 0, RELU = 1, GATE = 2 };

/* One part of a sum of rows: sum over i of w[row * r + step * i] * z[i][s]. */
typedef struct {
    const float *w;
    int64_t row, step;
    const float *z;
    int64_t count, width; /* width: from one row of z to the next */
} Terms;

INLINE Vec load(const float *from) { return *(const Vec *)from; }
INLINE void store(float *to, Vec value) { *(Vec *)to = value; }
#define WHERE(mask, value) ((Vec)((mask) & (Ints)(value)))

/* R rows of V vectors of samples. GATE: only where the activation of the same place is positive. */
INLINE void sums_tile(const int R, const int V, const Terms *terms, int parts, int64_t first, int64_t s, float *out,
                      int64_t out_width, int mode, const float *gate, int64_t gate_width) {
    Vec sum[TALL][8], zero = {0};
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int v = 0; v < V; v++) sum[r][v] = zero;
    for (int part = 0; part < parts; part++) {
        const float *w = terms[part].w + first * terms[part].row, *z = terms[part].z + s;
        const int64_t row = terms[part].row, step = terms[part].step, width = terms[part].width;
        for (int64_t i = terms[part].count; i > 0; i--, w += step, z += width) {
            Vec x[8];
            UNROLL for (int v = 0; v < V; v++) x[v] = load(z + v * LANES);
            UNROLL for (int r = 0; r < R; r++) UNROLL for (int v = 0; v < V; v++) sum[r][v] += w[r * row] * x[v];
        }
    }
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int v = 0; v < V; v++) {
        Vec value = sum[r][v];
        int64_t at = s + v * LANES;
        if (mode == RELU) value = WHERE(value > zero, value);
        if (mode == GATE) value = WHERE(load(gate + (first + r) * gate_width + at) > zero, value);
        store(out + (first + r) * out_width + at, value);
    }
}

#define TILE(R, V)                                                                                                    \
    for (; s + V * LANES <= end; s += V * LANES)                                                                      \
    sums_tile(R, V, terms, parts, first, s, out, out_width, mode, gate, gate_width)

/* out[r][s] for all rows and the first `samples` samples, a block of samples at a time that stays near. */
ONCE void sums(const Terms *terms, int parts, int64_t rows, int64_t samples, float *out, int64_t out_width, int mode,
                 const float *gate, int64_t gate_width) {
    int64_t height = 1, tiles = (rows + TALL - 1) / TALL;
    for (int part = 0; part < parts; part++) height += terms[part].count;
    int64_t block = NEAR / height / (8 * LANES) * (8 * LANES);
    block = block < 2 * LANES ? 2 * LANES : block;
    for (int64_t from = 0; from < samples; from += block) {
        int64_t end = from + block < samples ? from + block : samples;
        for (int64_t tile = 0, first = 0; tile < tiles; tile++) {
            int64_t size = (rows - first) / (tiles - tile), s = from;
            switch (size) {
            case 6: TILE(6, 2); break;
            case 5: TILE(5, 2); break;
            case 4: TILE(4, 2); break;
            case 3: TILE(3, 4); TILE(3, 2); break;
            case 2: TILE(2, 4); TILE(2, 2); break;
            default: TILE(1, 8); TILE(1, 2);
            }
            first += size;
        }
    }
}

typedef float Quad __attribute__((vector_size(16), aligned(4), may_alias));

/* The sums over the lanes of four vectors. */
INLINE Quad quad(Vec a, Vec b, Vec c, Vec d) {
    Vec ab = __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13) +
             __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
    Vec cd = __builtin_shufflevector(c, d, 0, 8, 1, 9, 4, 12, 5, 13) +
             __builtin_shufflevector(c, d, 2, 10, 3, 11, 6, 14, 7, 15);
    Vec all = __builtin_shufflevector(ab, cd, 0, 1, 8, 9, 4, 5, 12, 13) +
              __builtin_shufflevector(ab, cd, 2, 3, 10, 11, 6, 7, 14, 15);
    return __builtin_shufflevector(all, all, 0, 1, 2, 3) + __builtin_shufflevector(all, all, 4, 5, 6, 7);
}

/* grad[r][c] += sum over s of deltas[r][s] * z[c][s], R x C of them; C is 4 or 8, of which `valid` count. */
INLINE void dots_tile(const int R, const int C, const float *deltas, int64_t delta_width, const float *z, int64_t width,
                      int64_t samples, float *grad, int64_t row, int valid) {
    Vec sum[3][8], zero = {0};
    const float *at[8];
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < C; c++) sum[r][c] = zero;
    UNROLL for (int c = 0; c < C; c++) at[c] = z + (c < valid ? c : 0) * width;
    for (int64_t s = 0; s < samples; s += LANES) {
        Vec delta[3];
        UNROLL for (int r = 0; r < R; r++) delta[r] = load(deltas + r * delta_width + s);
        UNROLL for (int c = 0; c < C; c++) {
            Vec x = load(at[c] + s);
            UNROLL for (int r = 0; r < R; r++) sum[r][c] += delta[r] * x;
        }
    }
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < C; c += 4) {
        Quad found = quad(sum[r][c], sum[r][c + 1], sum[r][c + 2], sum[r][c + 3]);
        float *to = grad + r * row + c;
        if (valid >= c + 4)
            *(Quad *)to += found;
        else
            for (int left = 0; left < valid - c; left++) to[left] += found[left];
    }
}

/* grad (rows, columns) += deltas (rows, samples) z' (samples, columns). */
ONCE void dots(const float *deltas, int64_t delta_width, int64_t rows, const float *z, int64_t width, int64_t columns,
                 int64_t samples, float *grad) {
    int64_t block = NEAR / samples / 4 * 4; /* rows of z that stay near while all deltas pass */
    block = block < 8 ? 8 : block;
    for (int64_t from = 0; from < columns; from += block) {
        int64_t end = from + block < columns ? from + block : columns;
        for (int64_t r = 0; r < rows;) {
            const float *delta = deltas + r * delta_width;
            float *to = grad + r * columns;
            int64_t left = rows - r, c = from;
            if (left >= 3) {
                for (; c < end; c += 4)
                    dots_tile(3, 4, delta, delta_width, z + c * width, width, samples, to + c, columns,
                              end - c < 4 ? (int)(end - c) : 4);
                r += 3;
            } else if (left == 2) {
                for (; c < end; c += 4)
                    dots_tile(2, 4, delta, delta_width, z + c * width, width, samples, to + c, columns,
                              end - c < 4 ? (int)(end - c) : 4);
                r += 2;
            } else {
                for (; c < end; c += 8)
                    dots_tile(1, 8, delta, delta_width, z + c * width, width, samples, to + c, columns,
                              end - c < 8 ? (int)(end - c) : 8);
                r += 1;
            }
        }
    }
}
