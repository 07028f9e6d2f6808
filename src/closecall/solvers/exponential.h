/* Code that the kernels share: clones of a function for several processors, and exp. */
#ifndef EXPONENTIAL_H
#define EXPONENTIAL_H
#include <stdint.h>
#include <string.h>

/* glibc selects a clone when the library is loaded; musl does not. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__GLIBC__)
#define CHOSEN_CLONES
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

/* exp(x) = 2^n exp(r) with |r| <= log(2) / 2: a Taylor polynomial to the type's precision, with n added to the exponent.
 * Adding 1.5 * 2^mantissa rounds to a whole number and leaves it in the low bits. Unlike libm's, it vectorises. */
INLINE float exp_f32(float x) {
    static const float terms[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f};
    x = x < -87.0f ? -87.0f : x;
    x = x > 87.0f ? 87.0f : x;
    float shifted = x * 1.44269504088896341f + 12582912.0f;
    float n = shifted - 12582912.0f;
    float r = (x - n * 0.693145751953125f) - n * 1.42860682030941723e-6f;
    float p = 1.0f / 5040;
    for (int j = 0; j < 7; j++) p = p * r + terms[j];
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 127u) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

INLINE double exp_f64(double x) {
    static const double terms[] = {1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040,
                                   1.0 / 720,       1.0 / 120,      1.0 / 24,      1.0 / 6,      0.5,         1.0, 1.0};
    x = x < -700.0 ? -700.0 : x;
    x = x > 700.0 ? 700.0 : x;
    double shifted = x * 1.4426950408889634074 + 6755399441055744.0;
    double n = shifted - 6755399441055744.0;
    double r = (x - n * 0.69314718036912381649) - n * 1.9082149292705877e-10;
    double p = 1.0 / 6227020800.0;
    for (int j = 0; j < 13; j++) p = p * r + terms[j];
    uint64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 1023u) << 52;
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}
#endif
