/* From minus margins to the pull of each example, one problem at a time and in place: the compiled twin of kernels.py.
 *
 * Selection is exact. A row remembers where its k-th key was at the last step. Counting passes bring a bracket around it
 * together until few keys are inside, and only these are searched. If the k-th key is not among them the bracket is
 * widened, then the whole row is searched; the answer never depends on the bracket. Where k is small only the examples
 * that the bracket's upper end admits get keys and slopes at all, and a gradient of few examples is summed over them.
 */
#if defined(__GNUC__) && !defined(__clang__)
/* A comparison could trap, so by default loops that select by one are not vectorised. Measured: 2.8 times as fast. */
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

#include "exponential.h"

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
