/* `sums` and `dots` with vectors of HELD floats: the parts of products.h that are compiled for several widths.
 *
 * A vector of `sums` holds HELD samples of a row. A vector of `dots` holds eight samples of HELD / 8 rows; every width
 * therefore adds in the same order and gives the same bits. KIND declares the functions.
 */
#define JOIN_TWO(name, held) name##held
#define JOIN(name, held) JOIN_TWO(name, held)
#define ROW JOIN(Row, HELD)
#define MASK JOIN(Mask, HELD)
#define ABREAST (HELD / LANES) /* rows in one vector of `dots` */
typedef float ROW __attribute__((vector_size(4 * HELD), aligned(4), may_alias));
typedef int32_t MASK __attribute__((vector_size(4 * HELD), aligned(4)));

/* R rows of V vectors of samples. GATE: only where the activation at the same place is positive. */
INLINE void JOIN(sums_tile, HELD)(const int R, const int V, const Terms *terms, int parts, int64_t first, int64_t s,
                                  float *out, int64_t out_width, int mode, const float *gate, int64_t gate_width) {
    ROW sum[TALL][8], zero = {0};
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int v = 0; v < V; v++) sum[r][v] = zero;
    for (int part = 0; part < parts; part++) {
        const float *w = terms[part].w + first * terms[part].row, *z = terms[part].z + s;
        const int64_t row = terms[part].row, step = terms[part].step, width = terms[part].width;
        for (int64_t i = terms[part].count; i > 0; i--, w += step, z += width) {
            ROW x[8];
            UNROLL for (int v = 0; v < V; v++) x[v] = *(const ROW *)(z + v * HELD);
            UNROLL for (int r = 0; r < R; r++) UNROLL for (int v = 0; v < V; v++) sum[r][v] += w[r * row] * x[v];
        }
    }
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int v = 0; v < V; v++) {
        ROW value = sum[r][v];
        int64_t at = s + v * HELD;
        if (mode == RELU) value = (ROW)((value > zero) & (MASK)value);
        if (mode == GATE) value = (ROW)((*(const ROW *)(gate + (first + r) * gate_width + at) > zero) & (MASK)value);
        *(ROW *)(out + (first + r) * out_width + at) = value;
    }
}

#define TILE(R, V)                                                                                                    \
    for (; s + V * HELD <= end; s += V * HELD)                                                                        \
    JOIN(sums_tile, HELD)(R, V, terms, parts, first, s, out, out_width, mode, gate, gate_width)

/* out[r][s] for all rows and the first `samples` samples, one block of samples at a time, which stays in the cache. */
KIND void JOIN(sums, HELD)(const Terms *terms, int parts, int64_t rows, int64_t samples, float *out, int64_t out_width,
                           int mode, const float *gate, int64_t gate_width) {
    int64_t height = 1, tiles = (rows + TALL - 1) / TALL;
    for (int part = 0; part < parts; part++) height += terms[part].count;
    int64_t block = NEAR / height / (8 * HELD) * (8 * HELD);
    block = block < LEAST ? LEAST : block;
    for (int64_t from = 0; from < samples; from += block) {
        int64_t end = from + block < samples ? from + block : samples;
        for (int64_t tile = 0, first = 0; tile < tiles; tile++) {
            int64_t size = (rows - first) / (tiles - tile), s = from;
            switch (size) { SUMS_TILES }
            first += size;
        }
    }
}

/* grad[r][c] += sum over s of deltas[r][s] * z[c][s], R * ABREAST x C of them; C is 4 or 8, of which `valid` count. */
INLINE void JOIN(dots_tile, HELD)(const int R, const int C, const float *deltas, int64_t delta_width, const float *z,
                                  int64_t width, int64_t samples, float *grad, int64_t row, int valid) {
    ROW sum[3][8], zero = {0};
    const float *at[8];
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < C; c++) sum[r][c] = zero;
    UNROLL for (int c = 0; c < C; c++) at[c] = z + (c < valid ? c : 0) * width;
    for (int64_t s = 0; s < samples; s += LANES) {
        ROW delta[3];
        UNROLL for (int r = 0; r < R; r++) delta[r] = SIDE_BY_SIDE(deltas + r * ABREAST * delta_width + s, delta_width);
        UNROLL for (int c = 0; c < C; c++) {
            ROW x = SIDE_BY_SIDE(at[c] + s, 0);
            UNROLL for (int r = 0; r < R; r++) sum[r][c] += delta[r] * x;
        }
    }
    UNROLL for (int r = 0; r < R * ABREAST; r++) UNROLL for (int c = 0; c < C; c += 4) {
        Vec part[4];
        UNROLL for (int i = 0; i < 4; i++) part[i] = ONE_ROW(sum[r / ABREAST][c + i], r % ABREAST);
        Quad found = quad(part[0], part[1], part[2], part[3]);
        float *to = grad + r * row + c;
        if (valid >= c + 4)
            *(Quad *)to += found;
        else
            for (int left = 0; left < valid - c; left++) to[left] += found[left];
    }
}

#define ACROSS(R, C, LEFT)                                                                                            \
    for (; c + LEFT <= end; c += C)                                                                                   \
    JOIN(dots_tile, HELD)(R, C, delta, delta_width, z + c * width, width, samples, to + c, columns,                   \
                          end - c < C ? (int)(end - c) : C)

/* grad (rows, columns) += deltas (rows, samples) z' (samples, columns), for the rows that fill whole vectors. */
KIND void JOIN(dots, HELD)(const float *deltas, int64_t delta_width, int64_t rows, const float *z, int64_t width,
                           int64_t columns, int64_t samples, float *grad) {
    int64_t block = NEAR / samples / 4 * 4; /* rows of z that stay in the cache while all deltas are used */
    block = block < 8 ? 8 : block;
    for (int64_t from = 0; from < columns; from += block) {
        int64_t end = from + block < columns ? from + block : columns;
        for (int64_t r = 0, size; r + ABREAST <= rows; r += size * ABREAST) {
            const float *delta = deltas + r * delta_width;
            float *to = grad + r * columns;
            int64_t left = (rows - r) / ABREAST, c = from;
            size = left < 3 ? left : 3;
            switch (size) { DOTS_TILES }
        }
    }
}
#undef ROW
#undef MASK
#undef ABREAST
#undef TILE
#undef ACROSS
#undef JOIN
#undef JOIN_TWO
#undef HELD
#undef KIND
#undef LEAST
#undef SUMS_TILES
#undef DOTS_TILES
#undef SIDE_BY_SIDE
#undef ONE_ROW
