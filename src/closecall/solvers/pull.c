/* From minus margins to the pull of each example, one problem at a time and in place: the compiled twin of kernels.py.
 *
 * Selection is exact. A row remembers where its k-th key was at the last step. Counting passes bring a bracket around it
 * together until few keys are inside, and only these are searched. If the k-th key is not among them the bracket is
 * widened, then the whole row is searched; the answer never depends on the bracket. Where k is small only the examples
 * that the bracket's upper end admits get keys and slopes at all, and a gradient of few examples is summed over them.
 */
#if defined(__GNUC__) && !defined(__clang__)
/* A comparison could trap, so that by default loops that choose by one are not vectorised. Measured: 2.8 times as fast. */
#pragma GCC optimize("no-trapping-math", "no-math-errno")
#endif
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define CHUNK 64 /* keys counted together before looking whether any of them lies inside the bracket */
#define COUNTED 4096 /* keys counted in whole numbers of 32 bits */
#define FAR 40 /* margin from which on keys of correct examples are all 2 */
#define STEEP 60 /* as in kernels.py */
#define FEW 8    /* a gradient of at most this part of the examples is summed over them alone */
enum { LOGISTIC = 0, HINGE = 1 };
enum { AVERAGE = 0, CLOSE = 1, LARGEST = 2, TOP = 3, KEYS = 4 };

/* Only glibc chooses among clones when the library is loaded; musl does not. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__GLIBC__)
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CLONES
#endif
#ifdef _MSC_VER
#define INLINE static __forceinline
#else
#define INLINE static inline __attribute__((always_inline))
#endif
#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT
#endif

/* exp by exp(x) = 2^n exp(r), |r| <= log(2) / 2: the Taylor polynomial to the type's precision, n added to the exponent.
 * Adding 1.5 * 2^mantissa rounds to a whole number and leaves it in the low bits. Written out so that it vectorises. */
INLINE float exp_f32(float x) {
    x = x < -87.0f ? -87.0f : x;
    x = x > 87.0f ? 87.0f : x;
    float shifted = x * 1.44269504088896341f + 12582912.0f;
    float n = shifted - 12582912.0f;
    float r = (x - n * 0.693145751953125f) - n * 1.42860682030941723e-6f;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 127u) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

INLINE double exp_f64(double x) {
    x = x < -700.0 ? -700.0 : x;
    x = x > 700.0 ? 700.0 : x;
    double shifted = x * 1.4426950408889634074 + 6755399441055744.0;
    double n = shifted - 6755399441055744.0;
    double r = (x - n * 0.69314718036912381649) - n * 1.9082149292705877e-10;
    double p = 1.0 / 6227020800.0;
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    uint64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 1023u) << 52;
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

#define REAL float
#define NAME(x) x##_f32
#define LARGE FLT_MAX
#define EPSILON FLT_EPSILON
#include "select.h"
#ifndef PARTS_ALONE /* the network needs the selection alone, in float32 */
#include "pull.h"
#undef REAL
#undef NAME
#undef LARGE
#undef EPSILON
#define REAL double
#define NAME(x) x##_f64
#define LARGE DBL_MAX
#define EPSILON DBL_EPSILON
#include "select.h"
#include "pull.h"
#endif
