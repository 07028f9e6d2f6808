/* Small products of float32 matrices of shape (units, samples): samples run along the vectors.
 *
 * Two kinds suffice. `sums` adds multiples of rows, for the forward pass of a layer or for derivatives passed back to a
 * layer. `dots` multiplies rows by rows and adds the products over the samples, for gradients of the weights. Widths
 * are multiples of LANES * 2. tiles.h defines both for one width of vectors.
 */
#if defined(_MSC_VER) && !defined(__clang__)
#error "only GCC and Clang support these vectors; with other compilers the network uses NumPy"
#endif
#define LANES 8
#pragma GCC diagnostic ignored "-Wpsabi" /* vectors are never passed: every function that takes one is inlined */
typedef float Vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t Ints __attribute__((vector_size(4 * LANES), aligned(4)));
#define UNROLL _Pragma("GCC unroll 8")
/* Not inlined: compiling each call for each kind of processor took half a minute. */
#define ONCE static CLONES __attribute__((noinline))
#define TALL 6           /* rows of a tile of `sums`: with two vectors each, twelve of the sixteen registers */
#define NEAR (4 << 10)   /* floats in a block, which stay in the L1 cache */

enum { PLAIN = 0, RELU = 1, GATE = 2 };

/* One part of a sum of rows: sum over i of w[row * r + step * i] * z[i][s]. */
typedef struct {
    const float *w;
    int64_t row, step;
    const float *z;
    int64_t count, width; /* width: distance between rows of z */
} Terms;

INLINE Vec load(const float *from) { return *(const Vec *)from; }
INLINE void store(float *to, Vec value) { *(Vec *)to = value; }
#define WHERE(mask, value) ((Vec)((mask) & (Ints)(value)))

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

EXPORT int32_t network_held = 16; /* the most floats in a vector; tests set it to 8, to compare */

#define HELD 8
#define KIND ONCE
#define LEAST 16
#define SUMS_TILES                                                                                                    \
case 6: TILE(6, 2); break;                                                                                            \
case 5: TILE(5, 2); break;                                                                                            \
case 4: TILE(4, 2); break;                                                                                            \
case 3: TILE(3, 4); TILE(3, 2); break;                                                                                \
case 2: TILE(2, 4); TILE(2, 2); break;                                                                                \
default: TILE(1, 8); TILE(1, 2);
#define DOTS_TILES                                                                                                    \
case 3: ACROSS(3, 4, 1); break;                                                                                       \
case 2: ACROSS(2, 4, 1); break;                                                                                       \
default: ACROSS(1, 8, 1);
#define SIDE_BY_SIDE(from, apart) load(from)
#define ONE_ROW(vector, which) vector
#include "tiles.h"

/* Vectors of twice the size give the same bits and are 1.5 to 1.8 times as fast on a Zen 5. */
#ifdef CHOSEN_CLONES
#define HELD 16
#define KIND static __attribute__((noinline, target("arch=x86-64-v4")))
#define LEAST 64
#define SUMS_TILES                                                                                                    \
case 6: TILE(6, 4); TILE(6, 2); TILE(6, 1); break;                                                                    \
case 5: TILE(5, 4); TILE(5, 2); TILE(5, 1); break;                                                                    \
case 4: TILE(4, 4); TILE(4, 2); TILE(4, 1); break;                                                                    \
case 3: TILE(3, 4); TILE(3, 2); TILE(3, 1); break;                                                                    \
case 2: TILE(2, 4); TILE(2, 2); TILE(2, 1); break;                                                                    \
default: TILE(1, 8); TILE(1, 2); TILE(1, 1);
#define DOTS_TILES                                                                                                    \
case 3: ACROSS(3, 8, 5); ACROSS(3, 4, 1); break;                                                                      \
case 2: ACROSS(2, 8, 5); ACROSS(2, 4, 1); break;                                                                      \
default: ACROSS(1, 8, 5); ACROSS(1, 4, 1);
#define SIDE_BY_SIDE(from, apart)                                                                                     \
    __builtin_shufflevector(load(from), load((from) + (apart)), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
#define ONE_ROW(vector, which)                                                                                        \
    ((which) ? __builtin_shufflevector(vector, vector, 8, 9, 10, 11, 12, 13, 14, 15)                                  \
             : __builtin_shufflevector(vector, vector, 0, 1, 2, 3, 4, 5, 6, 7))
#include "tiles.h"
#define WIDE (network_held >= 16 && __builtin_cpu_supports("x86-64-v4"))
#define IF_WIDE(call) call
#else
#define WIDE 0
#define IF_WIDE(call)
#endif

INLINE void sums(const Terms *terms, int parts, int64_t rows, int64_t samples, float *out, int64_t out_width, int mode,
                 const float *gate, int64_t gate_width) {
    if (WIDE)
        IF_WIDE(sums16(terms, parts, rows, samples, out, out_width, mode, gate, gate_width));
    else
        sums8(terms, parts, rows, samples, out, out_width, mode, gate, gate_width);
}

/* grad (rows, columns) += deltas (rows, samples) z' (samples, columns). */
INLINE void dots(const float *deltas, int64_t delta_width, int64_t rows, const float *z, int64_t width, int64_t columns,
                 int64_t samples, float *grad) {
    int64_t done = WIDE ? rows / 2 * 2 : 0;
    if (done) IF_WIDE(dots16(deltas, delta_width, rows, z, width, columns, samples, grad));
    if (done < rows)
        dots8(deltas + done * delta_width, delta_width, rows - done, z, width, columns, samples, grad + done * columns);
}
